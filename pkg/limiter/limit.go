package limiter

import (
	"encoding/binary"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/field"
)

// Algorithm names how requests are counted.
type Algorithm uint8

// The algorithms.
const (
	FixedWindow Algorithm = iota + 1
	SlidingWindow
	TokenBucket
	LeakyBucket
	RollingWindow
	Concurrency
)

var algorithmNames = [...]string{
	FixedWindow:   "fixed_window",
	SlidingWindow: "sliding_window",
	TokenBucket:   "token_bucket",
	LeakyBucket:   "leaky_bucket",
	RollingWindow: "rolling_window",
	Concurrency:   "concurrency",
}

// Algorithms lists them all, in the order of the documentation.
func Algorithms() []Algorithm {
	return []Algorithm{FixedWindow, SlidingWindow, TokenBucket, LeakyBucket, RollingWindow, Concurrency}
}

// ParseAlgorithm returns the algorithm of that name, or false.
func ParseAlgorithm(name string) (Algorithm, bool) {
	for _, a := range Algorithms() {
		if algorithmNames[a] == name {
			return a, true
		}
	}
	return 0, false
}

// String returns the name used in rules.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) && a > 0 {
		return algorithmNames[a]
	}
	return "algorithm(" + strconv.Itoa(int(a)) + ")"
}

// IsBucket reports whether requests fill a level that drains.
func (a Algorithm) IsBucket() bool { return a == TokenBucket || a == LeakyBucket }

// Storage is how rolling_window keeps its log.
type Storage uint8

// The storages. Ring is the default: 4 to 8 bytes per request, exact to the millisecond.
// SortedSet is exact to the microsecond and allows larger limits and windows.
const (
	Ring Storage = iota
	SortedSet
)

// WholeLog is the most entries of a Ring that Redis rewrites as a whole at each change, which
// is cheaper than one command per part. Of a longer log it writes only the changed parts.
const WholeLog = 128

// String returns the name used in rules.
func (s Storage) String() string {
	return [...]string{"ring", "sorted_set"}[s]
}

// OnFailure decides a check when the store cannot.
type OnFailure uint8

// The failure policies.
const (
	Local  OnFailure = iota // count in this process against this node's share
	Open                    // admit it
	Closed                  // refuse with 503
)

// String returns the name used in rules.
func (o OnFailure) String() string {
	return [...]string{"local", "open", "closed"}[o]
}

// Bounds of a limit. They keep every product below 2^53, the largest integer
// that a Lua number holds exactly, and every script short.
const (
	MaxWindow       = 31 * 24 * time.Hour
	MaxRingWindow   = 7 * 24 * time.Hour
	MaxRingLimit    = 10_000
	MaxLogLimit     = 100_000 // rolling_window in a sorted set, and concurrency
	MaxEntries      = 200     // per check in a sorted set
	MaxCount        = 1_000_000_000
	maxExactInteger = 1 << 53
)

// MaxClockBack is how far a clock may be behind a key's state, but never more than the
// limit's window. Within it, the key's time stands still until the clock catches up. A
// clock further behind was set back: its time applies, and the state is treated as current.
const MaxClockBack = 10 * time.Second

// Limit is the arithmetic of one rule for one tier. It is immutable once in use and
// identified by its address: a new rule document makes new Limits.
type Limit struct {
	Rule      string
	Algorithm Algorithm
	Storage   Storage // rolling_window only
	// Limit is the cost that passes in one Window; for concurrency, at one time.
	Limit int64
	// Window is a whole number of milliseconds.
	Window time.Duration
	// Burst is the capacity of token_bucket; for leaky_bucket, how many requests may run
	// ahead of the steady flow.
	Burst int64
	// MinInterval is the shortest time between two requests of one key; rolling_window
	// only.
	MinInterval time.Duration
	// CountDenied charges refused attempts too.
	CountDenied bool
	// Overdraft charges every call whole, even beyond the limit; a negative cost gives back.
	Overdraft bool
	// Leased lets nodes take part of the limit in advance; see leased.go.
	Leased bool
	// Reported lets nodes decide by slightly outdated counts; see reported.go.
	Reported bool
	// Shadow decides and reports but never refuses.
	Shadow    bool
	OnFailure OnFailure
	// Global is set if regions share the limit; see global.go.
	Global *Global
	// Shared is set if other tiers fill and drain the same counter at their own limits.
	Shared bool
	// Slowest is the smallest Limit of those tiers, or 0 if there are none: a bucket must
	// live until it has drained at that rate too.
	Slowest int64
	// UnderLoad is set if the limit follows the load of upstreams; see underload.go.
	UnderLoad *UnderLoad

	// Whole is set for a region's part of a limit; see escrow.go.
	Whole *Limit

	share   atomic.Pointer[Limit]  // see Share
	encoded atomic.Pointer[string] // see Encoded
	policy  atomic.Pointer[string] // see Policy
}

