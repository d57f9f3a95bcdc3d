package keys

import (
	"fmt"
	"time"
)

// scanner walks through everything once, in a random-looking order, and then again:
// every key from one place, or every path with one key.
type scanner struct {
	source
	at, step int64
}

func newScanner(s source) (*scanner, error) {
	if s.Vary == "" {
		s.Vary = "key"
	}
	if s.Vary != "key" && s.Vary != "path" {
		return nil, fmt.Errorf("vary: must be key or path (got %q)", s.Vary)
	}
	g := &scanner{source: s, at: s.random.Int64N(s.N), step: 1}
	// A step that shares no divisor with n visits every number once.
	if s.N > 2 {
		for g.step = 1 + s.random.Int64N(s.N-1); gcd(g.step, s.N) != 1; {
			g.step = 1 + s.random.Int64N(s.N-1)
		}
	}
	return g, nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (g *scanner) Next(time.Duration) Request {
	i := g.at
	g.at = (g.at + g.step) % g.N
	if g.Vary == "path" {
		return Request{Key: g.name(int64(g.Stream % uint64(g.N))), Path: fmt.Sprintf("/scan/%d", i), Kind: "scanner"}
	}
	return Request{Key: g.name(i), Kind: "scanner"}
}

// RetryingBot is one client that wants in and returns when it is refused. Call Answered
// with the outcome.
type RetryingBot struct {
	source
	key     string
	refused int
	wait    time.Duration
}

func newRetryingBot(s source) (*RetryingBot, error) {
	switch s.Policy {
	case "":
		s.Policy = "obey"
	case "obey", "early", "backoff", "ignore":
	default:
		return nil, fmt.Errorf("policy: must be obey, early, backoff or ignore (got %q)", s.Policy)
	}
	return &RetryingBot{source: s, key: s.name(int64(s.Stream % uint64(s.N)))}, nil
}

// Next is due after Wait.
func (g *RetryingBot) Next(time.Duration) Request {
	return Request{Key: g.key, Kind: "bot", Wait: g.wait}
}

// Answered takes the status and the Retry-After of the last answer, negative if it had
// none. Obey waits exactly that long; early that long times Early; backoff doubles from
// Base to Max, each time between half and all of it; ignore never waits. Without a
// Retry-After, obey and early back off.
func (g *RetryingBot) Answered(status int, retryAfter time.Duration) {
	if status != 429 && status != 503 && status != 0 {
		g.refused, g.wait = 0, 0
		return
	}
	g.refused++
	hasRetryAfter := retryAfter >= 0
	switch {
	case g.Policy == "ignore":
		g.wait = 0
	case g.Policy == "obey" && hasRetryAfter:
		g.wait = retryAfter
	case g.Policy == "early" && hasRetryAfter:
		g.wait = time.Duration(float64(retryAfter) * g.Early)
	default:
		full := g.Base
		for i := 1; i < g.refused && full < g.Max; i++ {
			full *= 2
		}
		full = min(full, g.Max)
		g.wait = full/2 + time.Duration(g.random.Int64N(int64(full/2)+1))
	}
}

// replay returns the requests of a log, each once, in order and on time.
type replay struct{ source }

func (g *replay) Next(at time.Duration) Request {
	e, ok := g.Log.next()
	if !ok {
		return Request{Kind: "replay", Done: true}
	}
	due := time.Duration(float64(e.At) / g.Speed)
	return Request{Key: e.Client, Path: e.Path, Method: e.Method, Kind: "replay", Wait: max(0, due-at)}
}
