package e2e

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/testenv"
)

// A bucket in escrow passes in no interval, in all regions together, more than its burst and
// what refills: while clients ask all regions, move from one to the next, ask all in one
// instant, and while connections between regions are reset.
func TestRegionsShareABucket(t *testing.T) {
	t.Parallel()
	const rate, burst = 100, 250
	newBucketGlobe(t, rate, burst).flood("203.0.113.6", 5).shares(rate, burst)
}

// Nodes of this and an earlier release lend each other tokens, within and across regions. make
// compat names the release in WEIR_BEFORE_LOANS.
func TestTwoReleasesShareABucket(t *testing.T) {
	before := os.Getenv("WEIR_BEFORE_LOANS")
	if before == "" {
		return
	}
	t.Parallel()
	const rate, burst = 100, 250
	now, old := testenv.Program(t, "edge"), testenv.ProgramOf(t, before, "edge")
	programs := [3][2]string{{now, old}, {old, old}, {now, now}}
	g := globeUnder(t, bucketRules(rate, burst), [3]*testenv.Clock{}, func(region, node int) string { return programs[region][node] })
	g.flood("203.0.113.9", 5).shares(rate, burst)
}

// shares lets clients ask all regions, one after the other, and all at once while connections are
// reset.
func (f *flood) shares(rate float64, burst int64) {
	f.Helper()
	// What refills is used, in the end: on a busy machine tokens may move too late.
	uses := func(what string, part float64, length time.Duration, regions ...int) {
		f.eventually(what, func() bool {
			passed := f.asks(length, regions...)
			f.Logf("%s: %d passed in %s, of %.0f that refill", what, passed, length, rate*length.Seconds())
			return float64(passed) >= part*rate*length.Seconds()
		})
	}
	uses("all regions", 0.9, 4*time.Second, 0, 1, 2)
	f.isAsFast("/alone", "/divided")
	for region := range f.nodes {
		uses(f.names[region], 0.8, 2*time.Second, region)
	}
	stop := f.resets()
	uses("connections are reset", 0.5, 3*time.Second, 0, 1, 2)
	stop()
	for range 3 {
		f.rests(3 * time.Second) // to fill
		f.asks(time.Second, 0, 1, 2)
	}
	f.never(rate, burst)
}

// The same while processes are killed, paused and restarted, regions are cut off,
// stores lose everything and the rule changes, at random.
//
// It takes minutes, so it belongs to make soak.
func TestABucketIsAttacked(t *testing.T) {
	if !soak() {
		return
	}
	t.Parallel()
	const rate, burst = 20, 300
	g := newBucketGlobe(t, rate, burst)
	f := g.flood("203.0.113.7", 10)
	g.eventually("every region lets requests pass", func() bool {
		return f.asks(100*time.Millisecond, 0) > 0 && f.asks(100*time.Millisecond, 1) > 0 && f.asks(100*time.Millisecond, 2) > 0
	})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 16))
	for end := time.Now().Add(4 * time.Minute); time.Now().Before(end); {
		var breaks sync.WaitGroup
		breaks.Go(func() {
			g.breaks(random.IntN(8), random.IntN(3), random.IntN(2), time.Duration(random.Int64N(int64(5*time.Second))))
		})
		for range 3 {
			f.rests(time.Duration(random.Int64N(int64(3 * time.Second))))
			f.asks(time.Duration(random.Int64N(int64(time.Second))), random.Perm(3)[:1+random.IntN(3)]...)
		}
		breaks.Wait()
		f.never(rate, burst)
	}
	g.eventually("all regions let requests pass again", func() bool { return f.asks(4*time.Second, 0, 1, 2) >= 3*rate })
	f.never(rate, burst)
}