// Validate returns every fault, named as in a rule document, or nil.
func (l *Limit) Validate() field.Errors {
	var errs field.Errors
	bad := errs.Add
	if l.Limit < 1 || l.Limit > MaxCount {
		bad("limit", "must be between 1 and %d (got %d)", MaxCount, l.Limit)
	}
	switch {
	case l.Window < time.Millisecond:
		bad("window", "must be at least 1ms (got %s)", l.Window)
	case l.Window > MaxWindow:
		bad("window", "must be at most %s (got %s)", MaxWindow, l.Window)
	case l.Window%time.Millisecond != 0:
		bad("window", "must be a whole number of milliseconds (got %s)", l.Window)
	}
	if len(errs) > 0 {
		return errs // the checks below would only repeat them
	}
	bucket := l.Algorithm.IsBucket()
	switch {
	case l.Burst != 0 && !bucket:
		bad("burst", "only token_bucket and leaky_bucket have a burst; remove it")
	case l.Burst < 0 || l.Burst > MaxCount:
		bad("burst", "must be between 0 and %d (got %d)", MaxCount, l.Burst)
	case l.Algorithm == TokenBucket && l.Burst < 1:
		bad("burst", "must be at least 1 (got %d)", l.Burst)
	case bucket && overflows(l.Capacity(), l.unit()):
		bad("burst", "%d requests in %s is too fine to count exactly; use a smaller burst or a shorter window", l.Burst, l.Window)
	}
	if l.MinInterval != 0 {
		switch {
		case l.Algorithm != RollingWindow:
			bad("min_interval", "only rolling_window has a min_interval; remove it")
		case l.MinInterval < time.Millisecond || l.MinInterval%time.Millisecond != 0:
			bad("min_interval", "must be a whole number of milliseconds, at least 1ms (got %s)", l.MinInterval)
		case l.MinInterval > l.Window:
			bad("min_interval", "must not be longer than the window of %s (got %s)", l.Window, l.MinInterval)
		}
	}
	if l.Leased {
		l.leaseFaults(bad)
	}
	if l.Reported {
		l.reportFaults(bad)
	}
	if l.Algorithm != RollingWindow && l.Storage != Ring {
		bad("storage", "only rolling_window has a storage; remove it")
	}
	switch l.Algorithm {
	case RollingWindow:
		if l.Storage != SortedSet && l.Limit > MaxRingLimit {
			bad("limit", "must be at most %d with storage %s (got %d); use storage: sorted_set, or sliding_window", MaxRingLimit, l.Storage, l.Limit)
		}
		if l.Storage != SortedSet && l.Window > MaxRingWindow {
			bad("window", "must be at most %s with storage %s (got %s); use storage: sorted_set", MaxRingWindow, l.Storage, l.Window)
		}
		if l.Limit > MaxLogLimit {
			bad("limit", "must be at most %d for rolling_window (got %d); use sliding_window", MaxLogLimit, l.Limit)
		}
	case Concurrency:
		if l.Limit > MaxLogLimit {
			bad("limit", "must be at most %d for concurrency (got %d)", MaxLogLimit, l.Limit)
		}
		if l.CountDenied {
			bad("count_denied", "concurrency counts only requests in flight, never refused ones; remove it")
		}
	case SlidingWindow:
		if overflows(l.Limit, l.Window.Milliseconds()) {
			bad("limit", "%d in %s is too large to weigh exactly; use a shorter window", l.Limit, l.Window)
		}
	case FixedWindow, TokenBucket, LeakyBucket:
	default:
		bad("algorithm", "unknown; use one of fixed_window, sliding_window, token_bucket, leaky_bucket, rolling_window, concurrency")
	}
	return errs
}

// overflows reports whether a×b is no longer exact in a Lua number. Half the range is
// left for sums of products.
func overflows(a, b int64) bool { return a > maxExactInteger/2/b }

// MaxCost returns the largest cost that can ever pass.
func (l *Limit) MaxCost() int64 {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		return l.Capacity()
	case Concurrency:
		return 1
	case RollingWindow:
		if l.Storage == SortedSet {
			return min(l.Limit, MaxEntries)
		}
	}
	return l.Limit
}

