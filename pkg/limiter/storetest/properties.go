package storetest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/pkg/limiter"
)

// RunProperties compares the store with the model on the given number of random sequences
// per algorithm. They are the same in each run, unless WEIR_SOAK=1 asks for different and
// many more ones.
func RunProperties(t *testing.T, sequences int, open Open) {
	seed := "1"
	if os.Getenv("WEIR_SOAK") == "1" {
		seed, sequences = "0", sequences*100 // 0 is any
	}
	// rapid offers no other way to set these.
	for name, value := range map[string]string{"checks": strconv.Itoa(sequences), "seed": seed, "nofailfile": "true"} {
		f := flag.Lookup("rapid." + name)
		was := f.Value.String()
		require.NoError(t, f.Value.Set(value))
		t.Cleanup(func() { _ = f.Value.Set(was) })
	}
	f := func(name string, rules int, limit func(*rapid.T, string) *limiter.Limit) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				s := &sequence{T: rt, clock: &Clock{}, models: map[string]model{}}
				s.store = open(t, s.clock.Now)
				for i := range rules {
					s.limits = append(s.limits, limit(rt, fmt.Sprint("rule", i)))
				}
				s.run()
			})
		})
	}
	for _, a := range limiter.Algorithms() {
		if a != limiter.RollingWindow {
			f(a.String(), 1, func(rt *rapid.T, rule string) *limiter.Limit { return drawLimit(rt, rule, a, limiter.Ring) })
		}
	}
	for _, st := range []limiter.Storage{limiter.Ring, limiter.SortedSet} {
		f("rolling_window_"+st.String(), 1, func(rt *rapid.T, rule string) *limiter.Limit {
			return drawLimit(rt, rule, limiter.RollingWindow, st)
		})
	}
	f("several", 3, func(rt *rapid.T, rule string) *limiter.Limit {
		l := drawLimit(rt, rule, rapid.SampledFrom(limiter.Algorithms()).Draw(rt, "algorithm"), limiter.Ring)
		l.Shadow = rapid.IntRange(0, 3).Draw(rt, "shadow") == 0
		return l
	})
}

// drawLimit draws a valid limit: usually a small one, whose edges are close together.
func drawLimit(rt *rapid.T, rule string, a limiter.Algorithm, st limiter.Storage) *limiter.Limit {
	largest := int64(limiter.MaxCount)
	if a == limiter.RollingWindow || a == limiter.Concurrency {
		largest = 200 // each takes an entry
	}
	counts := []*rapid.Generator[int64]{rapid.Int64Range(1, 5), rapid.Int64Range(1, 100), rapid.Int64Range(1, largest)}
	if a == limiter.RollingWindow && st == limiter.Ring { // that changes its form, doubles and shrinks
		counts = append(counts, rapid.Int64Range(limiter.WholeLog-1, limiter.WholeLog+2), rapid.Int64Range(1, 2000))
	}
	count := rapid.OneOf(counts...)
	window := rapid.OneOf(
		rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, 24 * time.Hour, limiter.MaxRingWindow}),
		rapid.Custom(func(rt *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(1, 20_000).Draw(rt, "ms")) * time.Millisecond
		}))
	return rapid.Custom(func(rt *rapid.T) *limiter.Limit {
		l := &limiter.Limit{Rule: rule, Algorithm: a, Limit: count.Draw(rt, "limit"), Window: window.Draw(rt, "window")}
		switch a {
		case limiter.TokenBucket, limiter.LeakyBucket:
			l.Burst = count.Draw(rt, "burst")
		case limiter.RollingWindow:
			l.Storage = st
			if rapid.Bool().Draw(rt, "interval") {
				l.MinInterval = time.Duration(rapid.Int64Range(1, l.Window.Milliseconds()).Draw(rt, "ms")) * time.Millisecond
			}
		}
		switch rapid.IntRange(0, 3).Draw(rt, "denied") {
		case 0:
			l.CountDenied = a != limiter.Concurrency
		case 1:
			l.Overdraft = a == limiter.FixedWindow || a.IsBucket()
		}
		return l
	}).Filter(func(l *limiter.Limit) bool { return l.Validate() == nil }).Draw(rt, rule)
}

