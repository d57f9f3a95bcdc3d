package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weir-edge/weir/tools/internal/overload"
)

// trace writes a run second by second, as CSV, to the folder of -trace, to show details that the
// figures omit.
func (o *options) trace(kind string, c overload.Contender, s overload.Scenario, run overload.Run) error {
	if o.traces == "" {
		return nil
	}
	if err := os.MkdirAll(o.traces, 0o755); err != nil {
		return err
	}
	type second struct {
		offered, answered, failed, byLevel, byCap int
		level, inflight, samples                  float64
		knee, base, rate                          float64
		signal                                    string // of the last sample
	}
	seconds := make([]second, s.Plan.Length()/time.Second+2)
	at := func(d time.Duration) *second { return &seconds[min(int(d/time.Second), len(seconds)-1)] }
	for _, a := range run.Attempts {
		sec := at(a.Due)
		sec.offered++
		switch {
		case a.Capped:
			sec.byCap++
		case a.Outcome == overload.Shed:
			sec.byLevel++
		case a.Outcome == overload.Failed:
			sec.failed++
		default:
			sec.answered++
		}
	}
	for _, sample := range run.Samples {
		sec := at(sample.At)
		sec.level, sec.inflight, sec.samples = sec.level+sample.Level, sec.inflight+float64(sample.InFlight), sec.samples+1
		sec.signal = sample.Signal
		sec.knee, sec.base, sec.rate = sample.Knee, sample.Base, sample.Rate
	}
	var b strings.Builder
	b.WriteString("second,offered,answered,failed,shed by level,shed by cap,p99 ms,level,in flight,signal,knee,base ms,rate\n")
	for i, sec := range seconds {
		span := overload.Span{From: time.Duration(i) * time.Second, To: time.Duration(i+1) * time.Second}
		samples := max(sec.samples, 1)
		fmt.Fprintf(&b, "%d,%d,%d,%d,%d,%d,%d,%.3f,%.1f,%s,%.0f,%.1f,%.0f\n", i, sec.offered, sec.answered, sec.failed, sec.byLevel, sec.byCap,
			overload.P99(run, span).Milliseconds(), sec.level/samples, sec.inflight/samples, sec.signal, sec.knee, 1000*sec.base, sec.rate)
	}
	return os.WriteFile(filepath.Join(o.traces, fmt.Sprintf("%s-%s-%s.csv", kind, c.Name, s.Name)), []byte(b.String()), 0o644)
}