// Weight returns the load that a check of that cost puts on a Redis server: 1 is about 5
// µs, which most checks take. A ring gets 4 bytes per unit, and may have to move up to half its
// limit when it grows; a sorted set gets an entry per unit.
func (l *Limit) Weight(cost int64) int64 {
	switch {
	case l.Algorithm != RollingWindow:
		return 1
	case l.Storage == SortedSet:
		return 1 + cost/2
	case l.Limit <= WholeLog:
		return 1
	}
	return 2 + (l.Limit+cost)/500
}

// WindowStart returns the start of the window that contains a time, both in Unix microseconds.
func (l *Limit) WindowStart(at int64) int64 { return at - at%l.Window.Microseconds() }

// Capacity returns how many requests a bucket holds. GCRA's tolerance does not include
// the request that is due, hence the extra one.
func (l *Limit) Capacity() int64 {
	if l.Algorithm == LeakyBucket {
		return l.Burst + 1
	}
	return l.Burst
}

// Rate returns the flow of a bucket as a fraction in lowest terms: a bucket drains
// `drain` units per microsecond, and one request fills `unit` of them. Whole numbers keep
// buckets exact at any rate.
func (l *Limit) Rate() (drain, unit int64) {
	window := l.Window.Microseconds()
	g := gcd(l.Limit, window)
	return l.Limit / g, window / g
}

func (l *Limit) unit() int64 { _, u := l.Rate(); return u }

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Tag returns the part of a Redis key that names the state's format, so that a rule
// whose algorithm changes starts with new keys.
func (l *Limit) Tag() string {
	if l.Reported {
		return l.reportedTag()
	}
	switch l.Algorithm {
	case FixedWindow:
		return "fw"
	case SlidingWindow:
		return "sw"
	case TokenBucket:
		if l.Leased {
			return "tl" // stores its grants
		}
		return "tb"
	case LeakyBucket:
		return "lb"
	case Concurrency:
		return "cc"
	case RollingWindow:
		if l.Storage == SortedSet {
			return "rs"
		}
		return "rr"
	}
	return "??"
}

// Encoded returns the limit as the Redis scripts read it (rule_of in prelude.lua). It
// always returns the same pointer, so that passing it allocates nothing.
func (l *Limit) Encoded() *string {
	if s := l.encoded.Load(); s != nil {
		return s
	}
	flag := func(b bool) byte {
		if b {
			return 1
		}
		return 0
	}
	drain, unit := l.Rate()
	capacity := l.Capacity()
	if l.Algorithm == RollingWindow {
		capacity = WholeLog
	}
	shared := flag(l.Global != nil) + 3*flag(l.Overdraft)
	if l.Whole != nil {
		shared = 2
	}
	b := append([]byte(l.Tag()), flag(l.CountDenied), flag(l.Shadow), shared)
	for _, v := range []int64{l.Limit, l.Window.Microseconds(), capacity, l.MinInterval.Microseconds(), drain, unit, l.slowest(), l.LeaseTime().Microseconds()} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v))) // exact: see the bounds
	}
	s := string(b)
	l.encoded.CompareAndSwap(nil, &s)
	return l.encoded.Load()
}

func (l *Limit) slowest() int64 {
	if l.Slowest == 0 {
		return l.Limit
	}
	return l.Slowest
}

// Lifetime returns how long a key's state matters under this limit, in microseconds, if all
// of it is free again after reset.
func (l *Limit) Lifetime(reset int64) int64 {
	if l.Slowest == 0 || !l.Algorithm.IsBucket() {
		return reset
	}
	return int64(min(math.Ceil(float64(reset)*float64(l.Limit)/float64(l.Slowest)), maxExactInteger/2))
}

// RefusalHolds reports whether a refusal stays valid until its RetryAfter. It does not
// for concurrency, whose slots free up at any time; for a shared bucket, which drains
// faster while a higher tier uses it; with CountDenied, whose attempts must reach the
// store; or for a reported limit, which the next report may free.
func (l *Limit) RefusalHolds() bool {
	shared := l.Shared && l.Algorithm.IsBucket()
	return l.Algorithm != Concurrency && !l.CountDenied && !l.Reported && !shared
}

// Equal reports whether two limits decide identically, as those of an unchanged rule do
// across a change of the document.
func (l *Limit) Equal(o *Limit) bool {
	return l == o || l.Rule == o.Rule && l.Shared == o.Shared && *l.Encoded() == *o.Encoded()
}
