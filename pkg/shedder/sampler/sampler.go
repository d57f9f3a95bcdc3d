// Package sampler measures how busy the process and its application are, for shedders.
package sampler

import (
	"context"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
)

// Sampler measures the signals of the process and the application, and ticks Shedders.
type Sampler struct {
	process process
	added   []*added
}

// added is an application's signal and its last measure.
type added struct {
	name   string
	signal shedder.Signal
	mu     sync.Mutex
	last   shedder.Measure
}

// New returns a Sampler with SignalCPU, SignalSchedLatency and the application's
// signals, by name. A signal with one of those two names replaces it.
func New(signals map[string]shedder.Signal) *Sampler {
	s := &Sampler{}
	for name, signal := range signals {
		s.added = append(s.added, &added{name: name, signal: signal, last: shedder.Measure{Name: name}})
	}
	return s
}

// Run ticks the shedders every Interval until ctx ends. Each added signal is measured in
// a goroutine of its own, so that one that blocks becomes stale and delays nothing else;
// Run does not wait for it.
func (s *Sampler) Run(ctx context.Context, shedders ...*shedder.Shedder) {
	for _, a := range s.added {
		go a.run(ctx)
	}
	// Not a ticker: after a late sample, the next would follow too soon and measure too
	// little.
	timer := time.NewTimer(shedder.Interval)
	defer timer.Stop()
	for {
		now := time.Now()
		shared := s.Measures(now)
		for _, shedder := range shedders {
			shedder.Tick(now, shared)
		}
		timer.Reset(shedder.Interval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// Measures returns the measures of the process and of the added signals.
func (s *Sampler) Measures(now time.Time) []shedder.Measure {
	measures := s.process.measure(now)
	for _, a := range s.added {
		a.mu.Lock()
		measures = append(measures, a.last)
		a.mu.Unlock()
	}
	return measures
}

func (a *added) run(ctx context.Context) {
	tick := time.NewTicker(shedder.Interval)
	defer tick.Stop()
	for {
		value, at := a.signal.Measure(time.Now())
		a.mu.Lock()
		a.last = shedder.Measure{Name: a.name, Value: value, At: at}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
