package exchange

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

const escrowLine = "r fixed_window limit=6000 window=60s escrow"

// total is what passed in all windows.
func (w *world) total() (n int64) {
	for _, passed := range w.passed {
		n += passed
	}
	return n
}

// only asks one region at a rate, in requests per second, and returns how many passed.
func (w *world) only(r *region, rate float64, length time.Duration, key string) (passed int64) {
	pause := time.Duration(float64(time.Second) / rate)
	for end := time.Now().Add(length); time.Now().Before(end); w.wait(pause) {
		if w.ask(r, key) {
			passed++
		}
	}
	return passed
}

// requireNoneOver holds every window to the limit.
func (w *world) requireNoneOver() {
	w.Helper()
	for window, n := range w.passed {
		require.LessOrEqual(w, n, w.limit.Limit, window)
	}
}

func TestEscrowSteadyDemand(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inWorld(t, escrowLine, 2, func(w *world) {
		w.demand(100, 59*time.Second, "k")
		t.Logf("%d of 6000 passed", w.total())
		w.requireNoneOver()
		require.GreaterOrEqual(t, w.total(), int64(5820), "under-use of 3% at most")
	})
}

// Regions that are asked for little let one that is asked for much have what they do not
// need.
func TestEscrowFollowsDemand(t *testing.T) {
	inWorld(t, escrowLine, 2, func(w *world) {
		passed := w.only(w.regions[0], 300, 30*time.Second, "k")
		t.Logf("%d of 6000 passed in one region", passed)
		w.requireNoneOver()
		require.GreaterOrEqual(t, passed, int64(5820))
	})
}

// Clients that move wholly to another region find there nearly all that is not spent.
func TestEscrowDemandMoves(t *testing.T) {
	inWorld(t, escrowLine, 2, func(w *world) {
		before := w.only(w.regions[0], 150, 20*time.Second, "k") // more than its part
		require.Greater(t, before, int64(2900))
		began := time.Now()
		passed := int64(0)
		for passed < (6000-before)*95/100 && time.Since(began) < 30*time.Second {
			passed += w.only(w.regions[2], 2000, 100*time.Millisecond, "k")
		}
		t.Logf("95%% of %d unspent were available within %s", 6000-before, time.Since(began))
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
		w.requireNoneOver()
	})
}

func TestEscrowAnAdversary(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inWorld(t, escrowLine, 2, func(w *world) {
		for range 7000 {
			for _, r := range w.regions {
				w.ask(r, "k")
			}
		}
		w.wait(time.Second)
		w.demand(100, 55*time.Second, "k")
		w.requireNoneOver()
		require.EqualValues(t, 6000, w.total())
	})
}

// A region that is cut off spends what it holds, and the others what they do.
func TestEscrowARegionIsCutOff(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inWorld(t, escrowLine, 2, func(w *world) {
		w.only(w.regions[2], 150, 20*time.Second, "k") // it holds more than its part
		w.cutOff("c", true)
		w.demand(200, 30*time.Second, "k")
		w.requireNoneOver()
		t.Logf("%d of 6000 passed while one of three regions was cut off", w.total())
		require.GreaterOrEqual(t, w.total(), int64(5000))
		w.cutOff("c", false)
		w.demand(200, 65*time.Second, "k")
		w.requireNoneOver()
	})
}

func TestEscrowMessagesLostAndDoubled(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inWorld(t, escrowLine, 2, func(w *world) {
		w.losing(0.2)
		w.only(w.regions[1], 300, 58*time.Second, "k")
		t.Logf("%d of 6000 passed with a fifth of the messages lost", w.total())
		w.demand(100, 60*time.Second, "k")
		w.requireNoneOver()
		require.GreaterOrEqual(t, w.total(), int64(11_000))
	})
}

// The owner of a key dies with all that it knows, and another takes its place.
func TestEscrowAnOwnerDies(t *testing.T) {
	inWorld(t, escrowLine, 3, func(w *world) {
		w.only(w.regions[0], 200, 12*time.Second, "k")
		owner, _ := w.directory.Load().Owner("a", names[partitionOf(string(storetest.Key("k", w.limit)))])
		w.nodes[owner.ID].kill()
		w.only(w.regions[0], 200, 2*time.Second, "k") // before others notice
		w.list()
		w.only(w.regions[0], 400, 20*time.Second, "k")
		w.requireNoneOver()
		require.GreaterOrEqual(t, w.total(), int64(5820))
	})
}

