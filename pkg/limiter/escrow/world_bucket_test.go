package escrow

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// brokenLoans are deliberate faults of buckets.
type brokenLoans struct {
	generous bool // a giver's store takes nothing
	unheld   bool // ... or immediately forgets what it lent
	roomless bool // a receiver says that everything had room
	late     bool // ... and takes late loans
	doubles  bool // ... each time
	past     bool // a region lends what it no longer holds
}

// newBucketWorld returns a world that divides a bucket.
func newBucketWorld(seed uint64) *world {
	w := newEscrowWorld(seed)
	l, err := storetest.ParseLimit(strings.Fields(fmt.Sprintf("r token_bucket limit=%d window=%ds burst=%d escrow",
		1+w.random.IntN(60), []int{1, 5, 30, 120}[w.random.IntN(4)], 1+w.random.IntN(60))))
	if err != nil {
		panic(err)
	}
	w.usual = 5 + w.random.IntN(50)
	w.limit, w.bucket = l, storetest.NewWholeBucket(l)
	return w
}

// share lets clients of a smaller tier spend from the same window, or spend and refill the same
// bucket.
func (w *world) share() {
	line := fmt.Sprintf("r %s limit=%d window=%s escrow", w.limit.Algorithm, 1+w.random.Int64N(w.limit.Limit), w.limit.Window)
	if w.bucket != nil {
		line += fmt.Sprintf(" burst=%d", 1+w.random.Int64N(w.limit.Burst))
	}
	small, err := storetest.ParseLimit(strings.Fields(line))
	if err != nil {
		panic(err)
	}
	w.tiers = []*limiter.Limit{w.limit, small}
	for _, l := range w.tiers {
		l.Shared, l.Slowest, l.Largest = true, small.Limit, w.limit.Burst
	}
}

// tier returns the limit of the client that asks now.
func (w *world) tier() *limiter.Limit {
	if w.tiers == nil {
		return w.limit
	}
	return w.tiers[w.random.IntN(len(w.tiers))]
}

// flood asks all regions at once for twice the limit. Like ask, it returns false if too much
// has passed.
func (w *world) flood() bool {
	for range 2 { // again, for units that others lent in between
		for _, r := range w.regions {
			if w.now >= r.dead && !w.ask(r, 2*int(w.limit.MaxCost())) {
				return false
			}
		}
		if w.bucket == nil {
			break
		}
		w.step(200 * time.Millisecond)
	}
	return true
}

// rests lets buckets fill occasionally.
func (w *world) rests() bool {
	if w.bucket != nil && w.now > w.quiet+time.Minute && w.random.IntN(20) == 0 {
		w.quiet = w.now + time.Duration(w.random.Int64N(int64(time.Minute)))
	}
	return w.now < w.quiet
}

// lend makes a region ask another for tokens.
func (w *world) lend(to, from *worldRegion) {
	b := w.loans
	if w.now < w.quiet {
		return
	}
	ask, ok := w.lent(to, limiter.Move{Region: from.name, Loan: limiter.Loan{Step: limiter.LoanAsk}})
	if !ok {
		return
	}
	if b.roomless {
		ask.Closed = ask.Known
	}
	upto, keep := ask.Known+w.random.Int64N(2*w.limit.Burst), w.random.Int64N(3)
	w.send(to.number, from.number, func() {
		gave, ok := w.lent(from, limiter.Move{Region: to.name, Upto: upto, Keep: keep, Loan: limiter.Loan{Step: limiter.LoanGive, ID: ask.ID, Closed: ask.Closed}})
		if !ok || !b.past && !from.checks.Holds(gave.Limit, gave.Key, gave.At) {
			return
		}
		if b.generous {
			gave.Gave = max(gave.Gave, upto)
		}
		if b.unheld {
			w.lent(from, limiter.Move{Region: to.name, Loan: limiter.Loan{Step: limiter.LoanGive, ID: ask.ID, Closed: gave.Gave}})
		}
		w.send(from.number, to.number, func() {
			take := limiter.Move{Region: from.name, Got: gave.Gave, Loan: limiter.Loan{Step: limiter.LoanTake, ID: ask.ID, Asked: ask.Asked, Closed: gave.Closed}}
			if b.late {
				take.Asked = w.wall(to)
			}
			if b.doubles {
				known, _ := w.lent(to, limiter.Move{Region: from.name})
				take.Got += known.Known
			}
			w.lent(to, take)
		})
	})
}

func (w *world) lent(r *worldRegion, m limiter.Move) (limiter.Move, bool) {
	m.Key = storetest.Key("k", w.limit)
	if m.Limit = r.checks.At(w.tier(), m.Key, w.wall(r)); m.Limit == nil {
		return m, false
	}
	one := []limiter.Move{m}
	r.store.Move(context.Background(), one)
	return one[0], true
}

// Under random events, no interval passes more than the burst and the refill.
func TestRandomWorldsOfBuckets(t *testing.T) {
	runBucketWorlds(t, 150, 100, func(*world) {})
}

// Nor if tiers share a bucket: than the burst of the largest, and what refills at its rate.
func TestRandomWorldsOfTiersOfABucket(t *testing.T) {
	runBucketWorlds(t, 100, 50, (*world).share)
}

// Tiers that share a window never pass more than the limit of the largest.
func TestRandomWorldsOfTiers(t *testing.T) {
	worlds := 100
	if os.Getenv("WEIR_SOAK") == "1" {
		worlds = 10_000
	}
	for seed := range worlds {
		w := newEscrowWorld(uint64(seed))
		w.share()
		require.True(t, w.run(600), "seed %d: %d regions, %d and %d in %s: %v", seed, len(w.regions), w.limit.Limit, w.tiers[1].Limit, w.limit.Window, w.passed)
	}
}

// runBucketWorlds runs so many worlds, in each of which that much passes on average; make soak
// runs 10,000.
func runBucketWorlds(t *testing.T, worlds int, least int64, prepare func(w *world)) {
	if os.Getenv("WEIR_SOAK") == "1" {
		worlds = 10_000
	}
	total := int64(0)
	for seed := range worlds {
		w := newBucketWorld(uint64(seed))
		prepare(w)
		require.True(t, w.run(600), "seed %d: %d regions, %d in %s, burst %d: over at %s", seed, len(w.regions), w.limit.Limit, w.limit.Window, w.limit.Burst, w.now)
		total += w.passed[0]
	}
	t.Logf("%d passed in %d worlds", total, worlds)
	require.Greater(t, total, least*int64(worlds), "worlds in which something passes")
}

// Each of these faults makes some world pass more.
func TestBrokenWorldsOfBucketsAreCaught(t *testing.T) {
	for name, set := range map[string]func(w *world){
		"what is given is not charged first": func(w *world) { w.loans.generous = true },
		"what is out is not held":            func(w *world) { w.loans.unheld = true },
		"what has no room is kept":           func(w *world) { w.loans.roomless = true },
		"what was given long ago is taken":   func(w *world) { w.loans.late = true },
		"what arrives twice counts twice":    func(w *world) { w.loans.doubles = true },
		"a minority promises":                func(w *world) { w.broken.minority = true },
		"a store forgets what was spent":     func(w *world) { w.broken.reopens = true },
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range 10_000 {
				w := newBucketWorld(uint64(seed))
				if set(w); !w.run(600) {
					t.Logf("world %d", seed)
					return
				}
			}
			t.Error("no world noticed")
		})
	}
}
