package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patient is an origin whose checks can fail in any way. It has an address to itself,
// so that nothing else takes its port while it refuses connections.
type patient struct {
	t      *testing.T
	addr   string
	status atomic.Int32 // of the answer to a check; 0 hangs
	flaps  atomic.Bool  // two of three checks fail
	count  atomic.Int32 // of checks
	checks chan int32   // the status of each check that arrived, while the test reads them
	asked  atomic.Int32 // requests other than checks
	server *http.Server
	served chan error
}

func newPatient(t *testing.T) *patient {
	p := &patient{t: t, addr: "127.7.7.7:0", checks: make(chan int32)}
	p.status.Store(200)
	p.listen()
	t.Cleanup(p.refuse)
	return p
}

func (p *patient) listen() {
	ln, err := net.Listen("tcp", p.addr)
	require.NoError(p.t, err)
	p.addr, p.served = ln.Addr().String(), make(chan error, 1)
	p.server = &http.Server{Handler: p}
	go func() { p.served <- p.server.Serve(ln) }()
}

// refuse makes it refuse connections until listen.
func (p *patient) refuse() {
	if p.server != nil {
		require.NoError(p.t, p.server.Close())
		require.ErrorIs(p.t, <-p.served, http.ErrServerClosed)
		p.server = nil
	}
}

func (p *patient) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/healthz" {
		p.asked.Add(1)
		_, _ = io.WriteString(w, p.addr)
		return
	}
	status := p.status.Load()
	if n := p.count.Add(1); p.flaps.Load() && n%3 != 0 {
		status = 500
	}
	select {
	case p.checks <- status:
	default:
	}
	if status == 0 || r.URL.RawQuery != "full" || r.Host != "origin.test" || r.Method != "GET" {
		<-r.Context().Done()
		return
	}
	if status == 302 {
		w.Header().Set("Location", "http://127.0.0.1:1/") // not followed
	}
	w.WriteHeader(int(status))
}

// verdicts observes the checks.
type verdicts struct {
	*outcomes
	changes chan verdict
}

type verdict struct {
	upstream string
	cause    error
}

func (v verdicts) Health(upstream string, cause error) { v.changes <- verdict{upstream, cause} }

func (v verdicts) next(t *testing.T) verdict {
	t.Helper()
	select {
	case c := <-v.changes:
		return c
	case <-time.After(patience):
		require.Fail(t, "the verdict does not change")
		return verdict{}
	}
}

// checked serves the patients and checks them every few milliseconds. stop ends the
// checks.
func checked(t *testing.T, timeout time.Duration, patients ...*patient) (e *edge, seen verdicts, stop func()) {
	t.Helper()
	cfg := Config{FailAfter: 1, FailFor: time.Hour, Check: HealthCheck{
		Path: "/healthz?full", Host: "origin.test", Interval: 20 * time.Millisecond, Timeout: timeout, Healthy: 2, Unhealthy: 3,
	}}
	for _, p := range patients {
		cfg.Upstreams = append(cfg.Upstreams, "http://"+p.addr)
	}
	e = newEdge(t, cfg, ForwardOptions{})
	seen = verdicts{e.outcomes, make(chan verdict, 100)}
	e.pool.cfg.Observer = seen
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); e.pool.CheckHealth(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return e, seen, stop
}

// answering returns which patients answer the next requests.
func (e *edge) answering(t *testing.T) map[string]int {
	t.Helper()
	by := map[string]int{}
	for range 20 {
		resp, body := e.get(t, "/")
		require.Equal(t, 200, resp.StatusCode)
		by[body]++
	}
	return by
}

func (p *patient) awaitChecks(n int) {
	p.t.Helper()
	for range n {
		select {
		case <-p.checks:
		case <-time.After(patience):
			require.Fail(p.t, "no check arrives")
		}
	}
}

