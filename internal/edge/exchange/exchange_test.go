package exchange

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

var lines = map[string]string{
	"fixed_window":   "r fixed_window limit=6000 window=60s",
	"sliding_window": "r sliding_window limit=6000 window=60s",
	"token_bucket":   "r token_bucket limit=6000 window=60s burst=6000",
	"leaky_bucket":   "r leaky_bucket limit=6000 window=60s burst=5999",
	"leased":         "r fixed_window limit=6000 window=60s leased",
}

// printed is the bound for three times the limit, as a part of it.
func (w *world) printed() float64 {
	return global.OvershootBounds(w.limit, 3, 3, global.UsualDelay).Ratio(w.limit).Demand
}

func TestSteadyDemand(t *testing.T) {
	for name, line := range lines {
		if race && name != "leased" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			inWorld(t, line, 2, func(w *world) {
				w.demand(100, 65*time.Second, "k")
				t.Logf("%.4f over, %.4f printed", w.over("k"), w.printed())
				require.LessOrEqual(t, w.over("k"), w.printed())
				require.LessOrEqual(t, w.over("k"), 0.03)
				total := int64(0)
				for _, n := range w.passed {
					total += n
				}
				require.GreaterOrEqual(t, total, int64(6000), "all of the limit is used")
			})
		})
	}
}

func TestMessagesLostAndDoubled(t *testing.T) {
	for _, name := range []string{"fixed_window", "token_bucket", "leased"} {
		if race && name != "leased" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			inWorld(t, lines[name], 2, func(w *world) {
				w.losing(0.2)
				w.demand(100, 30*time.Second, "k")
				t.Logf("%.4f over", w.over("k"))
				// A lost message goes again after a second.
				require.LessOrEqual(t, w.over("k"), global.OvershootBounds(w.limit, 3, 3, global.UsualDelay+2*time.Second).Ratio(w.limit).Demand)
			})
		})
	}
}

// Each region is within the limit while it is cut off, and the others with it, and all know
// of each other within two exchanges afterward.
func TestARegionIsCutOff(t *testing.T) {
	inWorld(t, lines["fixed_window"], 2, func(w *world) {
		w.demand(10, 5*time.Second, "k")
		w.cutOff("c", true)
		w.demand(10, 30*time.Second, "k")
		w.cutOff("c", false)
		w.wait(2 * time.Second) // calls that hang in the cut end, and one more exchange
		for _, r := range w.regions {
			w.requireLeft(r, 6000-3*350)
		}
	})
}

// remaining asks a region's store what is left.
func (w *world) remaining(r *region, key string) int64 {
	var d limiter.Decision
	check := limiter.Check{Limit: w.limit, Key: storetest.Key(key, w.limit), Cost: 1, Peek: true}
	require.NoError(w, r.store.Take(context.Background(), []limiter.Check{check}, &d))
	return d.Results[0].Remaining
}

// requireLeft holds what is left in a region to what should be: the region knows all but the
// shares that others keep to themselves, and charges nothing twice.
func (w *world) requireLeft(r *region, want int64) {
	w.Helper()
	left := w.remaining(r, "k")
	require.GreaterOrEqual(w, left, want, "region %s", r.name)
	require.LessOrEqual(w, left, want+2*global.Share(w.limit, 3), "region %s", r.name)
}

func TestOnPartition(t *testing.T) {
	for policy, want := range map[limiter.OnPartition]int64{limiter.PartitionShare: 2000, limiter.PartitionOpen: 6000, limiter.PartitionClosed: 0} {
		t.Run(policy.String(), func(t *testing.T) {
			inWorldOf(t, lines["fixed_window"], policy, 2, func(w *world) {
				w.cutOff("c", true)
				w.wait(20 * time.Second)
				c := w.regions[2]
				passed := int64(0)
				for range 7000 {
					if w.ask(c, "k") {
						passed++
					}
				}
				require.Equal(t, want, passed)
				w.cutOff("c", false)
				w.wait(3 * time.Second)
				for _, r := range w.regions {
					w.requireLeft(r, 6000-want)
				}
				if want < 6000 {
					require.True(t, w.ask(c, "k"), "it hears of others again")
				}
			})
		})
	}
}