// A region's nodes stop for longer than its term, and continue as if nothing had happened. Its
// heir has its part meanwhile. Then the region dies with its Redis, and returns. The clocks of
// the regions' Redis are 14 s apart.
//
// It takes minutes, so it belongs to make soak.
func TestAPartOfABucketChangesHands(t *testing.T) {
	if !soak() {
		return
	}
	t.Parallel()
	const rate, burst = 20, 300
	var clocks [3]*testenv.Clock // nearly as far apart as the bound allows
	for i := range clocks {
		clocks[i] = testenv.NewClock(t)
		clocks[i].Set(time.Duration(7-7*i) * time.Second)
	}
	g := globeUnder(t, bucketRules(rate, burst), clocks, func(int, int) string { return testenv.Program(t, "edge") })
	f := g.flood("203.0.113.8", 10)
	random := rand.New(rand.NewPCG(16, 16))
	// attacks lets buckets fill, and asks all regions at once, until done.
	attacks := func(what string, done func() bool) {
		eventually(g, 2*testenv.Patience, what, func() bool {
			f.rests(time.Duration(random.Int64N(int64(8 * time.Second))))
			f.asks(time.Duration(random.Int64N(int64(2*time.Second))), 0, 1, 2)
			f.never(rate, burst)
			return done()
		})
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
	steady := func() bool { return f.asks(10*time.Second, 0, 1) >= 9*rate }
	attacks("every region has its part", func() bool { return parts(1, 0, 1, 2) && steady() })
	signal := func(sig syscall.Signal) {
		for _, n := range g.nodes[2] {
			require.NoError(t, n.Signal(sig))
		}
	}
	signal(syscall.SIGSTOP)
	attacks("its heir has its part", func() bool { return parts(2, 0) && steady() })
	signal(syscall.SIGCONT)
	attacks("it has its part again", func() bool { return parts(1, 0, 1, 2) && steady() && f.asks(time.Second, 2) > 0 })
	for _, n := range g.nodes[2] {
		n.Kill()
	}
	g.redis[2].Kill()
	attacks("its heir has its part again", func() bool { return parts(2, 0) && steady() })
	g.redis[2].Start()
	for _, n := range g.nodes[2] {
		n.Start()
		n.WaitReady()
	}
	attacks("it has its part in the end", func() bool { return parts(1, 0, 1, 2) && steady() && f.asks(time.Second, 2) > 0 })
}

func newBucketGlobe(t *testing.T, rate, burst int) *globe {
	return globeUnder(t, bucketRules(rate, burst), [3]*testenv.Clock{}, func(int, int) string { return testenv.Program(t, "edge") })
}

func bucketRules(rate, burst int) string {
	return fmt.Sprintf(`
rules:
  - {id: bucket, match: {paths: [/bucket]}, key: [client_ip], algorithm: token_bucket, limit: %d, window: 5s, burst: %d, on_store_failure: closed, scope: global, global: {mode: escrow}}
  - {id: alone, match: {paths: [/alone]}, key: [client_ip], algorithm: token_bucket, limit: 1000000, window: 5s, on_store_failure: closed}
  - {id: divided, match: {paths: [/divided]}, key: [client_ip], algorithm: token_bucket, limit: 1000000, window: 5s, on_store_failure: closed, scope: global, global: {mode: escrow}}
`, 5*rate, burst)
}

// breaks does something to a region, or one of its nodes, and repairs it after some time.
func (g *globe) breaks(what, region, node int, after time.Duration) {
	n, redis := g.nodes[region][node], g.redis[region]
	wait := func() { <-time.After(after) }
	switch what {
	case 0:
		g.Logf("%s: a node is killed", g.names[region])
		n.Kill()
		wait()
		n.Start()
		n.WaitReady()
	case 1:
		g.Logf("%s: a node stops for %s", g.names[region], after)
		require.NoError(g, n.Signal(syscall.SIGSTOP))
		wait()
		require.NoError(g, n.Signal(syscall.SIGCONT))
	case 2:
		g.Logf("%s: Redis stops for %s", g.names[region], after)
		redis.Suspend()
		wait()
		redis.Resume()
	case 3:
		g.Logf("%s is cut off for %s", g.names[region], 6*after)
		g.cut(region)
		<-time.After(6 * after)
		g.heal(region)
	case 4:
		stop := g.resets()
		wait()
		stop()
	case 5, 6:
		if time.Since(g.lost) < 100*time.Second {
			return // stores that lose everything cannot vouch for one another
		}
		g.lost = time.Now()
		g.Logf("%s: Redis loses everything", g.names[region])
		if what == 5 {
			require.NoError(g, redis.Client().FlushAll(g.Context()).Err())
			return
		}
		redis.Kill()
		wait()
		redis.Start()
	case 7:
		rate, burst := 1+int(after.Milliseconds())%20, 1+int(after.Microseconds())%300
		g.Logf("the rule becomes %d a second and %d", rate, burst)
		require.NoError(g, os.WriteFile(g.rules, []byte(bucketRules(rate, burst)), 0o600))
		<-time.After(3*time.Second + after)
		require.NoError(g, os.WriteFile(g.rules, []byte(bucketRules(20, 300)), 0o600))
	}
}

// flood is clients that ask nodes for a key in a bucket, and what passed.
type flood struct {
	*globe
	client *fasthttp.Client
	who    string
	every  time.Duration // a request to each node
	mu     sync.Mutex
	passed []passage
	gains  []gain
}

// gain is tokens that a bucket receives at once, while no request is in flight, because a clock
// is set forward.
type gain struct {
	at     time.Time
	tokens float64
}

// passage is a request that passed: decided after it was sent and before it was answered.
type passage struct{ sent, answered time.Time }

func (g *globe) flood(who string, milliseconds int) *flood {
	f := &flood{globe: g, client: client(), who: who, every: time.Duration(milliseconds) * time.Millisecond}
	g.Cleanup(f.client.CloseIdleConnections)
	return f
}

func (f *flood) rests(length time.Duration) { <-time.After(length) }

// asks lets clients ask the nodes of these regions for so long, and returns how many requests
// passed.
func (f *flood) asks(length time.Duration, regions ...int) (passed int) {
	end := time.Now().Add(length)
	var all sync.WaitGroup
	for _, region := range regions {
		for _, n := range f.nodes[region] {
			for range 2 {
				all.Go(func() {
					tick := time.NewTicker(2 * f.every)
					defer tick.Stop()
					for ; time.Now().Before(end); <-tick.C {
						if f.ask(n.Public) {
							f.mu.Lock()
							passed++
							f.mu.Unlock()
						}
					}
				})
			}
		}
	}
	all.Wait()
	return passed
}

func (f *flood) ask(node string) bool {
	p, passed := f.request(node, "/bucket")
	if passed {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.passed = append(f.passed, p)
	}
	return passed
}

func (f *flood) request(node, path string) (p passage, passed bool) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI("http://" + node + path)
	req.Header.Set("X-Forwarded-For", f.who)
	p.sent = time.Now()
	err := f.client.DoTimeout(req, resp, 2*time.Second)
	p.answered = time.Now()
	return p, err == nil && resp.StatusCode() == http.StatusOK
}

