package storetest

import (
	"math/big"
	"slices"

	"github.com/weir-edge/weir/pkg/limiter"
)

// model is an algorithm in its slowest and simplest form: it computes how much is free at
// any moment, and everything else is derived by asking that repeatedly. It shares no code
// with the stores.
type model interface {
	// view returns the model as of the clock's reading now: a different one if the clock
	// was set back too far to stand still.
	view(now int64) model
	// clock returns the time that applies then.
	clock(now int64) int64
	// free returns the cost that would pass at t; negative when overdrawn.
	free(t int64) *big.Rat
	// ready reports whether enough time has passed since the last request.
	ready(t int64) bool
	charge(t, units int64, slot uint64)
	// refund reports whether there was anything to return.
	refund(t, takenAt, units int64, slot uint64) bool
}

// setBack reports whether the clock was set back, rather than being slightly behind.
func setBack(l *limiter.Limit, now, last int64) bool {
	return last-now > l.Window.Microseconds() || last-now > 10*1e6
}

func newModel(l *limiter.Limit) model {
	switch l.Algorithm {
	case limiter.FixedWindow, limiter.SlidingWindow:
		return &windows{l: l, counts: map[int64]int64{}}
	case limiter.TokenBucket, limiter.LeakyBucket:
		return &tank{l: l, level: new(big.Rat)}
	case limiter.Concurrency:
		return &inFlight{l: l, expires: map[uint64]int64{}}
	}
	m := &diary{l: l, step: 1}
	if l.Storage != limiter.SortedSet {
		m.step = 1000
	}
	return m
}

// passes reports whether a request of that cost would pass at t.
func passes(m model, l *limiter.Limit, t, cost int64) bool {
	return m.ready(t) && (cost == 0 && !l.Overdraft || m.free(t).Cmp(rat(cost)) >= 0)
}

// answer returns what a store must answer at t, in microseconds.
func answer(m model, l *limiter.Limit, t, cost int64) (remaining, retry, reset int64) {
	free := m.free(t)
	if free.Sign() > 0 {
		remaining = new(big.Int).Quo(free.Num(), free.Denom()).Int64()
	}
	if l.Algorithm != limiter.Concurrency {
		retry = earliest(t, func(t int64) bool { return passes(m, l, t, max(0, min(cost, l.MaxCost()))) }) - t
	}
	full := rat(l.Limit)
	if l.Algorithm.IsBucket() {
		full = rat(l.Capacity())
	}
	return remaining, retry, earliest(t, func(t int64) bool { return m.free(t).Cmp(full) == 0 }) - t
}

// earliest returns the first moment at or after t at which f holds. Time only frees
// capacity, so once f holds it keeps holding.
func earliest(t int64, f func(int64) bool) int64 {
	if f(t) {
		return t
	}
	step := int64(1)
	for !f(t + step) {
		step *= 2
	}
	no, yes := t+step/2, t+step
	for yes-no > 1 {
		if middle := no + (yes-no)/2; f(middle) {
			yes = middle
		} else {
			no = middle
		}
	}
	if step == 1 {
		return t + 1
	}
	return yes
}

func rat(v int64) *big.Rat { return new(big.Rat).SetInt64(v) }

func minRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

