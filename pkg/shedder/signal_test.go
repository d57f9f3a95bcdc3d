package shedder

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadLeavesOutWhatItDoesNotKnow(t *testing.T) {
	settings := Defaults()
	settings.Signals = map[string]Knees{
		"cpu": {0.5, 1}, "few": {0, 1}, "future": {0, 1}, "gone": {0, 1}, "nan": {0, 1}, "old": {0, 1}, "unknown": {0, 1},
	}
	now := start
	got := read(&settings, &Estimate{}, []Measure{
		{Name: "cpu", Value: 0.75, At: now.Add(-staleAfter)},
		{Name: "few", Problem: ProblemFew},
		{Name: "nan", Value: math.NaN(), At: now},
		{Name: "old", Value: 1, At: now.Add(-staleAfter - 1)},
		{Name: "unknown", Value: 1},
		{Name: "future", Value: 1, At: now.Add(time.Minute)},
		{Name: "not asked for", Value: 1, At: now},
	}, now)
	var problems []string
	for _, s := range got {
		problems = append(problems, s.Name+": "+s.Problem)
		require.Equal(t, s.Problem != "", s.Utilization == 0)
	}
	require.Equal(t, []string{"cpu: ", "few: too few samples", "future: stale", "gone: missing", "nan: missing", "old: stale", "unknown: missing"}, problems)
	require.Equal(t, "cpu", highest(got).Name)
	require.Equal(t, 0.5, highest(got).Utilization)
	require.Nil(t, highest(got[1:]))
}

func TestKnees(t *testing.T) {
	k := Knees{10, 20}
	for v, want := range map[float64]float64{-5: 0, 10: 0, 15: 0.5, 18: 0.8, 20: 1, 1e9: 1} {
		require.InDelta(t, want, k.utilization(v), 1e-9)
	}
	require.InDelta(t, 18, k.at(0.8), 1e-9)
}

func TestWaitIsLittlesLaw(t *testing.T) {
	var w wait
	f := func(samples int, waiting int64, served uint64, want float64, problem string) {
		t.Helper()
		var m Measure
		for range samples {
			m = w.measure(start, waiting, served, Interval)
		}
		require.InDelta(t, want, m.Value, 0.11)
		require.Equal(t, problem, m.Problem)
		require.Equal(t, problem == "", !m.At.IsZero())
	}
	f(20, 50, 10, 0.5, "")        // 100 per second
	f(30, 50, 0, 50, "")          // no answers: as if the next one came now
	f(600, 50, 0, 63, "")         // more after a longer time
	f(20, 0, 0, 0, ProblemFew)    // no requests
	f(600, 1, 0, 1, ProblemFew)   // one slow request and no load
	f(20, 1, 10, 0.01, "")        // few wait because answers are fast
	f(20, fewWaiting, 1, 0.5, "") // 10 per second
	f(20, fewWaiting, 0, 5, "")   // it may hang
}
