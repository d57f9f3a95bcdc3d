package across

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

const loanLine = "r token_bucket limit=6000 window=60s burst=3000 escrow"

// pass notes what passed in the plain model: one bucket in one place.
func (w *world) pass(key string) {
	if w.buckets == nil {
		w.buckets = map[string]*storetest.WholeBucket{}
	}
	if w.buckets[key] == nil {
		w.buckets[key] = storetest.NewWholeBucket(w.limit)
	}
	w.exceeded = max(w.exceeded, w.buckets[key].Pass(time.Now().UnixMicro(), 1))
}

// requireBucket holds every interval to the burst and what refills.
func (w *world) requireBucket() {
	w.Helper()
	require.Zero(w, w.exceeded, "tokens beyond the burst")
}

// most is what may pass in a time that begins with a full bucket.
func (w *world) most(d time.Duration) int64 {
	return w.limit.Burst + int64(float64(w.limit.Limit)*d.Seconds()/w.limit.Window.Seconds())
}

func inBucketWorld(t *testing.T, line string, nodes int, test func(w *world)) {
	t.Helper()
	inWorld(t, line, nodes, func(w *world) {
		w.wait(time.Second)
		test(w)
		w.requireBucket()
	})
}

func TestLoansSteadyDemand(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inBucketWorld(t, loanLine, 2, func(w *world) {
		w.demand(100, time.Minute, "k")
		t.Logf("%d of %d passed", w.total(), w.most(time.Minute))
		require.GreaterOrEqual(t, w.total(), w.most(time.Minute)*97/100)
	})
}

// Regions that are asked for little lend to one that is asked for much.
func TestLoansFollowDemand(t *testing.T) {
	for _, burst := range []int{3000, 100, 30} {
		if race && burst != 100 {
			continue // the others run the same code
		}
		inBucketWorld(t, fmt.Sprintf("r token_bucket limit=6000 window=60s burst=%d escrow", burst), 2, func(w *world) {
			passed := w.only(w.regions[0], 300, 30*time.Second, "k")
			t.Logf("burst %d: %d of %d passed in one region", burst, passed, w.most(30*time.Second))
			if burst >= 100 {
				require.GreaterOrEqual(t, passed, w.most(30*time.Second)*90/100)
			}
		})
	}
}

// Clients that move wholly to another region find there nearly all that is not spent.
func TestLoansDemandMoves(t *testing.T) {
	inBucketWorld(t, "r token_bucket limit=600 window=60s burst=6000 escrow", 2, func(w *world) {
		before := w.only(w.regions[0], 150, 20*time.Second, "k")
		require.Greater(t, before, int64(2900))
		unspent, began := 6200-before, time.Now()
		passed := int64(0)
		for passed < unspent*95/100 && time.Since(began) < 30*time.Second {
			passed += w.only(w.regions[2], 2000, 100*time.Millisecond, "k")
		}
		t.Logf("95 %% of %d unspent were available within %s", unspent, time.Since(began))
		require.LessOrEqual(t, time.Since(began), 3*time.Second)
	})
}

func TestLoansAnAdversary(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inBucketWorld(t, "r token_bucket limit=60 window=60s burst=900 escrow", 2, func(w *world) {
		require.EqualValues(t, 900, w.asksAllOf(900), "in the same instant")
		for range 40 {
			w.mu.Lock() // messages between regions draw, too
			pause := w.random.Int64N(int64(2 * time.Second))
			w.mu.Unlock()
			w.wait(time.Duration(pause))
			w.asksAllOf(50)
		}
	})
}

// asksAllOf lets every region be asked so often at once, and returns what passed.
func (w *world) asksAllOf(times int) (passed int64) {
	for range times {
		for _, r := range w.regions {
			if w.ask(r, "k") {
				passed++
			}
		}
	}
	return passed
}

// A request may cost more than a region's part, and a burst may have fewer tokens than there
// are regions.
func TestLoansOfFewTokens(t *testing.T) {
	for _, burst := range []int{1, 2, 4} {
		if race && burst != 2 {
			continue // the others run the same code
		}
		inBucketWorld(t, fmt.Sprintf("r token_bucket limit=60 window=60s burst=%d escrow", burst), 1, func(w *world) {
			for _, r := range w.regions {
				passed := w.only(r, 20, 30*time.Second, "k")
				t.Logf("burst %d: %d of 30 passed in region %s", burst, passed, r.name)
				require.Greater(t, passed, int64(12))
			}
		})
	}
}

