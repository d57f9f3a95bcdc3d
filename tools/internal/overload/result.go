package overload

import "time"

// When each measure is taken, from the beginning of the step.
const (
	Transient = 2 * time.Second  // latencies count from then on
	Settled   = 10 * time.Second // swings count from then on
	final     = 10 * time.Second // the end of a step: its final state
)

// Result is what one run measured. Rates are shares of Capacity.
type Result struct {
	Scenario                  string
	Goodput, Offered          float64       // of the whole step
	P99                       time.Duration // from Transient on
	Critical                  float64       // share of critical attempts in the step that succeeded
	Sheds, LevelSheds, Faults int           // of the whole run; Faults are inversions
	Swing, Variation          float64       // once Settled
	Onset                     time.Duration
	Recovery                  time.Duration // from the end of the step
	LevelZero                 time.Duration
	Recovered                 float64 // in the last 10 s of the step
	LevelShare                float64 // of what is shed in the step
	Shed                      [Classes]float64
	ShedShare                 float64 // of the step
	MaxInFlight               int64   // sampled
}

// Measure takes all measures of a run of s.
func Measure(s Scenario, run Run) Result {
	step, whole := s.Plan.Span(s.Step), Span{0, s.Plan.Length()}
	r := Result{
		Scenario: s.Name,
		Goodput:  Goodput(run, step), Offered: Offered(run, step),
		P99:      P99(run, step.after(Transient)),
		Critical: Success(run, step, Critical),
		Sheds:    Sheds(run, whole), LevelSheds: LevelSheds(run, whole), Faults: Inversions(run, whole),
		Swing: Swing(run, step.after(Settled)), Variation: Variation(run, step.after(Settled)),
		Onset: Onset(run, step), Recovery: Recovery(run, Span{step.To, whole.To}),
		LevelZero:  LevelZero(run, step),
		Recovered:  Recovered(run, step.last(final)),
		LevelShare: LevelShare(run, step), Shed: ShedShares(run, step),
		ShedShare: share(run, step, func(*Attempt) bool { return true }, func(a *Attempt) bool { return a.Outcome == Shed }),
	}
	for _, sample := range run.Samples {
		r.MaxInFlight = max(r.MaxInFlight, sample.InFlight)
	}
	return r
}
