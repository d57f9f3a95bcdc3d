package e2e

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/testenv"
)

// The clocks of Redis are set while a region's part goes to its heir and back: nodes stop and
// continue, and then die with their Redis. No window, by each region's own clock, passes more
// than the limit.
//
// It takes minutes, so it belongs to make soak.
func TestClocksAreSetWhileAPartChangesHands(t *testing.T) {
	if !soak() {
		return
	}
	t.Parallel()
	var clocks [3]*testenv.Clock
	for i := range clocks {
		clocks[i] = testenv.NewClock(t)
	}
	g := globeOf(t, clocks, func(int, int) string { return testenv.Program(t, "edge") })
	s := &setClocks{globe: g, client: client(), clocks: clocks, windows: map[int64]int{}}
	t.Cleanup(s.client.CloseIdleConnections)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 16))
	// attacks sets clocks and asks all regions at once, until done.
	attacks := func(what string, done func() bool) {
		eventually(g, 3*testenv.Patience, what, func() bool {
			if random.IntN(2) == 0 {
				s.set(random.IntN(3), time.Duration(random.IntN(11)-5)*time.Second)
			}
			s.asks(time.Duration(random.Int64N(int64(2*time.Second))), 0, 1, 2)
			<-time.After(time.Duration(random.Int64N(int64(5 * time.Second))))
			return done()
		})
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
	steady := func(regions ...int) bool { return s.asks(6*time.Second, regions...) >= len(regions)*globalLimit/6 }
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
	*globe
	client  *fasthttp.Client
	clocks  [3]*testenv.Clock
	latest  [3]time.Time // that a region's Redis has shown
	mu      sync.Mutex
	windows map[int64]int
	fullest int
}

// set sets a region's clock while no request is in flight.
func (s *setClocks) set(region int, ahead time.Duration) {
	if shown := time.Now().Add(s.ahead[region]); shown.After(s.latest[region]) {
		s.latest[region] = shown
	}
	s.clocks[region].Set(ahead)
	s.ahead[region] = ahead
	s.Logf("%s: the clock of Redis is %s ahead", s.names[region], ahead)
}

// asks lets clients ask these regions for so long, and returns how many requests passed. A request
// counts in a window if that is certain: a key that was counted in a later one stays there when the
// clock is set back.
func (s *setClocks) asks(length time.Duration, regions ...int) (passed int) {
	end := time.Now().Add(length)
	var all sync.WaitGroup
	for _, region := range regions {
		for _, n := range s.nodes[region] {
			all.Go(func() {
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for ; time.Now().Before(end); <-tick.C {
					sent := time.Now()
					passes := s.request(n.Public)
					latest := time.Now().Add(s.ahead[region])
					if s.latest[region].After(latest) {
						latest = s.latest[region]
					}
					if !passes {
						continue
					}
					window := windowOf(sent.Add(s.ahead[region]))
					s.mu.Lock()
					passed++
					if window == windowOf(latest) {
						s.windows[window]++
						s.fullest = max(s.fullest, s.windows[window])
					}
					s.mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	require.LessOrEqual(s, s.fullest, globalLimit, "passed in one window")
	return passed
}

// request reports whether one request passes.
func (s *setClocks) request(node string) bool {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + node + "/escrow")
	req.Header.Set("X-Forwarded-For", "203.0.113.10")
	err := s.client.DoTimeout(req, resp, 2*time.Second)
	return err == nil && resp.StatusCode() == http.StatusOK
}