// sequence is a random history of one store and its models.
type sequence struct {
	*rapid.T
	clock  *Clock
	store  limiter.FullStore
	limits []*limiter.Limit
	models map[string]model // by key

	now     int64
	back    bool // the clock has run backwards
	latest  int64
	retry   int64
	slot    uint64
	taken   []*request
	history []*request // what passed
}

type request struct {
	taken
	at       int64
	returned int64 // when it was returned, or 0
}

func (s *sequence) run() {
	s.set(Epoch)
	forward := rapid.Bool().Draw(s.T, "forward")
	// A store may forget an expired key when it makes room for a new one, and a clock that
	// runs backwards would reveal that. So all keys exist from the start.
	for _, l := range s.limits {
		for _, subject := range []string{"a", "b"} {
			s.models[string(Key(subject, l))] = newModel(l)
			s.take(subject, []*limiter.Limit{l}, []int64{1}, false)
		}
	}
	for range rapid.IntRange(1, 40).Draw(s.T, "length") {
		s.move(forward)
		subject := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(s.T, "subject")
		switch op := rapid.IntRange(0, 9).Draw(s.T, "op"); {
		case op == 0 && len(s.taken) > 0:
			s.giveBack()
		default:
			limits := s.limits[:rapid.IntRange(1, len(s.limits)).Draw(s.T, "checks")]
			costs := make([]int64, len(limits))
			for i, l := range limits {
				least, most := int64(0), l.MaxCost()
				if l.Overdraft && op > 1 {
					least, most = max(-3*most, -limiter.MaxCount), min(3*most, limiter.MaxCount)
				}
				costs[i] = rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(least, most)).Draw(s.T, "cost")
			}
			s.take(subject, limits, costs, op == 1)
		}
	}
	if !s.back {
		s.bounds()
	}
}

// move sets the clock: to a random time, to where something happens, or back.
func (s *sequence) move(forward bool) {
	window := s.limits[0].Window.Microseconds()
	var by int64
	switch rapid.IntRange(0, 9).Draw(s.T, "move") {
	case 0, 1:
	case 2:
		by = rapid.Int64Range(0, 5000).Draw(s.T, "µs")
	case 3, 4:
		by = rapid.Int64Range(0, window/min(s.limits[0].Limit, window)*2).Draw(s.T, "µs")
	case 5:
		by = rapid.Int64Range(0, 2*window).Draw(s.T, "µs")
	case 6: // a boundary, or just before it
		by = window - s.now%window - rapid.Int64Range(0, 1).Draw(s.T, "before")
	case 7: // when the last refusal may end, or just before
		by = max(0, s.retry-rapid.Int64Range(0, 1).Draw(s.T, "before"))
	case 8: // in total less than the 37 days that a ring can distinguish
		by = rapid.Int64Range(0, 20*3600*1e6).Draw(s.T, "µs")
	case 9:
		if !forward {
			by = -rapid.OneOf(
				rapid.Int64Range(0, min(2*window, 5e6)),
				rapid.SampledFrom([]int64{window, window + 1, 10e6, 10e6 + 1, 3600e6}),
				rapid.Int64Range(0, 2*3600*1e6)).Draw(s.T, "µs")
			s.back = s.back || by < 0
		}
	}
	s.latest = max(s.latest, s.now)
	s.set(max(s.now+min(by, 20*3600*1e6), s.latest-maxBack))
}

// maxBack is how far a clock may be set back in total; a ring cannot distinguish more.
const maxBack = 12 * 24 * 3600 * 1e6

func (s *sequence) set(now int64) {
	s.now = now
	s.clock.Set(time.Duration(now-Epoch) * time.Microsecond)
}

