package middleware

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

const document = `
rules:
  - {id: api, match: {paths: ["/api/*"]}, key: [client_ip], algorithm: fixed_window, limit: 3, window: 744h}
  - {id: keyed, match: {paths: [/keyed]}, key: ["header:X-Api-Key", "cookie:session"], missing: limit, limit: 1, window: 1h}
  - {id: tiers, match: {paths: [/tiers]}, key: [client_ip], limit: 1, window: 1h, tiers: {pro: 100}}
  - {id: slots, match: {paths: [/slots]}, key: [host], algorithm: concurrency, limit: 1, window: 1h}
  - {id: trial, match: {paths: [/trial]}, key: [], limit: 1, window: 1h, mode: shadow}
  - {id: closed, match: {paths: [/closed]}, key: [], limit: 100, window: 1h, on_store_failure: closed}
`

func start(t *testing.T, c Config) *Limiter {
	t.Helper()
	if c.Rules == nil {
		c.Rules = []byte(document)
	}
	c.Log = slog.New(slog.DiscardHandler)
	l, err := New(c)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// ask sends a request through a handler; header "A: b" and so on.
func ask(h http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = "203.0.113.7:4711"
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func TestHandler(t *testing.T) {
	var mu sync.Mutex
	var shadowed []string
	l := start(t, Config{TrustedProxies: []string{"10.0.0.0/8"}, TierHeader: "X-Tier", LegacyHeaders: true, Decided: func(_, shadow []string) {
		mu.Lock()
		defer mu.Unlock()
		shadowed = append(shadowed, shadow...)
	}})
	h := l.Handler(hello)
	for i := range 3 {
		w := ask(h, "GET", "/api/x?y=z")
		require.Equal(t, 200, w.Code)
		require.Equal(t, "hello", w.Body.String())
		require.Contains(t, w.Header().Get("RateLimit"), `"api";r=`+string(rune('2'-i))+";t=")
		require.Equal(t, "3", w.Header().Get("X-RateLimit-Limit"))
	}
	w := ask(h, "GET", "http://example.com/api/x")
	require.Equal(t, 429, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"violated-policies":["api"]}`, w.Body.String())
	require.Equal(t, 200, ask(h, "OPTIONS", "*").Code)

	require.Equal(t, 200, ask(h, "GET", "/keyed", "X-Api-Key: a", `Cookie: x=y; session="b"`).Code)
	require.Equal(t, 429, ask(h, "GET", "/keyed", "X-Api-Key: a", "Cookie: session=b").Code)
	require.Equal(t, 200, ask(h, "GET", "/keyed", "X-Api-Key: a", "Cookie: session=c").Code)
	w = ask(h, "GET", "/keyed", "X-Api-Key: a", "X-Api-Key: b")
	require.Equal(t, 400, w.Code)
	require.Contains(t, w.Body.String(), "X-Api-Key")
	require.Equal(t, 400, ask(h, "GET", "/api/%2e%2e/x").Code, "read as one path it counts, as the other it does not")
	require.Equal(t, `"tiers";q=1;w=3600`, ask(h, "GET", "/tiers", "X-Tier: pro").Header().Get("RateLimit-Policy"), "not from a proxy")

	ask(h, "GET", "/trial")
	require.Equal(t, 200, ask(h, "GET", "/trial").Code)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"trial"}, shadowed)
}

func TestClientBehindProxies(t *testing.T) {
	l := start(t, Config{TrustedProxies: []string{"203.0.113.7"}, TierHeader: "X-Tier"})
	h := l.Handler(hello)
	for range 3 {
		require.Equal(t, 200, ask(h, "GET", "/api/x", "X-Forwarded-For: 198.51.100.1").Code)
	}
	require.Equal(t, 429, ask(h, "GET", "/api/x", "X-Forwarded-For: 192.0.2.1, 198.51.100.1").Code)
	require.Equal(t, 200, ask(h, "GET", "/api/x", "X-Forwarded-For: 198.51.100.2").Code)
	require.Equal(t, `"tiers";q=100;w=3600`, ask(h, "GET", "/tiers", "X-Tier: pro").Header().Get("RateLimit-Policy"))
}

// A slot is held until the handler returns, even by a panic.
func TestHandlerHoldsSlots(t *testing.T) {
	l := start(t, Config{})
	inside, leave := make(chan struct{}), make(chan struct{})
	h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside <- struct{}{}
		<-leave
		panic(http.ErrAbortHandler)
	}))
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		ask(h, "GET", "/slots")
	}()
	<-inside
	require.Equal(t, 429, ask(h, "GET", "/slots").Code)
	close(leave)
	require.Equal(t, http.ErrAbortHandler, <-done)
	l.returns.Wait()
	require.Equal(t, 200, ask(l.Handler(hello), "GET", "/slots").Code)
}

func TestConfigFaults(t *testing.T) {
	f := func(want string, c Config) {
		t.Helper()
		_, err := New(c)
		require.EqualError(t, err, want)
	}
	f("Rules: is empty; write rules: [] for no rules", Config{})
	f(`Rules: rules[0].limit: is required; write how many requests may pass in a window`, Config{Rules: []byte("rules: [{id: a, key: [], window: 1s}]")})
	f(`TrustedProxies[0]: must be an address or a network such as 10.0.0.0/8 (got "cdn")`, Config{Rules: []byte("rules: []"), TrustedProxies: []string{"cdn"}})
	l := start(t, Config{})
	require.Error(t, l.SetRules([]byte("rules: 1")))
	require.Len(t, l.active.Load().set.Rules(), 6, "the old ones stay")
	require.NoError(t, l.SetRules([]byte("rules: []")))
	require.Empty(t, ask(l.Handler(hello), "GET", "/api/x").Header().Get("RateLimit"))
}

// Processes with one Redis count together; without it, the rules say what happens.
func TestHandlersShareRedis(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	config := func() Config {
		return Config{Processes: 3, Redis: &redisstore.Config{Mode: redisstore.Single, Addrs: []string{redis.Addr}, Timeout: 10 * time.Second}}
	}
	var passed atomic.Int64
	var wg sync.WaitGroup
	var handlers []http.Handler
	for range 3 {
		handlers = append(handlers, start(t, config()).Handler(hello))
	}
	for i := range 60 {
		wg.Go(func() {
			if ask(handlers[i%3], "GET", "/api/x").Code == 200 {
				passed.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 3, passed.Load())
	redis.Kill()
	w := ask(handlers[0], "GET", "/closed")
	require.Equal(t, 503, w.Code)
	require.Contains(t, w.Body.String(), "The rate limiter is unavailable")
	require.Equal(t, 200, ask(handlers[0], "GET", "/tiers").Code, "local")
}

// quiet is an answer that keeps nothing.
type quiet struct{ header http.Header }

func (q *quiet) Header() http.Header         { return q.header }
func (q *quiet) Write(b []byte) (int, error) { return len(b), nil }
func (q *quiet) WriteHeader(int)             {}

func TestHandlerAllocatesLittle(t *testing.T) {
	l := start(t, Config{Rules: []byte("rules: [{id: api, key: [client_ip], algorithm: fixed_window, limit: 1000000, window: 744h}]")})
	h := l.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest("GET", "/api/x", nil)
	w := &quiet{http.Header{}}
	h.ServeHTTP(w, r)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }), bound(7), "the values of two header fields, and the closures of Handler")
}

// What passes in a program does not travel: a rule that counts across regions says so.
func TestGlobalRulesHoldInTheRegion(t *testing.T) {
	var log strings.Builder
	l, err := New(Config{
		Rules: []byte("rules: [{id: moving, key: [client_ip], algorithm: fixed_window, limit: 1, window: 1h, scope: global}]"),
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	defer l.Close()
	require.Contains(t, log.String(), "rule=moving")
	require.ErrorContains(t, l.SetRules([]byte("rules: [{id: a, key: [client_ip], algorithm: fixed_window, limit: 1, window: 1h, on_store_failure: closed, scope: global, global: {mode: escrow}}]")),
		"rules[0].global.mode: escrow takes an edge")
	h := l.Handler(hello)
	require.Equal(t, http.StatusOK, ask(h, "GET", "/").Code)
	require.Equal(t, http.StatusTooManyRequests, ask(h, "GET", "/").Code)
}
