package shedder

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
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
			m = w.measure(start, seen{waiting, waiting, waiting}, served, Interval)
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

func TestCPU(t *testing.T) {
	var c cpu
	require.True(t, c.measure(start, time.Second, 2).At.IsZero(), "one sample is not enough")
	var m Measure
	for i := range 50 {
		m = c.measure(start.Add(time.Duration(i+1)*Interval), time.Second+time.Duration(i+1)*150*time.Millisecond, 2)
	}
	require.InDelta(t, 0.75, m.Value, 0.01)
	require.False(t, m.At.IsZero())
	require.Positive(t, cpuTime())
}

func TestCgroupQuota(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	self := filepath.Join(root, "self")
	require.Zero(t, cgroupQuota(self, root), "no cgroups")
	write("self", "1:cpu:/old\n0::/pod/container\n")
	require.Zero(t, cgroupQuota(self, root), "no quota")
	write("pod/container/cpu.max", "max 100000\n")
	require.Zero(t, cgroupQuota(self, root))
	write("pod/container/cpu.max", "150000 100000\n")
	require.Equal(t, 1.5, cgroupQuota(self, root))
	write("pod/cpu.max", "50000 100000\n")
	require.Equal(t, 0.5, cgroupQuota(self, root), "the lowest of its ancestors")
	write("cpu.max", "nonsense")
	require.Equal(t, 0.5, cgroupQuota(self, root))
	require.Positive(t, allowedCPUs())
	require.LessOrEqual(t, allowedCPUs(), float64(runtime.GOMAXPROCS(0)))
}

func TestSchedLatency(t *testing.T) {
	v, ok := percentile99([]uint64{990, 5, 5}, []float64{0, 1, 2, math.Inf(1)})
	require.True(t, ok)
	require.Equal(t, 1.0, v)
	v, ok = percentile99([]uint64{900, 50, 50}, []float64{0, 1, 2, math.Inf(1)})
	require.True(t, ok)
	require.Equal(t, maxSchedLatency, v)
	_, ok = percentile99([]uint64{fewSamples - 1}, []float64{0, 1})
	require.False(t, ok)

	var s sched
	var m Measure
	for i := range 2 * schedRing {
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(runtime.Gosched)
		}
		wg.Wait()
		m = s.measure(start.Add(time.Duration(i) * Interval))
	}
	require.Empty(t, m.Problem)
	require.Positive(t, m.Value)
	for i := range 2 * schedRing {
		m = s.measure(start.Add(time.Duration(i) * Interval))
	}
	require.Equal(t, ProblemFew, m.Problem)
}

// queue is a signal of an application.
type queue struct {
	length float64
	block  chan struct{}
}

func (q *queue) Measure(now time.Time) (float64, time.Time) {
	if q.block != nil {
		<-q.block
	}
	return q.length, now
}

func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		settings := Defaults()
		settings.Signals = map[string]Knees{"queue": {0, 100}, "hung": {0, 1}}
		hung := &queue{block: make(chan struct{})}
		sampler := NewSampler(map[string]Signal{"queue": &queue{length: 90}, "hung": hung})
		a, b := newShedder(t, settings), newShedder(t, settings)
		done := make(chan struct{})
		go func() { defer close(done); sampler.Run(ctx, a, b) }()
		for a.Status().Winner == "" || b.Status().Winner == "" {
			<-time.After(Interval) // on the bubble's clock
		}
		for _, s := range []*Shedder{a, b} {
			st := s.Status()
			require.Equal(t, "queue", st.Winner)
			require.Equal(t, 0.9, st.Utilization)
			require.Equal(t, ProblemMissing, st.Signals[0].Problem, "a signal that blocks delays nothing")
		}
		cancel()
		<-done
		close(hung.block)
		synctest.Wait()
	})
}