// An owner's end, even with all that it knows, lets no more pass.
func TestAnOwnerDies(t *testing.T) {
	inWorld(t, lines["fixed_window"], 3, func(w *world) {
		w.demand(30, 10*time.Second, "k")
		owner, _ := w.directory.Load().Owner("a", names[partitionOf(string(storetest.Key("k", w.limit)))])
		w.nodes[owner.ID].kill()
		w.demand(30, 2*time.Second, "k") // before others notice
		w.list()
		w.demand(30, 10*time.Second, "k")
		w.wait(3 * time.Second)
		for _, r := range w.regions {
			w.requireLeft(r, 6000-3*30*22)
		}
		w.nodes[owner.ID].start()
		w.list()
		w.demand(100, 36*time.Second, "k")
		require.LessOrEqual(t, w.over("k"), 0.03)
	})
}

// An owner that others took for dead for a while is heard again, although another node
// began to speak for its region after it.
func TestAnOwnerReturns(t *testing.T) {
	inWorld(t, lines["fixed_window"], 2, func(w *world) {
		w.demand(30, 2*time.Second, "k")
		owner, _ := w.directory.Load().Owner("a", names[partitionOf(string(storetest.Key("k", w.limit)))])
		w.list(owner.ID)
		w.demand(30, 2*time.Second, "k")
		w.list()
		w.demand(30, 36*time.Second, "k") // longer than anybody keeps a partition that is not its own
		w.wait(2 * time.Second)
		for _, r := range w.regions {
			w.requireLeft(r, 6000-3*(30*40+4)) // demand begins and ends with a request
			for _, n := range r.nodes {
				for region, lag := range n.exchange.Lags() {
					require.Less(t, lag, 2*time.Second, "%s of %s", n.ID, region)
				}
			}
		}
	})
}

// A store that loses everything has all that other regions let pass charged again.
func TestAStoreLosesEverything(t *testing.T) {
	inWorld(t, lines["fixed_window"], 2, func(w *world) {
		w.demand(20, 10*time.Second, "k")
		w.flush(w.regions[0])
		w.demand(20, 10*time.Second, "k")
		w.wait(2 * time.Second)
		w.requireLeft(w.regions[0], 6000-1200+200) // all but what passed here before
		w.requireLeft(w.regions[1], 6000-1200)     // nothing is charged twice
	})
}

func TestClocksApart(t *testing.T) {
	inWorld(t, lines["fixed_window"], 2, func(w *world) {
		w.regions[1].skew.Store(int64(5 * time.Second))
		w.regions[2].skew.Store(int64(-5 * time.Second))
		w.demand(20, 30*time.Second, "k")
		w.wait(2 * time.Second)
		want := w.remaining(w.regions[0], "k")
		require.InDelta(t, want, w.remaining(w.regions[1], "k"), 2*float64(global.Share(w.limit, 3)))
		require.Less(t, want, int64(6000-2*600))
	})
}