// take calls the store and the models, and compares their answers.
func (s *sequence) take(subject string, limits []*limiter.Limit, costs []int64, peek bool) {
	s.slot++
	r := &request{at: s.now}
	for i, l := range limits {
		r.checks = append(r.checks, limiter.Check{Limit: l, Key: Key(subject, l), Cost: costs[i], Slot: s.slot, Peek: peek})
	}
	want := s.decide(r.checks)
	require.NoError(s, s.store.Take(context.Background(), r.checks, &r.decision))
	for i := range r.decision.Results {
		r.decision.Results[i].Source = limiter.SourceNone
	}
	require.Equal(s, want, r.decision, "at %d: %s", s.now-Epoch, describe(r.checks))
	s.retry = r.decision.RetryAfter(r.checks).Microseconds()
	if !r.decision.Allowed && !(peek && s.back) { // a peek does not settle a clock that was set back
		s.exact(r)
	}
	if r.decision.Allowed && !peek {
		s.taken, s.history = append(s.taken, r), append(s.history, r)
	}
}

// decide returns what the store must answer.
func (s *sequence) decide(checks []limiter.Check) limiter.Decision {
	d := limiter.Decision{Allowed: true, Results: make([]limiter.Result, len(checks))}
	for i, c := range checks {
		m := s.models[string(c.Key)].view(s.now)
		d.Results[i].Allowed = passes(m, c.Limit, m.clock(s.now), c.Cost)
		d.Allowed = d.Allowed && (d.Results[i].Allowed || c.Limit.Shadow)
	}
	for i, c := range checks {
		m, r := s.models[string(c.Key)].view(s.now), &d.Results[i]
		if !c.Peek {
			s.models[string(c.Key)] = m
		}
		t := m.clock(s.now)
		overdraft := c.Limit.Overdraft && c.Cost != 0
		if !c.Peek && (overdraft || c.Cost > 0 && (r.Allowed && d.Allowed || !r.Allowed && c.Limit.CountDenied)) {
			m.charge(t, c.Cost, c.Slot)
			r.Charged = r.Allowed && !overdraft
		}
		remaining, retry, reset := answer(m, c.Limit, t, c.Cost)
		if r.Allowed {
			retry = 0
		}
		r.Limit, r.Remaining, r.TakenAt = c.Limit.Limit, remaining, s.now
		r.RetryAfter, r.ResetAfter = time.Duration(retry)*time.Microsecond, time.Duration(reset)*time.Microsecond
	}
	return d
}

// exact verifies that a refused check passes when its RetryAfter is over, and not a
// microsecond earlier.
func (s *sequence) exact(r *request) {
	now := s.now
	for i, c := range r.checks {
		res := r.decision.Results[i]
		if res.Allowed || c.Limit.Algorithm == limiter.Concurrency {
			continue
		}
		c.Peek, c.Cost = true, max(0, min(c.Cost, c.Limit.MaxCost()))
		from := s.models[string(c.Key)].clock(now)
		for early, want := range []bool{true, false} {
			s.set(from + res.RetryAfter.Microseconds() - int64(early))
			var d limiter.Decision
			require.NoError(s, s.store.Take(context.Background(), []limiter.Check{c}, &d))
			require.Equal(s, want, d.Results[0].Allowed, "%d µs before the end of %s", early, res.RetryAfter)
		}
	}
	s.set(now)
}

// giveBack returns one of the requests that passed.
func (s *sequence) giveBack() {
	i := rapid.IntRange(0, len(s.taken)-1).Draw(s.T, "which")
	r := s.taken[i]
	s.taken = append(s.taken[:i], s.taken[i+1:]...)
	r.returned = s.now
	for i, c := range r.checks {
		res := &r.decision.Results[i]
		if !res.Charged || res.TakenAt > s.now && c.Limit.Algorithm != limiter.Concurrency {
			continue
		}
		m := s.models[string(c.Key)]
		if c.Limit.Algorithm != limiter.RollingWindow { // a log knows when each unit was charged
			m = m.view(s.now)
		}
		if m.refund(m.clock(s.now), res.TakenAt, c.Cost, c.Slot) {
			s.models[string(c.Key)] = m
		}
	}
	require.NoError(s, s.store.Return(context.Background(), r.checks, &r.decision))
}

func describe(checks []limiter.Check) (text string) {
	for _, c := range checks {
		text += fmt.Sprintf("%s*%d peek=%v %+v; ", c.Key, c.Cost, c.Peek, c.Limit)
	}
	return text
}
