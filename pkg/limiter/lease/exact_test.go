package lease

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

func limitOf(t testing.TB, line string) *limiter.Limit {
	t.Helper()
	l, err := storetest.ParseLimit(strings.Fields(line))
	require.NoError(t, err)
	return l
}

func limit(t testing.TB, line string) *limiter.Limit {
	t.Helper()
	l := limitOf(t, line)
	l.Leased = true
	require.Empty(t, l.Validate())
	return l
}

// The algorithms that support leases, with placeholders for limit and window.
var lines = map[string]string{
	"fixed_window":   "r fixed_window limit=%d window=%s",
	"sliding_window": "r sliding_window limit=%d window=%s",
	"ring":           "r rolling_window limit=%d window=%s",
	"sorted_set":     "r rolling_window limit=%d window=%s storage=sorted_set",
	"token_bucket":   "r token_bucket limit=%d window=%s burst=%d",
}

func drawLimit(w *world, name string) *limiter.Limit {
	n, window := 20+w.random.Int64N(2000), []string{"10s", "10001ms", "13s", "30s"}[w.random.IntN(4)]
	if name == "token_bucket" {
		return limit(w, fmt.Sprintf(lines[name], n, window, max(2, n/50)+w.random.Int64N(n)))
	}
	return limit(w, fmt.Sprintf(lines[name], n, window))
}

// However many nodes lease a limit, and however they fail, no interval passes more than the
// algorithm promises.
func TestNeverOverTheLimit(t *testing.T) {
	seeds := 5
	switch {
	case os.Getenv("WEIR_SOAK") != "":
		seeds = 250
	case race:
		seeds = 1
	}
	for name := range lines {
		for _, nodes := range []int{1, 3, 20} {
			t.Run(fmt.Sprintf("%s/%d", name, nodes), func(t *testing.T) {
				var leased, all int
				for seed := range seeds {
					inWorld(t, nodes, uint64(seed), func(t *testing.T, w *world) {
						l := drawLimit(w, name)
						spent := w.disturbed(l)
						for key, log := range w.passed {
							all += len(log)
							if key == string(storetest.Key("a", l)) {
								require.Empty(t, storetest.Replay(l, log), "seed %d: %+v", seed, l)
							}
						}
						leased += spent
					})
				}
				t.Logf("%d of %d units were spent of leases", leased, all)
				if nodes < 20 {
					require.Positive(t, leased, "nothing was leased")
				}
			})
		}
	}
}

// disturbed runs a world for a few windows in which nodes pause, die, stop, are suspended or
// cut off, clocks are set, calls and answers are lost, and other limits refuse requests. It
// returns how many units were spent from leases.
func (w *world) disturbed(l *limiter.Limit) (leased int) {
	other := &limiter.Limit{Rule: "other", Algorithm: limiter.FixedWindow, Limit: l.Limit / 3, Window: 7 * time.Second}
	length := 3 * l.Window
	rate := float64(l.Limit) / l.Window.Seconds() * []float64{0.5, 1, 3, 10}[w.random.IntN(4)]
	steady := w.random.IntN(2) == 0
	var group sync.WaitGroup
	for i, n := range w.nodes {
		share := rate / float64(len(w.nodes)) * 2 * w.random.Float64()
		if i <= len(w.nodes)/5 {
			share = rate // some nodes are hot
		}
		if !steady {
			n.loss = w.random.Float64() / 5
		}
		lives := length
		if w.random.IntN(4) == 0 {
			lives = time.Duration(w.random.Int64N(int64(length)))
		}
		dies := w.random.IntN(2) == 0
		burst := w.random.IntN(3) == 0
		group.Go(func() {
			checks := func() []limiter.Check {
				list := []limiter.Check{check(l, 1)}
				if w.draw() < 0.1 {
					list[0].Cost = 1 + int64(w.draw()*4)
				}
				if w.draw() < 0.1 {
					list = append(list, check(other, 1))
				}
				return list
			}
			for end := time.Now().Add(lives); time.Now().Before(end); {
				part := min(time.Duration(w.draw()*float64(l.Window)), time.Until(end))
				if burst && w.draw() < 0.5 {
					sleep(part) // a client with bursts
				} else {
					n.drive(share, part, checks)
				}
			}
			if dies {
				n.set(func() { n.cut = time.Now().Add(length) })
			}
			n.lease.Close()
		})
		if steady {
			continue
		}
		group.Go(func() {
			for end := time.Now().Add(length); time.Now().Before(end); {
				sleep(2*sweepEvery + time.Duration(w.draw()*float64(l.Window)))
				long := time.Duration(w.draw() * float64(10*time.Second))
				switch w.random.IntN(8) {
				case 0:
					w.suspend(n, long)
				case 1: // its clock is set
					n.wall.Add(int64(4*long) - int64(20*time.Second))
				case 2, 3, 4:
					n.set(func() { n.paused = time.Now().Add(long) })
				default:
					n.set(func() { n.cut = time.Now().Add(long) })
				}
			}
		})
	}
	group.Wait()
	for _, n := range w.nodes {
		for _, u := range n.lease.Usages() {
			leased += int(u.Spent)
			require.Equal(w, u.Granted, u.Spent+u.Returned+u.Stranded+u.Held, "the books balance")
			require.GreaterOrEqual(w, u.Spent, int64(0))
		}
	}
	return leased
}