func TestEscrowClocksApart(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inWorld(t, escrowLine, 2, func(w *world) {
		w.regions[1].skew.Store(int64(5 * time.Second))
		w.regions[2].skew.Store(int64(-5 * time.Second))
		w.demand(60, 50*time.Second, "k")
		w.only(w.regions[1], 300, 70*time.Second, "k")
		w.requireNoneOver()
	})
}

// A store that loses everything lets its region spend nothing until the next window.
func TestEscrowAStoreLosesEverything(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inWorld(t, escrowLine, 2, func(w *world) {
		w.demand(70, 20*time.Second, "k") // 1,400 of 2,000 each
		w.flush(w.regions[0])
		passed := w.only(w.regions[0], 200, 30*time.Second, "k")
		require.Zero(t, passed, "its part may have been spent")
		require.Zero(t, w.only(w.regions[0], 100, time.Second, "another"), "or that of any other key")
		w.only(w.regions[1], 300, 6*time.Second, "k")
		w.requireNoneOver()
		w.wait(w.untilWindow())
		require.Positive(t, w.only(w.regions[0], 100, time.Second, "k"))
	})
}

// The first store that a region ever has may be spent from at once, however long the window
// has lasted.
func TestEscrowTheFirstWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "r fixed_window limit=900 window=24h escrow", limiter.PartitionShare, 1)
		require.False(t, w.ask(w.regions[0], "k"), "nobody has been asked")
		w.wait(time.Second)
		require.EqualValues(t, 900, w.only(w.regions[1], 1000, 1800*time.Millisecond, "k"))
		require.Len(t, w.passed, 1)
	})
}

// In longLine's windows a region may be silent for longer than the others wait for it.
const longLine = "r fixed_window limit=900 window=300s escrow"

// asksAll lets every region be asked for the whole limit at once, and returns what passed.
func (w *world) asksAll() (passed int64) {
	for range w.limit.Limit {
		for _, r := range w.regions {
			if w.ask(r, "k") {
				passed++
			}
		}
	}
	return passed
}

// A region that comes up long after the others began to ask leaves all of them without this
// window. It does not if no limit was in escrow before.
func TestEscrowARegionComesUpLater(t *testing.T) {
	if race {
		return // the others run the same code
	}
	for _, early := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, longLine, limiter.PartitionShare, 1)
			w.wait(w.untilWindow() + 20*time.Second)
			w.unneeded.Store(!early)
			for _, r := range w.regions { // the fleet begins in the midst of a window
				r.nodes[0].kill()
				w.flush(r)
			}
			w.regions[0].nodes[0].start()
			w.regions[1].nodes[0].start()
			w.wait(100 * time.Second)
			w.regions[2].nodes[0].start()
			w.unneeded.Store(false)
			w.wait(20 * time.Second)
			if early {
				require.Zero(t, w.asksAll())
				w.wait(w.untilWindow())
			}
			require.EqualValues(t, 900, w.asksAll())
			w.requireNoneOver()
		})
	}
}

// Stores that are empty look like those of a new fleet. Two regions lose theirs at the same
// time, and then the third, which alone knew, is built again while they cannot hear of it: as
// the stores have it, that is a fleet whose third region comes up later. So nobody may spend
// this window.
func TestEscrowAllStoresAreLostInTurn(t *testing.T) {
	if race {
		return // the others run the same code
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longLine, limiter.PartitionShare, 1)
		again := func(regions ...*region) {
			for _, r := range regions {
				r.nodes[0].kill()
				w.flush(r)
			}
			for _, r := range regions {
				r.nodes[0].start()
			}
		}
		w.wait(w.untilWindow())
		require.EqualValues(t, 900, w.asksAll())
		w.cutOff("c", true)
		again(w.regions[0], w.regions[1])
		w.wait(100 * time.Second)
		require.Zero(t, w.asksAll())
		again(w.regions[2])
		w.cutOff("c", false)
		w.wait(100 * time.Second)
		require.Zero(t, w.asksAll())
		w.requireNoneOver()
		w.wait(w.untilWindow())
		require.EqualValues(t, 900, w.asksAll())
	})
}