func TestResetReachesAllRegions(t *testing.T) {
	inWorld(t, lines["sliding_window"], 2, func(w *world) {
		w.demand(20, 10*time.Second, "k")
		w.wait(time.Second)
		check := []limiter.Check{{Limit: w.limit, Key: storetest.Key("k", w.limit), Cost: 1}}
		n := w.regions[0].nodes[0]
		require.NoError(t, n.tallies.Reset(context.Background(), check))
		require.NoError(t, n.exchange.Reset(context.Background(), check))
		for _, r := range w.regions {
			require.EqualValues(t, 6000, w.remaining(r, "k"))
		}
		w.demand(20, 5*time.Second, "k")
		w.wait(time.Second)
		for _, r := range w.regions {
			w.requireLeft(r, 6000-300)
		}
		w.cutOff("b", true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorContains(t, n.exchange.Reset(ctx, check), "region b: lost")
	})
}

// Somebody who sends to all regions in the same instant gets no more than the worst case.
func TestAnAdversary(t *testing.T) {
	for _, name := range []string{"fixed_window", "token_bucket"} {
		if race && name != "fixed_window" {
			continue
		}
		inWorld(t, lines[name], 2, func(w *world) {
			for range 7000 {
				for _, r := range w.regions {
					w.ask(r, "k")
				}
			}
			w.wait(2 * time.Second)
			w.demand(100, 20*time.Second, "k")
			worst := global.OvershootBounds(w.limit, 3, 3, global.UsualDelay).Ratio(w.limit).Worst
			require.LessOrEqual(t, w.over("k"), worst)
		})
	}
}

// Nodes exchange only while some limit is shared, and the first request after a quiet time
// finds no region alone.
func TestExchangeOnlyForSharedLimits(t *testing.T) {
	inWorldOf(t, lines["fixed_window"], limiter.PartitionClosed, 1, func(w *world) {
		w.wait(time.Second)
		w.unneeded.Store(true)
		w.wait(time.Second) // the last exchange
		before := w.calls.Load()
		w.wait(time.Minute)
		require.Equal(t, before, w.calls.Load())
		w.unneeded.Store(false)
		w.wait(200 * time.Millisecond)
		require.Greater(t, w.calls.Load(), before)
		for _, r := range w.regions {
			require.True(t, w.ask(r, "k"))
		}
	})
}

// What was counted under a limit that is shared again is told again, and nobody is alone
// for what happened before.
func TestALimitIsSharedAgain(t *testing.T) {
	inWorldOf(t, lines["fixed_window"], limiter.PartitionClosed, 2, func(w *world) {
		a := w.regions[0]
		for range 2000 {
			require.True(t, w.ask(a, "k"))
		}
		w.cutOff("a", true)
		w.wait(12 * time.Second)
		require.False(t, w.ask(a, "k"), "it is alone")
		w.unneeded.Store(true)
		w.wait(time.Second)
		require.True(t, w.ask(a, "k"), "nobody is asked")
		w.cutOff("a", false)
		w.wait(35 * time.Second) // every node forgets what it knew
		w.unneeded.Store(false)
		w.wait(2 * time.Second)
		for _, r := range w.regions {
			w.requireLeft(r, 6000-2001)
		}
		w.unneeded.Store(true)
		w.wait(5 * time.Minute)
		for _, n := range a.nodes {
			require.Zero(t, n.tallies.Keys())
		}
	})
}

// Regions whose stores hang still hear of each other as soon as ever, and once the stores
// answer, all is charged.
func TestStoresHang(t *testing.T) {
	inWorld(t, lines["fixed_window"], 2, func(w *world) {
		w.demand(20, 5*time.Second, "k")
		hang := func(hung bool) {
			for _, r := range w.regions {
				r.store.hung.Store(hung)
			}
		}
		hang(true)
		for range 50 {
			w.demand(20, 100*time.Millisecond, "k")
			for _, n := range w.nodes {
				for from, lag := range n.exchange.Lags() {
					require.LessOrEqual(t, lag, time.Second/2, "of %s in %s", from, n.ID)
				}
			}
		}
		hang(false)
		w.wait(3 * time.Second)
		for _, r := range w.regions {
			w.requireLeft(r, 6000-3*200)
		}
	})
}

// A store that is lost after a node died in the same window hides as many units from the
// others as that node had let pass, and no more.
func TestAStoreIsLostAfterANodeDied(t *testing.T) {
	inWorld(t, lines["fixed_window"], 2, func(w *world) {
		a := w.regions[0]
		dying, staying := a.nodes[0], a.nodes[1]
		ask := func(n *node, times int) {
			var d limiter.Decision
			for range times {
				require.NoError(t, n.tallies.Take(context.Background(), []limiter.Check{{Limit: w.limit, Key: storetest.Key("k", w.limit), Cost: 1}}, &d))
				require.True(t, d.Allowed)
			}
		}
		ask(dying, 1000)
		ask(staying, 500)
		w.wait(2 * time.Second)
		dying.kill()
		w.list()
		w.flush(a)
		w.wait(time.Second)
		ask(staying, 2000)
		w.wait(3 * time.Second)
		for _, r := range w.regions[1:] {
			left := w.remaining(r, "k")
			require.GreaterOrEqual(t, left, int64(6000-3500))
			require.LessOrEqual(t, left, int64(6000-3500+1000)+2*global.Share(w.limit, 3), "region %s", r.name)
		}
	})
}