func maxRat(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

// windows implements fixed_window and sliding_window: a count for every window so far.
type windows struct {
	l      *limiter.Limit
	counts map[int64]int64 // by the start of the window
	last   int64           // start of the last one written
}

func (m *windows) view(now int64) model {
	if !setBack(m.l, now, m.last) {
		return m
	}
	start, window := m.start(now), m.l.Window.Microseconds()
	return &windows{l: m.l, last: start, counts: map[int64]int64{
		start: m.counts[m.last], start - window: m.counts[m.last-window],
	}}
}

func (m *windows) start(t int64) int64   { return t - t%m.l.Window.Microseconds() }
func (m *windows) clock(now int64) int64 { return max(now, m.last) }
func (m *windows) ready(int64) bool      { return true }

func (m *windows) free(t int64) *big.Rat {
	start, window := m.start(t), m.l.Window.Microseconds()
	free := rat(m.l.Limit - m.counts[start])
	if m.l.Algorithm == limiter.SlidingWindow {
		covered := big.NewRat(window/1000-(t-start)/1000, window/1000)
		free.Sub(free, covered.Mul(covered, rat(m.counts[start-window])))
	}
	return free
}

func (m *windows) charge(t, units int64, _ uint64) {
	m.last = m.start(t)
	m.counts[m.last] = max(0, m.counts[m.last]+units)
}

func (m *windows) refund(t, takenAt, units int64, _ uint64) bool {
	now, then := m.start(t), m.start(takenAt)
	counted := []int64{now}
	if m.l.Algorithm == limiter.SlidingWindow {
		counted = append(counted, now-m.l.Window.Microseconds())
	}
	used := int64(0)
	for _, start := range counted {
		used += m.counts[start]
	}
	if used > 0 && slices.Contains(counted, then) {
		m.last = now
		m.counts[then] = max(0, m.counts[then]-units)
		return true
	}
	return false
}

// tank implements token_bucket and leaky_bucket: a level in requests, as a fraction.
type tank struct {
	l     *limiter.Limit
	level *big.Rat
	last  int64 // time of that level
}

func (m *tank) view(now int64) model {
	if !setBack(m.l, now, m.last) {
		return m
	}
	return &tank{l: m.l, level: m.level, last: now}
}

func (m *tank) clock(now int64) int64 { return max(now, m.last) }
func (m *tank) ready(int64) bool      { return true }

func (m *tank) drained(us int64) *big.Rat {
	return new(big.Rat).Mul(rat(us), big.NewRat(m.l.Limit, m.l.Window.Microseconds()))
}

func (m *tank) at(t int64) *big.Rat {
	level := m.drained(t - m.last)
	return maxRat(rat(0), level.Sub(m.level, level))
}

func (m *tank) free(t int64) *big.Rat {
	free := rat(m.l.Capacity())
	return free.Sub(free, m.at(t))
}

func (m *tank) charge(t, units int64, _ uint64) {
	level, most := m.at(t), rat(m.l.Capacity())
	if m.l.Overdraft {
		most = minRat(most.Add(most, m.drained(31*24*3600*1e6)), m.countable())
	}
	m.level, m.last = maxRat(rat(0), minRat(most, level.Add(level, rat(units)))), t
}

// countable returns the level at which a store reaches the bound of its numbers.
func (m *tank) countable() *big.Rat {
	rate := big.NewRat(m.l.Limit, m.l.Window.Microseconds())
	return new(big.Rat).SetFrac(big.NewInt(1<<52), rate.Denom())
}

func (m *tank) refund(t, takenAt, units int64, _ uint64) bool {
	back := m.drained(t - takenAt)
	level := m.at(t)
	if back.Sub(rat(units), back).Sign() > 0 && level.Sign() > 0 {
		m.level, m.last = maxRat(rat(0), level.Sub(level, back)), t
		return true
	}
	return false
}

// diary implements rolling_window: the time of every request that passed.
type diary struct {
	l     *limiter.Limit
	step  int64
	times []int64
}

func (m *diary) view(now int64) model {
	if k := len(m.times); k == 0 || !setBack(m.l, now, m.times[k-1]) {
		return m
	}
	v := &diary{l: m.l, step: m.step}
	for _, at := range m.times {
		v.times = append(v.times, min(at, m.ceil(now)))
	}
	return v
}

func (m *diary) clock(now int64) int64 { return now }
func (m *diary) floor(t int64) int64   { return t / m.step * m.step }
func (m *diary) ceil(t int64) int64    { return (t + m.step - 1) / m.step * m.step }

func (m *diary) within(t int64) (within []int64) {
	for _, at := range m.times {
		if m.floor(t)-at < m.l.Window.Microseconds() {
			within = append(within, at)
		}
	}
	return within
}

func (m *diary) free(t int64) *big.Rat { return rat(m.l.Limit - int64(len(m.within(t)))) }

func (m *diary) ready(t int64) bool {
	return m.l.MinInterval == 0 || len(m.times) == 0 ||
		m.floor(t)-m.times[len(m.times)-1] >= m.l.MinInterval.Microseconds()
}

// charge permanently forgets what has left the window: a clock that runs backwards does not
// restore it.
func (m *diary) charge(t, units int64, _ uint64) {
	stamp := m.ceil(t)
	if k := len(m.times); k > 0 {
		stamp = max(stamp, m.times[k-1])
	}
	m.times = m.within(t)
	for range units {
		m.times = append(m.times, stamp)
	}
	m.times = m.times[max(0, len(m.times)-int(m.l.Limit)):]
}

func (m *diary) refund(_, takenAt, units int64, _ uint64) bool {
	for ; units > 0; units-- {
		if i := slices.Index(m.times, m.ceil(takenAt)); i >= 0 {
			m.times = slices.Delete(m.times, i, i+1)
		}
	}
	return true
}

// inFlight implements concurrency: the requests in flight, and when each expires.
type inFlight struct {
	l       *limiter.Limit
	expires map[uint64]int64
}

func (m *inFlight) view(int64) model      { return m }
func (m *inFlight) clock(now int64) int64 { return now }
func (m *inFlight) ready(int64) bool      { return true }

func (m *inFlight) free(t int64) *big.Rat {
	free := m.l.Limit
	for _, at := range m.expires {
		if at > t {
			free--
		}
	}
	return rat(free)
}

func (m *inFlight) charge(t, _ int64, slot uint64) {
	for id, at := range m.expires {
		if at <= t {
			delete(m.expires, id)
		}
	}
	m.expires[slot] = t + m.l.Window.Microseconds()
}

func (m *inFlight) refund(_, _, _ int64, slot uint64) bool {
	delete(m.expires, slot)
	return true
}
