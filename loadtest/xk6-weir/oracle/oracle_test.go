package oracle

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func at(o *Options) (*int64, *Oracle) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC).UnixMicro()
	o.Now = func() (wall, running int64) { return now, now }
	o.ClockError = time.Nanosecond
	return &now, New(*o)
}

// The series must agree with a plain list.
func TestSeries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct{ at, amount int64 }
		s, list := newSeries(), []entry{}
		for i := range rapid.IntRange(1, 60).Draw(t, "entries") {
			e := entry{rapid.Int64Range(0, 50).Draw(t, "at"), rapid.Int64Range(1, 3).Draw(t, "amount")}
			s.add(e.at, e.amount, int64(i))
			list = append(list, e)
		}
		cut := rapid.Int64Range(-1, 30).Draw(t, "cut")
		s.prune(cut)
		for x := max(0, cut); x <= 51; x++ {
			var sum, n int64
			for _, e := range list {
				if e.at <= x {
					sum, n = sum+e.amount, n+1
				}
			}
			require.Equal(t, sum, s.upTo(x))
			require.Equal(t, n, s.number(x))
		}
	})
}

func TestRemoveLast(t *testing.T) {
	f := newFlow()
	f.add(1, 9, 2)
	f.add(3, 4, 5)
	f.add(2, 7, 1)
	require.Equal(t, int64(5), f.sent.removeLast(&f.answered))
	require.Equal(t, int64(3), f.sent.upTo(100))
	require.Equal(t, int64(0), f.answered.upTo(6))
	require.Equal(t, int64(3), f.answered.upTo(9))
}

// One direct case per verdict.
func TestVerdicts(t *testing.T) {
	now, o := at(&Options{Fresh: true})
	require.NoError(t, o.Declare(Rule{ID: "r", Limit: 2, Window: 10 * time.Second, Burst: -1}, 0))
	ask := func(outcome Outcome, retry int64) []Verdict {
		ticket, err := o.Begin("eu-west", "r", "k", 1)
		require.NoError(t, err)
		*now += 1000
		return ticket.End(Answer{Outcome: outcome, RetryAfter: retry, Only: true, Phase: "calm"})
	}
	v := ask(Refused, 10)
	require.Len(t, v, 1)
	require.Equal(t, WronglyRefused, v[0].Kind)
	require.Empty(t, ask(Admitted, -1))
	require.Empty(t, ask(Admitted, -1))
	v = ask(Refused, 10)
	require.Equal(t, RetryAfter, v[0].Kind)
	require.Zero(t, v[0].Value)
	v = ask(Refused, 13) // 11 is possible: the ring may hold an entry 2ms longer
	require.Equal(t, 2.0, v[0].Value)
	v = ask(Refused, 9)
	require.InDelta(t, -0.995, v[0].Value, 0.01)
	v = ask(Admitted, -1)
	require.Equal(t, Overadmitted, v[0].Kind)
	require.Equal(t, int64(1), v[0].Excess)
	require.Equal(t, "calm", v[0].Phase)
	require.Equal(t, Worst{"k", time.UnixMicro(v[0].Answered), 1, 2, 10 * time.Second}, o.Report()[0].Worst)
}

// A refusal waits for the requests whose answer may explain it.
func TestRefusalWaitsForRequestsUnderWay(t *testing.T) {
	for _, end := range []struct {
		outcome Outcome
		wrong   bool
	}{{Admitted, false}, {Unknown, false}, {RefusedElsewhere, true}} {
		now, o := at(&Options{Fresh: true})
		require.NoError(t, o.Declare(Rule{ID: "r", Limit: 1, Window: time.Second, Burst: -1}, 0))
		first, err := o.Begin("", "r", "k", 1)
		require.NoError(t, err)
		second, err := o.Begin("", "r", "k", 1)
		require.NoError(t, err)
		*now += 500
		require.Empty(t, second.End(Answer{Outcome: Refused, RetryAfter: -1}))
		v := first.End(Answer{Outcome: end.outcome})
		require.Equal(t, end.wrong, len(v) == 1, end.outcome)
	}
}