// Regions on opposite sides of the earth hold their parts: the counts that are always on the way
// between them keep no promise from them.
func TestEscrowFarApart(t *testing.T) {
	inWorld(t, "r fixed_window limit=900 window=10s escrow", 1, func(w *world) {
		w.farther.Store(4) // 400 to 1,100 ms there and back
		for i := range 12 {
			w.wait(w.untilWindow())
			for _, r := range w.regions {
				require.EqualValues(t, 1, r.nodes[0].exchange.Parts(), "window %d, region %s", i, r.name)
			}
			require.EqualValues(t, 900, w.asksAll())
		}
		w.requireNoneOver()
	})
}

// A region that is dead, or cut off for good, loses its part to its heir once its term has
// ended, and has it again after it is back.
func TestEscrowTheHeir(t *testing.T) {
	dies := func(w *world, gone bool) {
		for _, n := range w.regions[2].nodes {
			if gone {
				n.kill()
			} else {
				n.start()
			}
		}
	}
	for name, gone := range map[string]func(w *world, gone bool){
		"cut off": func(w *world, gone bool) { w.cutOff("c", gone) },
		"dead":    dies,
		"dead with its store": func(w *world, gone bool) {
			if !gone {
				w.flush(w.regions[2])
			}
			dies(w, gone)
		},
	} {
		if race && name != "cut off" {
			continue // the others run the same code
		}
		t.Run(name, func(t *testing.T) {
			inWorld(t, "r fixed_window limit=900 window=10s escrow", 1, func(w *world) {
				require.EqualValues(t, 1, w.regions[0].nodes[0].exchange.Parts())
				gone(w, true)
				w.wait(85 * time.Second)
				w.wait(w.untilWindow())
				require.EqualValues(t, 2, w.regions[0].nodes[0].exchange.Parts(), "its own, and that of c")
				require.EqualValues(t, 1, w.regions[1].nodes[0].exchange.Parts())
				before := w.total()
				for range 900 {
					w.ask(w.regions[0], "k")
					w.ask(w.regions[1], "k")
				}
				require.EqualValues(t, 900, w.total()-before, "nothing is missing")
				if name == "cut off" {
					require.False(t, w.ask(w.regions[2], "k"), "its term has ended")
				}
				gone(w, false)
				for range 10 {
					w.demand(100, 10*time.Second, "k")
				}
				require.EqualValues(t, 1, w.regions[0].nodes[0].exchange.Parts())
				require.EqualValues(t, 1, w.regions[2].nodes[0].exchange.Parts())
				w.requireNoneOver()
			})
		})
	}
}

// Whatever happens at random, no window exceeds the limit.
func TestEscrowInRandomWorlds(t *testing.T) {
	worlds := 9
	if race {
		worlds = 1
	}
	for seed := range worlds {
		line := fmt.Sprintf("r fixed_window limit=%d window=10s escrow", []int{1, 7, 100, 1000}[seed%4])
		if seed > 5 {
			line += " leased"
		}
		inWorld(t, line, 2, func(w *world) {
			random := rand.New(rand.NewPCG(uint64(seed), 18))
			for range 40 {
				r := w.regions[random.IntN(3)]
				switch random.IntN(5) {
				case 0:
					w.cutOff(r.name, true)
				case 1:
					w.cutOff(r.name, false)
				case 2:
					w.losing(random.Float64() / 2)
				case 3:
					if random.IntN(3) == 0 {
						w.flush(r)
					}
					r.skew.Store(int64(max(0, r.skew.Load()) + random.Int64N(int64(time.Second)))) // forward only
				}
				w.only(w.regions[random.IntN(3)], float64(50+random.IntN(200)), time.Duration(random.Int64N(int64(2*time.Second))), "k")
				w.demand(40, time.Duration(random.Int64N(int64(time.Second))), "j")
			}
			w.requireNoneOver()
		})
	}
}

// A region that hears of no other spends what it was promised, and then nothing.
func TestEscrowATermEnds(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inWorld(t, "r fixed_window limit=900 window=10s escrow", 2, func(w *world) {
		w.cutOff("a", true)
		w.cutOff("b", true)
		w.cutOff("c", true)
		w.wait(50 * time.Second)
		require.True(t, w.ask(w.regions[2], "k"))
		w.wait(30 * time.Second)
		for _, r := range w.regions {
			require.False(t, w.ask(r, "k"))
		}
		for _, name := range []string{"a", "b", "c"} {
			w.cutOff(name, false)
		}
		w.wait(15 * time.Second)
		require.True(t, w.ask(w.regions[2], "k"))
	})
}