func TestLoansARegionIsCutOff(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inBucketWorld(t, loanLine, 2, func(w *world) {
		w.only(w.regions[2], 150, 20*time.Second, "k")
		w.cutOff("c", true)
		before := w.total()
		w.demand(200, 30*time.Second, "k")
		t.Logf("%d passed in 30s while one of three regions was cut off", w.total()-before)
		require.GreaterOrEqual(t, w.total()-before, int64(2900), "all three refill")
		w.cutOff("c", false)
		w.demand(200, 65*time.Second, "k")
	})
}

func TestLoansMessagesLostAndDoubled(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inBucketWorld(t, loanLine, 2, func(w *world) {
		w.losing(0.2)
		w.only(w.regions[1], 300, time.Minute, "k")
		t.Logf("%d of %d passed with a fifth of the messages lost", w.total(), w.most(time.Minute))
		require.GreaterOrEqual(t, w.total(), w.most(time.Minute)*85/100)
		w.demand(100, 30*time.Second, "k")
	})
}

func TestLoansAnOwnerDies(t *testing.T) {
	inBucketWorld(t, loanLine, 3, func(w *world) {
		w.only(w.regions[0], 200, 12*time.Second, "k")
		owner, _ := w.directory.Load().Owner("a", names[partitionOf(string(storetest.Key("k", w.limit)))])
		w.nodes[owner.ID].kill()
		w.only(w.regions[0], 200, 2*time.Second, "k") // before others notice
		w.list()
		passed := w.only(w.regions[0], 400, 20*time.Second, "k")
		require.GreaterOrEqual(t, passed, int64(1800))
	})
}

func TestLoansClocksApart(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inBucketWorld(t, loanLine, 2, func(w *world) {
		w.regions[1].skew.Store(int64(5 * time.Second))
		w.regions[2].skew.Store(int64(-5 * time.Second))
		w.buckets = nil
		w.wait(2 * time.Minute)
		w.exceeded = 0
		w.demand(60, 50*time.Second, "k")
		require.GreaterOrEqual(t, w.only(w.regions[1], 300, 70*time.Second, "k"), int64(6500))
	})
}

// A store that loses everything begins with empty buckets.
func TestLoansAStoreLosesEverything(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inBucketWorld(t, loanLine, 2, func(w *world) {
		w.demand(70, 20*time.Second, "k")
		w.flush(w.regions[0])
		w.only(w.regions[0], 200, 30*time.Second, "k")
		require.Positive(t, w.only(w.regions[0], 200, 30*time.Second, "k"))
		w.only(w.regions[1], 300, 6*time.Second, "k")
	})
}

// A region that is dead, or cut off for good, loses its part to its heir, who begins with what
// refills, and has it again after it is back.
func TestLoansTheHeir(t *testing.T) {
	for name, gone := range map[string]func(w *world, gone bool){
		"cut off": func(w *world, gone bool) { w.cutOff("c", gone) },
		"dead with its store": func(w *world, gone bool) {
			for _, n := range w.regions[2].nodes {
				if gone {
					n.kill()
				}
			}
			if !gone {
				w.flush(w.regions[2])
				for _, n := range w.regions[2].nodes {
					n.start()
				}
			}
		},
	} {
		if race && name != "cut off" {
			continue // the others run the same code
		}
		t.Run(name, func(t *testing.T) {
			inBucketWorld(t, "r token_bucket limit=900 window=60s burst=300 escrow", 1, func(w *world) {
				w.demand(20, 5*time.Second, "k")
				gone(w, true)
				demand := func(of []*region, length time.Duration) int64 {
					before := w.total()
					for end := time.Now().Add(length); time.Now().Before(end); w.wait(50 * time.Millisecond) {
						for _, r := range of {
							w.ask(r, "k")
						}
					}
					return w.total() - before
				}
				living := w.regions[:2]
				if name == "cut off" {
					living = w.regions // it spends until its term ends
				}
				demand(living, 110*time.Second)
				passed := demand(living, 30*time.Second)
				t.Logf("%d of 450 passed in 30s after the heir took over", passed)
				require.GreaterOrEqual(t, passed, int64(420))
				if name == "cut off" {
					require.False(t, w.ask(w.regions[2], "k"), "its term has ended")
				}
				gone(w, false)
				demand(w.regions, 110*time.Second)
				passed = demand(w.regions, 30*time.Second)
				require.GreaterOrEqual(t, passed, int64(420))
				for _, r := range w.regions {
					require.EqualValues(t, 1, r.nodes[0].exchange.Parts())
				}
			})
		})
	}
}

