package edge

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/listeners"
	"github.com/weir-edge/weir/internal/testenv"
)

// inMemory is a node that does not listen and counts in memory.
func inMemory(t testing.TB, document string) *Edge {
	t.Helper()
	return notListening(t, document, io.Discard, func(*config.Config) {})
}

// onRedis is one that remembers refusals.
func onRedis(t testing.TB, document string) *Edge {
	t.Helper()
	redis := testenv.Redis(t, testenv.Options{})
	return notListening(t, document, io.Discard, func(c *config.Config) {
		c.Store.Kind, c.Store.Redis.Mode, c.Store.Redis.Addrs, c.Store.Timeout = "redis", "single", []string{redis.Addr}, time.Second
	})
}

func notListening(t testing.TB, document string, log io.Writer, change func(*config.Config)) *Edge {
	t.Helper()
	c := config.Dev("127.0.0.1:1")
	c.TrustedProxies = []string{"10.0.0.0/8"}
	c.Rules.File = "unused"
	change(c)
	require.NoError(t, c.Validate())
	e, err := New(c, document, slog.New(slog.NewJSONHandler(log, nil)))
	require.NoError(t, err)
	t.Cleanup(e.close)
	return e
}

// received is a request as fasthttp passes it on.
func received(t testing.TB, peer string, header ...string) *fasthttp.RequestCtx {
	t.Helper()
	ctx := &fasthttp.RequestCtx{}
	ctx.Init2(remote{addr: &net.TCPAddr{IP: net.ParseIP(peer), Port: 40000}}, listeners.Quiet{}, false)
	require.NoError(t, ctx.Request.Header.Read(bufio.NewReader(strings.NewReader(lines(header...)))))
	return ctx
}

// remote is a connection of which only the peer's address matters.
type remote struct {
	net.Conn
	addr net.Addr
}

// RemoteAddr implements net.Conn.
func (r remote) RemoteAddr() net.Addr { return r.addr }

// LocalAddr implements net.Conn.
func (r remote) LocalAddr() net.Addr { return r.addr }

// bound is how many allocations are allowed. The race detector empties sync.Pool at
// random, so the measure then proves only that nothing is wildly off.
func bound(want float64) float64 {
	if raceEnabled {
		return want + 20
	}
	return want
}

const allocRules = `
rules:
  - {id: per-client, match: {paths: ["/api/*"]}, key: [client_ip], limit: %d, window: 1h}
  - {id: keyed, match: {paths: ["/api/*"], methods: [GET]}, key: ["header:X-Api-Key", path], algorithm: token_bucket, limit: %d, window: 1h, burst: %d}
`

var usual = []string{"GET /api/users/42?full=1 HTTP/1.1", "Host: api.example.com", "User-Agent: test", "X-Api-Key: example", "Cookie: a=b; c=d"}

// A request known to be refused is answered without an allocation: floods consist of
// these.
func TestRefusingAllocatesNothing(t *testing.T) {
	e := onRedis(t, fmt.Sprintf(allocRules, 1, 1, 1))
	ctx := received(t, "192.0.2.1", usual...)
	charge(t, e, ctx)
	serve := func() {
		ctx.Response.Reset()
		e.serve(ctx)
	}
	serve() // refused by the store, remembered
	serve()
	require.Equal(t, 429, ctx.Response.StatusCode())
	require.Contains(t, string(ctx.Response.Body()), `"violated-policies":["per-client","keyed"]`)
	require.LessOrEqual(t, testing.AllocsPerRun(2000, serve), bound(0))
}

// Deciding and describing an admitted request allocates nothing either; the proxy's
// tests bound forwarding.
func TestAdmittingAllocatesNothing(t *testing.T) {
	e := inMemory(t, fmt.Sprintf(allocRules, 10_000, 1_000_000, 1_000_000))
	ctx := received(t, "192.0.2.1", usual...)
	charge(t, e, ctx)
	require.LessOrEqual(t, testing.AllocsPerRun(2000, func() { charge(t, e, ctx) }), bound(0))
	require.Contains(t, ctx.Response.Header.String(), `"keyed";r=`)
}

// Behind a trusted proxy, each hop's address is parsed from a copy.
func TestTrustedChainAllocations(t *testing.T) {
	e := inMemory(t, fmt.Sprintf(allocRules, 10_000, 1_000_000, 1_000_000))
	ctx := received(t, "10.0.0.1", append(usual, "X-Forwarded-For: 203.0.113.1, 10.0.0.2")...)
	charge(t, e, ctx)
	require.LessOrEqual(t, testing.AllocsPerRun(2000, func() { charge(t, e, ctx) }), bound(2))
}

// charge does what serve does, without forwarding.
func charge(t testing.TB, e *Edge, ctx *fasthttp.RequestCtx) {
	ctx.Response.Reset()
	r := e.begin(ctx)
	if err := r.checkHeader(); err != nil {
		t.Fatal(err)
	}
	if v := e.decider.Decide(&r.Request); v != decide.Pass || len(r.Match.Checks) != 2 {
		t.Fatal(v, r.Err, r.Match.Checks)
	}
	r.setLimitHeaders()
	r.end()
}

// BenchmarkRefuse measures what a flood's request costs beyond fasthttp's own work.
func BenchmarkRefuse(b *testing.B) {
	e := onRedis(b, "rules: [{id: per-client, key: [client_ip], limit: 1, window: 1h}]")
	ctx := received(b, "192.0.2.1", usual...)
	for range 2 {
		ctx.Response.Reset()
		e.serve(ctx)
	}
	b.ReportAllocs()
	for b.Loop() {
		ctx.Response.Reset()
		e.serve(ctx)
	}
	require.Equal(b, 429, ctx.Response.StatusCode())
}
