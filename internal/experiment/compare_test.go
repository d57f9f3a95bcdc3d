package experiment

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// from is a request of which only the client matters.
type from struct{ client netip.Addr }

func (f *from) Client() netip.Addr        { return f.client }
func (*from) Host() []byte                { return nil }
func (*from) Path() []byte                { return []byte("/") }
func (*from) Method() []byte              { return []byte("GET") }
func (*from) Header(string) ([]byte, int) { return nil, 0 }
func (*from) Cookie(string) ([]byte, int) { return nil, 0 }
func (*from) Query(string) ([]byte, int)  { return nil, 0 }
func (*from) Tier() []byte                { return nil }
func (*from) Risk() string                { return "" }
func (*from) Trusted() bool               { return false }

// keyed is what the requests of one key have in common, which is why they are no independent
// evidence.
type keyed struct {
	requests int
	errors   float64 // the share of its requests that the origin fails
	slow     float64 // by what factor its decisions are
}

// trial is a rule with an experiment in virtual time: the real assignment, a real store, and
// clients of whom some send more requests than least: the more, the larger tail is.
type trial struct {
	seed       uint64
	algorithm  string
	experiment string
	clients    int
	least      float64
	tail       float64
	lasts      int64 // in microseconds
	published  int64 // when the experiment is; the rule has run without it until then
}

func simulate(t *testing.T, seed uint64, experiment string, clients int, least, tail float64) []Measure {
	return trial{seed: seed, algorithm: "sliding_window", experiment: experiment, clients: clients, least: least, tail: tail, lasts: 60e6}.run(t)
}