// Regions share the count of a global rule; what one refuses early is not judged.
func TestRegionsCountTogether(t *testing.T) {
	now, o := at(&Options{Fresh: true})
	require.ErrorContains(t, o.Declare(Rule{ID: "r", Algorithm: "fixed_window", Limit: 2, Window: 10 * time.Second, Burst: -1, Global: true, Delay: time.Second, Nodes: 1}, 0), "delay")
	require.NoError(t, o.Declare(Rule{ID: "r", Algorithm: "fixed_window", Limit: 2, Window: 10 * time.Second, Burst: -1, Global: true}, 0))
	require.Equal(t, Everywhere, o.Place("a", "r"))
	require.Equal(t, "a", o.Place("a", "other"))
	ask := func(region string, outcome Outcome) []Verdict {
		ticket, err := o.Begin(region, "r", "k", 1)
		require.NoError(t, err)
		*now += 1000
		return ticket.End(Answer{Outcome: outcome, RetryAfter: 10})
	}
	require.Empty(t, ask("a", Refused))
	require.Empty(t, ask("a", Admitted))
	require.Empty(t, ask("b", Admitted))
	v := ask("c", Admitted)
	require.Len(t, v, 1)
	require.Equal(t, Overadmitted, v[0].Kind)
	require.Equal(t, Everywhere, v[0].Region)
	require.Equal(t, []int64{3, 1, 1}, []int64{o.Report()[0].Admitted, o.Report()[0].Refused, o.Report()[0].Unjudged})
}

// Another region's store counts separately.
func TestRegionsCountApart(t *testing.T) {
	now, o := at(&Options{Fresh: true})
	require.NoError(t, o.Declare(Rule{ID: "r", Limit: 1, Window: time.Second, Burst: -1}, 0))
	for _, region := range []string{"a", "b"} {
		ticket, err := o.Begin(region, "r", "k", 1)
		require.NoError(t, err)
		*now++
		require.Empty(t, ticket.End(Answer{}))
	}
}

func TestReplace(t *testing.T) {
	now, o := at(&Options{Fresh: true})
	require.NoError(t, o.Declare(Rule{ID: "r", Limit: 1, Window: time.Second, Burst: -1}, 0))
	ask := func(outcome Outcome) []Verdict {
		ticket, err := o.Begin("", "r", "k", 1)
		require.NoError(t, err)
		*now += 10
		return ticket.End(Answer{Outcome: outcome, RetryAfter: -1})
	}
	require.Empty(t, ask(Admitted))
	require.NoError(t, o.Declare(Rule{ID: "r", Limit: 3, Window: time.Second, Burst: -1}, 2*time.Second))
	for range 5 {
		require.Empty(t, ask(Admitted))
	}
	*now += 2_000_000
	require.Empty(t, ask(Refused), "may be due to unjudged requests")
	*now += 2_000_000
	require.Len(t, ask(Refused), 1)
	for range 3 {
		require.Empty(t, ask(Admitted))
	}
	require.Len(t, ask(Admitted), 1)
	require.Equal(t, int64(1), o.Report()[0].Unjudged)
}

// After the clock is set, earlier counts accuse nobody.
func TestClockIsSet(t *testing.T) {
	for _, step := range []int64{-500_000, 500_000} {
		wall := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC).UnixMicro()
		running := int64(0)
		o := New(Options{Fresh: true, Now: func() (int64, int64) { return wall, running }})
		require.NoError(t, o.Declare(Rule{ID: "r", Limit: 1, Window: time.Second, Burst: -1}, 0))
		pass := func(us int64) { wall, running = wall+us, running+us }
		ask := func(outcome Outcome) []Verdict {
			ticket, err := o.Begin("", "r", "k", 1)
			require.NoError(t, err)
			pass(10)
			return ticket.End(Answer{Outcome: outcome, RetryAfter: -1})
		}
		require.Empty(t, ask(Admitted))
		pass(500_000)
		wall += step
		require.Empty(t, ask(Refused))
		pass(500_000)
		require.Empty(t, ask(Admitted), "a second has passed")
		pass(2_000_000)
		require.Empty(t, ask(Admitted))
		require.Len(t, ask(Admitted), 1)
		pass(2_000_000)
		require.Len(t, ask(Refused), 1)
	}
}

