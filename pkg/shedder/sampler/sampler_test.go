package sampler

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

	"github.com/weir-edge/weir/pkg/shedder"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func shedderFor(t *testing.T, settings shedder.Settings) *shedder.Shedder {
	s, err := shedder.New("a", settings)
	require.NoError(t, err)
	return s
}

func TestCPU(t *testing.T) {
	var c cpu
	require.True(t, c.measure(begin, time.Second, 2).At.IsZero(), "one sample is not enough")
	var m shedder.Measure
	for i := range 50 {
		m = c.measure(begin.Add(time.Duration(i+1)*shedder.Interval), time.Second+time.Duration(i+1)*150*time.Millisecond, 2)
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
	var m shedder.Measure
	for i := range 2 * schedRing {
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(runtime.Gosched)
		}
		wg.Wait()
		m = s.measure(begin.Add(time.Duration(i) * shedder.Interval))
	}
	require.Empty(t, m.Problem)
	require.Positive(t, m.Value)
	for i := range 2 * schedRing {
		m = s.measure(begin.Add(time.Duration(i) * shedder.Interval))
	}
	require.Equal(t, shedder.ProblemFew, m.Problem)
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
		settings := shedder.Defaults()
		settings.Signals = map[string]shedder.Knees{"queue": {High: 100}, "hung": {High: 1}}
		hung := &queue{block: make(chan struct{})}
		s := New(map[string]shedder.Signal{"queue": &queue{length: 90}, "hung": hung})
		a, b := shedderFor(t, settings), shedderFor(t, settings)
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx, a, b) }()
		for a.Status().Winner == "" || b.Status().Winner == "" {
			<-time.After(shedder.Interval) // on the bubble's clock
		}
		for _, each := range []*shedder.Shedder{a, b} {
			st := each.Status()
			require.Equal(t, "queue", st.Winner)
			require.Equal(t, 0.9, st.Utilization)
			require.Equal(t, shedder.ProblemMissing, st.Signals[0].Problem, "a signal that blocks delays nothing")
		}
		cancel()
		<-done
		close(hung.block)
		synctest.Wait()
	})
}