func (x trial) run(t *testing.T) []Measure {
	t.Helper()
	const begins = 1_000_000_000_000_000
	load := func(experiment string) *rules.Set {
		set, err := rules.Load(fmt.Appendf(nil, "rules: [{id: a, key: [client_ip], algorithm: %s, limit: 12, window: 10s%s}]", x.algorithm, experiment))
		require.NoError(t, err)
		return set
	}
	without, set := load(""), load(fmt.Sprintf(", experiment: {name: s%d, %s}", x.seed, x.experiment))
	rule := set.Rules()[0]
	random := rand.New(rand.NewPCG(x.seed, 3))
	var now int64
	store := memory.New(memory.Config{Clock: func() int64 { return now }})
	tally := NewTally(rule, time.UnixMicro(0))
	if x.published > 0 {
		tally = NewTally(rule, time.UnixMicro(begins+x.published))
	}
	type event struct {
		at     int64
		client int
	}
	var events []event
	kinds := make([]keyed, x.clients)
	for i := range kinds {
		k := keyed{requests: int(min(300, x.least*math.Pow(random.Float64(), -x.tail))), slow: math.Exp(random.NormFloat64())}
		if random.IntN(8) == 0 {
			k.errors = random.Float64()
		}
		kinds[i] = k
		begin, lasts := random.Int64N(x.lasts/2), x.lasts/2
		if x.published > 0 {
			begin, lasts = 0, x.lasts // it was there before the experiment
		}
		for range k.requests {
			events = append(events, event{begins + begin + random.Int64N(lasts), i})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	var m rules.Match
	var d limiter.Decision
	sizes := make([]Counts, rules.Slices)
	for _, e := range events {
		now = e.at
		running := set
		if now < begins+x.published {
			running = without
		}
		require.NoError(t, running.Match(&from{netip.AddrFrom4([4]byte{10, byte(x.seed), byte(e.client >> 8), byte(e.client)})}, 1, &m))
		require.NoError(t, store.Take(context.Background(), m.Checks, &d))
		for _, p := range m.InExperiments {
			res, k := &d.Results[p.Check], &kinds[e.client]
			tally.Decided(p.Slice, &Check{
				Hash: p.Hash, Key: m.Checks[p.Check].Key, Cost: 1, At: time.UnixMicro(now), Passed: res.Allowed, Wait: res.RetryAfter,
				Took: time.Duration(float64(time.Millisecond) * k.slow * random.ExpFloat64()),
			})
			if d.Allowed {
				tally.Answered(p.Slice, time.UnixMicro(now), random.Float64() < k.errors)
			}
			sizes[p.Slice].Bytes, sizes[p.Slice].Keys = int64(100+e.client%50), 1
		}
	}
	list := tally.Counts()
	for i := range list {
		list[i].Add(&sizes[i])
	}
	return Compare(list, rule.Experiment.Cut)
}

func differing(list []Measure) (names []string) {
	for _, m := range list {
		if m.Differs {
			names = append(names, m.Name)
		}
	}
	return names
}

// Of experiments that change nothing, at most 7 in 100 show any difference.
func TestExperimentsThatChangeNothing(t *testing.T) {
	const runs, most = 1000, 70
	found, by := 0, map[string]int{}
	for seed := range runs {
		list := differing(simulate(t, uint64(seed), "share: 0.1", 300, 2, 0.9))
		for _, name := range list {
			by[name]++
		}
		if len(list) > 0 {
			found++
		}
	}
	t.Logf("%d of %d runs show a difference: %v", found, runs, by)
	require.LessOrEqual(t, found, most)
}

// Nor do more of those that are published in the middle of a window, when the rule's counters hold
// what clients have used of it and the variant's are empty.
func TestExperimentsThatBeginInAWindow(t *testing.T) {
	const runs, most = 200, 14
	found, by := 0, map[string]int{}
	for seed := range runs {
		algorithm := []string{"fixed_window", "sliding_window", "token_bucket, burst: 12", "rolling_window"}[seed%4]
		x := trial{seed: uint64(seed), algorithm: algorithm, experiment: "share: 0.1", clients: 300, least: 70, tail: 0.5, lasts: 66e6, published: 20e6 + int64(seed)*9973e3%10e6}
		list := differing(x.run(t))
		for _, name := range list {
			by[algorithm+" "+name]++
		}
		if len(list) > 0 {
			found++
		}
	}
	t.Logf("%d of %d starts show a difference: %v", found, runs, by)
	require.LessOrEqual(t, found, most)
}

// An experiment that halves a limit shows it, and shows nothing where nothing changes.
func TestExperimentsThatChangeALimit(t *testing.T) {
	const runs = 10
	by := map[string]int{}
	for seed := range runs {
		for _, m := range simulate(t, uint64(seed), "share: 0.1, limit: 6", 1000, 20, 0.3) {
			if m.Differs {
				by[m.Name]++
				require.False(t, m.Low <= 0 && m.High >= 0, "%+v", m)
			}
			if m.Name == "refused" {
				require.Greater(t, m.Tried, m.Base)
			}
		}
	}
	t.Logf("of %d runs: %v", runs, by)
	require.Equal(t, []int{runs, runs}, []int{by["refused"], by["worst_window"]})
	require.LessOrEqual(t, max(by["errors"], by["time"], by["memory"]), 2)
}

// slicesOf returns slices of which each refuses its number of ten checks.
func slicesOf(refused ...int64) (list []Counts) {
	for _, n := range refused {
		list = append(list, Counts{Checks: 10, Refused: n})
	}
	return list
}

func TestCompare(t *testing.T) {
	list := slicesOf(5, 6, 5, 6, 5, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1)
	m := Compare(list, 5)[0]
	require.Equal(t, "refused", m.Name)
	require.InDelta(t, 0.54, m.Tried, 1e-9)
	require.InDelta(t, 22.0/150, m.Base, 1e-9)
	require.True(t, m.Known && m.Differs)
	require.Less(t, m.Low, m.Tried-m.Base)
	require.Greater(t, m.High, m.Tried-m.Base)
	require.Positive(t, m.Low)
	require.Equal(t, Compare(list, 5), Compare(list, 5), "chance has a seed")

	// The other way round, all is the same with the sign changed.
	slices.Reverse(list)
	o := Compare(list, 15)[0]
	require.InDeltaSlice(t, []float64{m.Base, m.Tried}, []float64{o.Tried, o.Base}, 1e-9)
	require.InDelta(t, m.Low, -o.High, 0.1)
	require.True(t, o.Differs)
}

// What was not counted is unknown, and what never differs shows no difference. All of it can be
// written as JSON.
func TestCompareLittle(t *testing.T) {
	f := func(list []Counts, cut int, known bool) {
		t.Helper()
		out := Compare(list, cut)
		require.Len(t, out, len(measures))
		require.Equal(t, known, out[0].Known)
		require.Empty(t, differing(out))
		_, err := json.Marshal(out)
		require.NoError(t, err)
	}
	f(make([]Counts, 200), 20, false)
	f(slicesOf(0, 0, 0, 0, 0, 0), 2, true)
	f(slicesOf(10, 10, 10, 10, 10, 10), 2, true)
	f(slicesOf(3, 3, 3, 3, 3, 3), 2, true)
	one := make([]Counts, 200)
	one[0] = Counts{Checks: 5, Refused: 5}
	f(one, 20, false)
	one[100] = Counts{Checks: 5}
	f(one, 20, true)
	one[100] = Counts{Checks: math.MaxInt32, WaitMicros: math.MaxInt64, Bytes: math.MaxInt64, Keys: 1}
	f(one, 20, true)
}

// A difference that leaves no doubt is found, although nothing varies within the variants.
func TestCompareWithoutVariance(t *testing.T) {
	list := make([]Counts, 200)
	for i := range list {
		list[i] = Counts{Checks: 100, Worst: 100, Bytes: 80, Keys: 1}
		if i < 20 {
			list[i].Worst = 50
		}
	}
	out := Compare(list, 20)
	require.Equal(t, []string{"worst_window"}, differing(out))
	require.InDelta(t, -50, out[2].Low, 1)
	require.InDelta(t, -50, out[2].High, 1)
}

// The most significant of six must be six times as unlikely.
func TestHolm(t *testing.T) {
	f := func(alone []float64, want ...bool) {
		t.Helper()
		tests := make([]test, len(alone))
		for i, p := range alone {
			tests[i] = test{Measure: &Measure{}, chance: make([]float64, shuffles), alone: p}
		}
		holm(tests)
		slices.SortFunc(tests, func(a, b test) int { return cmp.Compare(a.alone, b.alone) })
		for i := range tests {
			require.Equal(t, want[i], tests[i].Differs, "%d", i)
		}
	}
	f([]float64{0.04}, true)
	f([]float64{0.02, 0.03}, true, true)
	f([]float64{0.026, 0.03}, false, false)
	f([]float64{0.9, 0.001, 0.02}, true, true, false)
	f([]float64{0.9, 0.02, 0.001, 0.9}, true, false, false, false)
}

func BenchmarkCompare(b *testing.B) {
	list := make([]Counts, rules.Slices)
	random := rand.New(rand.NewPCG(1, 1))
	for i := range list {
		list[i] = Counts{Checks: 1000, Refused: random.Int64N(100), WaitMicros: random.Int64N(1e6), Asked: 900, TookMicros: random.Int64N(1e6), Answers: 900, Errors: random.Int64N(9), Worst: random.Int64N(99), Bytes: 99, Keys: 1}
	}
	for b.Loop() {
		Compare(list, 20)
	}
}