// A delay between reading one clock and the other is not a clock change.
func TestClocksReadApart(t *testing.T) {
	reads := int64(0)
	o := New(Options{Now: func() (int64, int64) {
		reads++
		return reads, reads + reads%3/2*50_000 // late at every third
	}})
	require.NoError(t, o.Declare(Rule{ID: "r", Limit: 1, Window: time.Second, Burst: -1}, 0))
	before, _ := o.rules.Load("r")
	for range 100 {
		o.now()
	}
	after, _ := o.rules.Load("r")
	require.Same(t, before, after)
}

// Memory does not grow with time or keys.
func TestMemoryIsBounded(t *testing.T) {
	now, o := at(&Options{Fresh: true, MaxKeys: 640, MaxRequests: 100})
	require.NoError(t, o.Declare(Rule{ID: "r", Limit: 50, Window: 100 * time.Millisecond, Burst: -1}, 0))
	require.NoError(t, o.Declare(Rule{ID: "b", Algorithm: "token_bucket", Limit: 1000, Window: 100 * time.Millisecond, Burst: -1}, 0))
	for i := range 20_000 {
		for _, id := range []string{"r", "b"} {
			hot, err := o.Begin("", id, "hot", 1)
			require.NoError(t, err)
			cold, err := o.Begin("", id, fmt.Sprint(i), 1)
			require.NoError(t, err)
			*now += 150
			outcome := Admitted
			if i%50 == 49 {
				outcome = Refused // rarely wrong enough to matter: the test is about memory
			}
			hot.End(Answer{Outcome: outcome, RetryAfter: -1})
			cold.End(Answer{})
		}
	}
	require.LessOrEqual(t, o.Keys(), 640+2*shardCount)
	for i := range o.shards {
		for _, c := range o.shards[i].counts {
			require.LessOrEqual(t, len(c.maybe.sent.at), 200)
			require.LessOrEqual(t, len(c.kept.sent.at), 200)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	o := New(Options{Fresh: true})
	require.NoError(t, o.Declare(Rule{ID: "r", Limit: 10_000, Window: time.Second, Burst: -1}, 0))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 500 {
				if ticket, err := o.Begin("", "r", fmt.Sprint(i%7), 1); err == nil {
					ticket.End(Answer{})
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, o.Finish())
	require.Equal(t, int64(4000), o.Report()[0].Admitted)
}

func TestDeclareRefuses(t *testing.T) {
	o := New(Options{})
	for want, r := range map[string]Rule{
		"id: must":           {ID: "R"},
		"limit: must":        {ID: "r"},
		"limit: more than":   {ID: "r", Limit: 60_000, Window: time.Second},
		"window: must be b":  {ID: "r", Limit: 1},
		"window: must be a ": {ID: "r", Limit: 1, Window: time.Second + 1},
		"algorithm: unknown": {ID: "r", Limit: 1, Window: time.Second, Algorithm: "guess"},
		"burst: only":        {ID: "r", Limit: 1, Window: time.Second, Burst: 1},
		"burst: must":        {ID: "r", Limit: 1, Window: time.Second, Algorithm: "token_bucket"},
		"hold: only":         {ID: "r", Limit: 1, Window: time.Second, Hold: 1},
		"min_interval: only": {ID: "r", Limit: 1, Window: time.Second, MinInterval: 1, Algorithm: "fixed_window"},
	} {
		require.ErrorContains(t, o.Declare(r, 0), want)
	}
	_, err := o.Begin("", "nobody", "k", 1)
	require.ErrorContains(t, err, "not declared")
}

func BenchmarkAdmitted(b *testing.B) {
	o := New(Options{Fresh: true})
	if err := o.Declare(Rule{ID: "r", Limit: 100, Window: time.Second, Burst: -1}, 0); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		t, _ := o.Begin("", "r", "k", 1)
		outcome := Refused
		if i%10000 < 100 {
			outcome = Admitted
		}
		t.End(Answer{Outcome: outcome, RetryAfter: 1})
	}
}