// never fails the test if more passed in some interval than a bucket of that burst may pass.
func (f *flood) never(rate float64, burst int64) {
	f.Helper()
	most, at := beyond(f.passed, f.gains, rate, burst)
	f.Logf("%d passed; the fullest interval lacked %.1f of what may pass", len(f.passed), -most)
	require.LessOrEqual(f, most, 0.0, "beyond the bucket, in an interval that ends at %s", at)
}

// beyond returns by how many requests the fullest interval exceeds what a bucket may pass. A
// request counts in an interval only if it was decided there for certain.
func beyond(list []passage, gains []gain, rate float64, burst int64) (most float64, at time.Time) {
	most = math.Inf(-1)
	sent := slices.SortedFunc(slices.Values(list), func(a, b passage) int { return a.sent.Compare(b.sent) })
	for _, end := range list {
		level, last, more := 0.0, sent[0].sent, gains
		drain := func(to time.Time) {
			for ; len(more) > 0 && !more[0].at.After(to); more = more[1:] {
				if now := more[0].at; now.After(last) {
					level, last = level-rate*now.Sub(last).Seconds(), now
				}
				level = max(0, level-more[0].tokens)
			}
			level, last = max(0, level-rate*to.Sub(last).Seconds()), to
		}
		for _, p := range sent {
			if p.sent.After(end.answered) {
				break
			}
			if !p.answered.After(end.answered) {
				drain(p.sent)
				level++
			}
		}
		level -= rate * end.answered.Sub(last).Seconds()
		for _, g := range more {
			if !g.at.After(end.answered) {
				level -= g.tokens
			}
		}
		if over := level - float64(burst); over > most {
			most, at = over, end.answered
		}
	}
	return most, at
}
