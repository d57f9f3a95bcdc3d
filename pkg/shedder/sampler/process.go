package sampler

import (
	"runtime/metrics"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
)

// process measures this process.
type process struct {
	allowed allowance
	cpu     cpu
	sched   sched
}

func (p *process) measure(now time.Time) []shedder.Measure {
	return []shedder.Measure{p.cpu.measure(now, cpuTime(), p.allowed.measure(now)), p.sched.measure(now)}
}

// cpu measures the share of the allowed CPU time that the process used, over about a
// second, so that a garbage collection does not count as overload.
type cpu struct {
	at   time.Time
	used time.Duration
	mean float64
}

const cpuMemory = time.Second

func (c *cpu) measure(now time.Time, used time.Duration, allowed float64) shedder.Measure {
	m := shedder.Measure{Name: shedder.SignalCPU}
	elapsed := now.Sub(c.at)
	if !c.at.IsZero() && elapsed > 0 && used > 0 && allowed > 0 {
		share := (used - c.used).Seconds() / elapsed.Seconds() / allowed
		c.mean += (share - c.mean) * min(1, elapsed.Seconds()/cpuMemory.Seconds())
		m.Value, m.At = c.mean, now
	}
	c.at, c.used = now, used
	return m
}

const schedMetric = "/sched/latencies:seconds"

// sched measures the 99th percentile of how long runnable goroutines waited to run, over
// about a second. The runtime samples about one in eight.
type sched struct {
	sample [1]metrics.Sample
	ring   [schedRing][]uint64
	next   int
}

const (
	schedRing = 11 // per second of differences
	// fewSamples are too few: a single goroutine would decide the 99th percentile.
	fewSamples = 200
)

func (s *sched) measure(now time.Time) shedder.Measure {
	m := shedder.Measure{Name: shedder.SignalSchedLatency}
	s.sample[0].Name = schedMetric
	metrics.Read(s.sample[:])
	if s.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return m
	}
	h := s.sample[0].Value.Float64Histogram()
	before := s.ring[s.next]
	diff := make([]uint64, len(h.Counts))
	if len(before) == len(h.Counts) {
		for i := range diff {
			diff[i] = h.Counts[i] - before[i]
		}
		m.Problem = shedder.ProblemFew
		if v, ok := percentile99(diff, h.Buckets); ok {
			m.Value, m.At, m.Problem = v, now, ""
		}
	}
	s.ring[s.next] = append(before[:0], h.Counts...)
	s.next = (s.next + 1) % schedRing
	return m
}

// percentile99 returns the upper bound of the bucket that holds the 99th percentile.
func percentile99(counts []uint64, buckets []float64) (float64, bool) {
	var total, sum uint64
	for _, c := range counts {
		total += c
	}
	if total < fewSamples {
		return 0, false
	}
	for i, c := range counts {
		if sum += c; sum*100 >= total*99 {
			return min(buckets[i+1], maxSchedLatency), true
		}
	}
	return 0, false
}

// maxSchedLatency replaces the infinite bound of the last bucket.
const maxSchedLatency = 10.0