func TestFailedChecksTakeAnUpstreamOut(t *testing.T) {
	for _, c := range []struct {
		name, cause string
		timeout     time.Duration
		fail        func(p *patient)
		heal        func(p *patient)
	}{
		{"5xx", "status 503", patience, func(p *patient) { p.status.Store(503) }, func(p *patient) { p.status.Store(204) }},
		{"4xx", "status 404", patience, func(p *patient) { p.status.Store(404) }, func(p *patient) { p.status.Store(302) }},
		{"hang", "deadline exceeded", 500 * time.Millisecond, func(p *patient) { p.status.Store(0) }, func(p *patient) { p.status.Store(200) }},
		{"refused", "connection refused", patience, (*patient).refuse, (*patient).listen},
	} {
		t.Run(c.name, func(t *testing.T) {
			good, bad := newPatient(t), newPatient(t)
			both := map[string]int{good.addr: 10, bad.addr: 10}
			e, seen, _ := checked(t, c.timeout, good, bad)
			bad.awaitChecks(4)
			require.Equal(t, both, e.answering(t))

			c.fail(bad)
			v := seen.next(t)
			require.Equal(t, bad.addr, v.upstream)
			require.ErrorContains(t, v.cause, c.cause)
			require.Equal(t, map[string]int{good.addr: 20}, e.answering(t))

			c.heal(bad)
			require.Equal(t, verdict{bad.addr, nil}, seen.next(t))
			require.Equal(t, both, e.answering(t))
			require.Len(t, e.kinds(), 60, "checks do not count as attempts")
			require.Empty(t, seen.changes)
		})
	}
}

// When every upstream fails its checks, requests continue as if there were no checks.
func TestAllFailingChecksFailOpen(t *testing.T) {
	one, two := newPatient(t), newPatient(t)
	e, seen, _ := checked(t, patience, one, two)
	one.status.Store(500)
	two.status.Store(500)
	require.ElementsMatch(t, []string{one.addr, two.addr}, []string{seen.next(t).upstream, seen.next(t).upstream})
	require.Equal(t, map[string]int{one.addr: 10, two.addr: 10}, e.answering(t))
	for _, healthy := range e.pool.Healthy {
		require.False(t, healthy)
	}
}

// An upstream that never fails often enough in a row keeps its requests.
func TestChecksWithinTheThresholdsChangeNothing(t *testing.T) {
	p := newPatient(t)
	p.flaps.Store(true)
	_, seen, stop := checked(t, patience, p)
	p.awaitChecks(9)
	stop()
	require.Empty(t, seen.changes)
}

func TestVerdict(t *testing.T) {
	seen := verdicts{newOutcomes(), make(chan verdict, 100)}
	u := &upstream{cfg: &Config{Observer: seen, Check: HealthCheck{Healthy: 2, Unhealthy: 3}}}
	failure := errors.New("failed")
	streak := 0
	for i, c := range []struct {
		err      error
		down     bool
		reported int
	}{
		{nil, false, 0}, {failure, false, 0}, {failure, false, 0}, {nil, false, 0},
		{failure, false, 0}, {failure, false, 0}, {failure, true, 1}, {failure, true, 1},
		{nil, true, 1}, {failure, true, 1}, {nil, true, 1}, {nil, false, 2}, {nil, false, 2},
		{failure, false, 2}, {failure, false, 2}, {failure, true, 3},
	} {
		if c.reported == 1 {
			u.health.until.Store(1 << 62)
		}
		streak = u.verdict(streak, c.err)
		require.Equal(t, c.down, u.health.down.Load(), i)
		require.Len(t, seen.changes, c.reported, i)
	}
	require.False(t, u.health.resting(0), "an upstream brought back by its checks does not rest")
}

func TestPickAvoidsTheFailing(t *testing.T) {
	p := newPool(t, 3)
	p.ups[1].health.down.Store(true)
	p.ups[1].health.until.Store(40) // over, and no request may try it
	for range 30 {
		i, trial := p.pick(0, 50)
		require.NotEqual(t, 1, i)
		require.False(t, trial)
	}
	p.ups[0].health.until.Store(90)
	p.ups[2].health.until.Store(80)
	i, _ := p.pick(0, 50)
	require.Equal(t, 1, i, "the others rest")
	p.ups[1].health.until.Store(100)
	i, _ = p.pick(0, 50)
	require.Equal(t, 2, i, "all rest: the one whose rest ends first")
}

// The checks end with their context, even one still waiting for its answer.
func TestChecksEnd(t *testing.T) {
	p := newPatient(t)
	p.status.Store(0)
	_, seen, stop := checked(t, patience, p)
	p.awaitChecks(1)
	stop()
	require.Empty(t, seen.changes, "a check cut short says nothing")
}
