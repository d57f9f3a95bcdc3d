package oracle

import (
	"fmt"
	"math"
	"regexp"
	"time"
)

// Rule is the limiter's promise, in the terms of its rule document.
type Rule struct {
	ID          string
	Algorithm   string // default rolling_window
	Limit       int64
	Window      time.Duration
	Burst       int64 // -1: the algorithm's default
	MinInterval time.Duration
	CountDenied bool
	// Leased is set if nodes take parts of the limit in advance. They may refuse early, so
	// only what passes is judged.
	Leased bool
	// Delay is set if nodes decide by reports: for how long what they are asked for may
	// pass over the limit. Nodes is how many they are; each may pass two requests more.
	// They may refuse early, too, so only what passes is judged.
	Delay time.Duration
	Nodes int64
	// Global is set if regions share the limit: all requests are judged together, as those of
	// Everywhere. A region may refuse early, by its part of the limit or by what it knows of
	// the others, so only what passes is judged.
	Global bool
	// Subject is the first part of the rule's key. Rules with one subject are decided
	// in one step; a rule may charge a request briefly before a rule with another
	// subject refuses it. Empty: unknown.
	Subject string
	// Hold is the shortest time that a request is known to keep its slot; concurrency
	// only. Without it, admissions prove nothing.
	Hold time.Duration
}

// Everywhere is the region of global rules.
const Everywhere = "everywhere"

var validID = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// rule is a Rule ready for use.
type rule struct {
	Rule
	method method
	window int64 // microseconds
	// life is how long a request can matter.
	life int64
	// from is when judging begins.
	from int64
	// fresh: nothing was counted before from.
	fresh bool
}

// chain is how many consecutive windows are examined together.
const (
	chain        = 64
	chainEntries = 4096
)

// chains are the numbers of windows that are tried: all up to four, then fewer.
var chains = []int64{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}

func compile(r Rule, o *Options) (*rule, error) {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("rule %q: %s: %s", r.ID, field, fmt.Sprintf(format, args...))
	}
	if r.Algorithm == "" {
		r.Algorithm = "rolling_window"
	}
	switch {
	case !validID.MatchString(r.ID):
		return nil, bad("id", "must be 1 to 64 of a-z, 0-9 and -")
	case r.Limit < 1 || r.Limit > 1_000_000_000:
		return nil, bad("limit", "must be between 1 and 1000000000 (got %d)", r.Limit)
	case r.Window < time.Millisecond || r.Window > 744*time.Hour:
		return nil, bad("window", "must be between 1ms and 744h (got %s)", r.Window)
	case r.Window%time.Millisecond != 0:
		return nil, bad("window", "must be a whole number of milliseconds (got %s)", r.Window)
	case r.MinInterval < 0 || r.MinInterval > r.Window:
		return nil, bad("min_interval", "must be between 0 and the window (got %s)", r.MinInterval)
	case r.MinInterval != 0 && r.Algorithm != "rolling_window":
		return nil, bad("min_interval", "only rolling_window has one; remove it")
	case r.Burst > 0 && r.Algorithm != "token_bucket" && r.Algorithm != "leaky_bucket":
		return nil, bad("burst", "only token_bucket and leaky_bucket have one; remove it")
	case r.Burst < -1 || r.Burst > 1_000_000_000:
		return nil, bad("burst", "must be between 0 and 1000000000 (got %d)", r.Burst)
	case r.Algorithm == "token_bucket" && r.Burst == 0:
		return nil, bad("burst", "must be at least 1 (got 0)")
	case r.Hold < 0 || (r.Hold > 0 && r.Algorithm != "concurrency"):
		return nil, bad("hold", "only concurrency has one, and it is not negative")
	case r.Delay < 0 || r.Delay > 0 && !reportable[r.Algorithm]:
		return nil, bad("delay", "only fixed_window, sliding_window and token_bucket have one, and it is not negative (got %s)", r.Delay)
	case r.Delay > 0 && r.Nodes < 1:
		return nil, bad("nodes", "must be at least 1 where there is a delay (got %d)", r.Nodes)
	case r.Global && r.Delay > 0:
		return nil, bad("delay", "only a rule that holds in one region has one; remove it (got %s)", r.Delay)
	case r.CountDenied && r.Algorithm == "concurrency":
		return nil, bad("count_denied", "a refused request is never in flight; remove it")
	case r.Limit > int64(o.MaxRequests)/2 && r.Algorithm != "token_bucket" && r.Algorithm != "leaky_bucket":
		return nil, bad("limit", "more than %d could not be proven: more than half of maxRequests is forgotten too early (got %d)", o.MaxRequests/2, r.Limit)
	}
	c := &rule{Rule: r, window: r.Window.Microseconds()}
	windows := min(chain, max(1, chainEntries/r.Limit))
	if r.Delay > 0 {
		windows = 1 // each may be exceeded
	}
	switch r.Algorithm {
	case "fixed_window":
		c.method, c.life = fixedWindow{r.Limit, c.window, windows}, (windows+1)*c.window
	case "sliding_window":
		c.method, c.life = slidingWindow{r.Limit, c.window}, 3*c.window
	case "token_bucket", "leaky_bucket":
		capacity := r.Burst
		switch {
		case r.Algorithm == "leaky_bucket":
			capacity = max(0, r.Burst) + 1
		case r.Burst < 0:
			capacity = r.Limit
		}
		b := bucket{capacity: capacity, rate: float64(r.Limit) / float64(c.window)}
		c.method, c.life = b, int64(math.Ceil(float64(capacity)/b.rate))+c.window
	case "rolling_window":
		c.method = rollingWindow{r.Limit, c.window, r.MinInterval.Microseconds(), windows}
		c.life = windows*c.window + rollingSlack
	case "concurrency":
		c.method = concurrency{r.Limit, c.window, min(r.Hold, r.Window).Microseconds(), o.Release.Microseconds()}
		c.life = c.window + o.Release.Microseconds()
	default:
		return nil, bad("algorithm", "unknown (got %q); use one of fixed_window, sliding_window, token_bucket, leaky_bucket, rolling_window, concurrency", r.Algorithm)
	}
	if r.Delay > 0 {
		c.method = reported{c.method, 2 * r.Nodes}
	}
	return c, nil
}

// method is what an algorithm allows. Times are microseconds.
type method interface {
	// lookback returns the earliest time from which requests can cause a refusal sent
	// at that time.
	lookback(sent int64) int64
	// beyond returns a positive number if the admissions answered by y, the last answer
	// so far, fit no decision times.
	beyond(c *count, y int64) int64
	// mustRefuse reports whether no decision times leave room for a request of that
	// cost, given what was charged for certain before it; with count_denied only.
	mustRefuse(c *count, sent, answered, cost int64) bool
	// mayRefuse reports whether a refusal fits some decision times.
	mayRefuse(c *count, r *refusal) bool
	// wait returns the shortest and the longest time after which the refused request
	// could pass, over all decision times.
	wait(c *count, r *refusal) (shortest, longest int64)
}
