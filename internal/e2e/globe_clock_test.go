package e2e

import (
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// The clocks of Redis are set while a region's part goes to its heir and back: nodes stop and
// continue, and then die with their Redis. No window, by each region's own clock, passes more
// than the limit, and no interval more than the bucket, except what a clock that is set forward
// refills.
//
// It takes minutes, so it belongs to make soak.
func TestClocksAreSetWhileAPartChangesHands(t *testing.T) {
	if !soak() {
		return
	}
	t.Parallel()
	const rate, burst = 20, 300
	var clocks [3]*testenv.Clock
	for i := range clocks {
		clocks[i] = testenv.NewClock(t)
	}
	g := globeUnder(t, globalRules+bucketRules(rate, burst)[len("\nrules:\n"):], clocks, func(int, int) string { return testenv.Program(t, "edge") })
	s := &setClocks{flood: g.flood("203.0.113.10", 10), clocks: clocks, rate: rate, windows: map[int64]int{}}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 16))
	// attacks sets clocks and asks all regions at once, until done.
	attacks := func(what string, done func() bool) {
		eventually(g, 3*testenv.Patience, what, func() bool {
			if random.IntN(2) == 0 {
				s.set(random.IntN(3), time.Duration(random.IntN(11)-5)*time.Second)
			}
			s.asksWindows(time.Duration(random.Int64N(int64(2 * time.Second))))
			s.rests(time.Duration(random.Int64N(int64(5 * time.Second))))
			s.asks(time.Duration(random.Int64N(int64(time.Second))), 0, 1, 2)
			return done()
		})
		s.never(rate, burst)
		t.Logf("%s; the fullest of %d windows passed %d of %d", what, len(s.windows), s.fullest, globalLimit)
	}
	parts := func(most float64, regions ...int) bool {
		for _, region := range regions {
			m, err := scrape(g.nodes[region][0].Admin, "weir_global_parts")
			if err != nil || m["weir_global_parts"] != most {
				return false
			}
		}
		return true
	}
	steady := func(regions ...int) bool { return s.asks(5*time.Second, regions...) >= 3*rate }
	attacks("every region has its part", func() bool { return parts(1, 0, 1, 2) && steady(0, 1, 2) })
	for _, sig := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		for _, n := range g.nodes[2] {
			require.NoError(t, n.Signal(sig))
		}
		if sig == syscall.SIGSTOP {
			attacks("its heir has its part", func() bool { return parts(2, 0) && steady(0, 1) })
		} else {
			attacks("it has its part again", func() bool { return parts(1, 0, 1, 2) && steady(2) })
		}
	}
	for _, n := range g.nodes[2] {
		n.Kill()
	}
	g.redis[2].Kill()
	attacks("its heir has its part again", func() bool { return parts(2, 0) && steady(0, 1) })
	g.redis[2].Start()
	for _, n := range g.nodes[2] {
		n.Start()
		n.WaitReady()
	}
	attacks("it has its part in the end", func() bool { return parts(1, 0, 1, 2) && steady(2) })
	require.Greater(t, s.fullest, globalLimit/2, "windows are used")
}

// setClocks is clients of regions whose Redis clocks are set, and what passed by those clocks.
type setClocks struct {
	*flood
	clocks  [3]*testenv.Clock
	rate    float64
	latest  [3]time.Time // that a region's Redis has shown
	mu      sync.Mutex
	windows map[int64]int
	fullest int
}

// set sets a region's clock while no request is in flight.
func (s *setClocks) set(region int, ahead time.Duration) {
	now, before := time.Now(), s.ahead[region]
	if shown := now.Add(before); shown.After(s.latest[region]) {
		s.latest[region] = shown
	}
	s.clocks[region].Set(ahead)
	s.ahead[region] = ahead
	s.Logf("%s: the clock of Redis is %s ahead", s.names[region], ahead)
	if more := ahead - before; more > 0 {
		part := s.rate / 3
		if region == 0 {
			part *= 2 // it may hold two
		}
		s.gains = append(s.gains, gain{now, part * more.Seconds()})
	}
}

// asksWindows lets clients ask all regions for the limit with windows for so long. A request
// counts if its window is certain: a key that was counted in a later one stays there when the
// clock is set back.
func (s *setClocks) asksWindows(length time.Duration) {
	end := time.Now().Add(length)
	var all sync.WaitGroup
	for region, nodes := range s.nodes {
		for _, n := range nodes {
			all.Go(func() {
				tick := time.NewTicker(s.every)
				defer tick.Stop()
				for ; time.Now().Before(end); <-tick.C {
					p, passes := s.request(n.Public, "/escrow")
					latest := p.answered.Add(s.ahead[region])
					if s.latest[region].After(latest) {
						latest = s.latest[region]
					}
					window := windowOf(p.sent.Add(s.ahead[region]))
					if !passes || window != windowOf(latest) {
						continue
					}
					s.mu.Lock()
					s.windows[window]++
					passed := s.windows[window]
					s.fullest = max(s.fullest, passed)
					s.mu.Unlock()
					if passed > globalLimit {
						s.Errorf("%d passed in window %d", passed, window)
					}
				}
			})
		}
	}
	all.Wait()
}