// Many keys that run short at once are asked for a part at a time, and what is not asked for now
// does not wait longer for that.
func TestLoansOfManyKeys(t *testing.T) {
	if race {
		return // the others run the same code
	}
	inBucketWorld(t, loanLine, 1, func(w *world) {
		x := w.regions[0].nodes[0].exchange
		var list []global.Claim
		for i := range 12_000 {
			list = append(list, global.Claim{Key: string(storetest.Key(fmt.Sprint(i), w.limit)), Units: 10})
		}
		x.short(list)
		now, asked := x.config.Clock(), 0
		x.askForRights(context.Background(), []string{"a", "b", "c"})
		for p := range x.holdings {
			h := &x.holdings[p]
			h.mu.Lock()
			for _, k := range h.keys {
				if k.asked == now {
					asked++
				}
			}
			h.mu.Unlock()
		}
		require.Equal(t, global.MaxBatch/2, asked, "each of two other regions")
	})
}

// More than the whole burst is nobody's to lend, whatever a region says.
func TestLoansThatNobodyHas(t *testing.T) {
	inBucketWorld(t, loanLine, 1, func(w *world) {
		x, key := w.regions[0].nodes[0].exchange, storetest.Key("k", w.limit)
		part := x.part(w.limit, string(key), x.config.Wall())
		left := func(step limiter.Step) limiter.Move {
			list := []limiter.Move{{Limit: part, Key: key, Region: "b", Loan: limiter.Loan{Step: step}}}
			x.move(context.Background(), list)
			require.NoError(t, list[0].Err)
			return list[0]
		}
		ask := left(limiter.LoanAsk)
		claim := global.Claim{Key: string(key), Start: ask.Asked, ID: ask.ID}
		for _, units := range []int64{1 << 53, w.limit.Burst + 1} {
			claim.Units = units
			x.receiveTokens(context.Background(), "b", []global.Claim{claim})
			require.Equal(t, ask.Left, left(limiter.LoanLook).Left)
		}
		claim.Units = 7
		x.receiveTokens(context.Background(), "b", []global.Claim{claim})
		require.Equal(t, ask.Left+7, left(limiter.LoanLook).Left)
	})
}

// Whatever happens at random, no interval exceeds the burst and what refills.
func TestLoansInRandomWorlds(t *testing.T) {
	worlds := 8
	if race {
		worlds = 1
	}
	for seed := range worlds {
		line := fmt.Sprintf("r token_bucket limit=%d window=10s burst=%d escrow", []int{1, 7, 100, 1000}[seed%4], []int{1, 30, 100, 3000}[(seed+seed/4)%4])
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 18))
			w := newWorld(t, line, limiter.PartitionShare, 2)
			for _, r := range w.regions { // set once: in the time by which a clock is moved a bucket refills
				r.skew.Store(random.Int64N(int64(10*time.Second)) - int64(5*time.Second))
			}
			w.wait(30 * time.Second)
			w.buckets, w.exceeded = nil, math.Inf(-1)
			for range 40 {
				r := w.regions[random.IntN(3)]
				switch random.IntN(6) {
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
				case 4:
					w.wait(time.Duration(random.Int64N(int64(20 * time.Second))))
					w.asksAllOf(int(min(1000, w.limit.Burst)))
				}
				w.only(w.regions[random.IntN(3)], float64(50+random.IntN(200)), time.Duration(random.Int64N(int64(2*time.Second))), "k")
				w.demand(40, time.Duration(random.Int64N(int64(time.Second))), "j")
			}
			require.LessOrEqual(t, w.exceeded, 0.0)
		})
	}
}
