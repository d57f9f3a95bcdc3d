package access

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
)

// Rate bounds the console's requests per minute.
type Rate struct {
	// Session bounds one session, or one person that the proxy names.
	Session int64 `yaml:"session"`
	// Address bounds an IPv4 address or an IPv6 /64; Login bounds its requests to /auth/.
	Address int64 `yaml:"address"`
	Login   int64 `yaml:"login"`
}

const mostRate = 1_000_000

func (r *Rate) validate(f *field.Errors) {
	for _, one := range []struct {
		name  string
		value *int64
		usual int64
	}{{"session", &r.Session, 600}, {"address", &r.Address, 3000}, {"login", &r.Login, 60}} {
		*one.value = cmp.Or(*one.value, one.usual)
		if *one.value < 1 || *one.value > mostRate {
			f.Add(one.name, "must be 1 to %d requests per minute (got %d)", mostRate, *one.value)
		}
	}
}

// limits counts by weir's own limiter, in memory.
type limits struct {
	store                   *memory.Store
	session, address, login *limiter.Limit
}

// mostCounters bounds the memory; beyond it, the least recently used counters go.
const mostCounters = 50_000

func newLimits(r *Rate, now func() time.Time) *limits {
	of := func(n int64) *limiter.Limit {
		return &limiter.Limit{Rule: "console", Algorithm: limiter.SlidingWindow, Limit: n, Window: time.Minute}
	}
	return &limits{memory.New(memory.Config{MaxKeys: mostCounters, Clock: func() int64 { return now().UnixMicro() }}), of(r.Session), of(r.Address), of(r.Login)}
}

// take refuses a request over the key's limit.
func (l *limits) take(limit *limiter.Limit, key string) error {
	var d limiter.Decision
	checks := []limiter.Check{{Limit: limit, Key: []byte(key), Cost: 1}}
	if err := l.store.Take(context.Background(), checks, &d); err != nil || d.Allowed {
		return nil // memory never fails
	}
	r := refusal(http.StatusTooManyRequests, "", "more than %d requests in a minute; wait", limit.Limit)
	r.After = max(time.Second, d.RetryAfter(checks).Round(time.Second))
	return r
}
