package overload

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// every returns n attempts, evenly spread over a span.
func every(span Span, n int, like Attempt) []Attempt {
	var all []Attempt
	for i := range n {
		a := like
		a.Due = span.From + (span.To-span.From)*time.Duration(i)/time.Duration(n)
		all = append(all, a)
	}
	return all
}

func TestGoodputCountsWhatWasAnsweredInTime(t *testing.T) {
	span := Span{time.Second, 3 * time.Second}
	run := Run{Attempts: every(span, 1000, Attempt{Took: 20 * ms})}
	require.InDelta(t, 0.5, Goodput(run, span), 1e-9)
	require.InDelta(t, 0.5, Offered(run, span), 1e-9)

	run.Attempts = append(run.Attempts, every(span, 600, Attempt{Outcome: Shed})...)
	run.Attempts = append(run.Attempts, every(span, 300, Attempt{Outcome: Failed, Took: Deadline})...)
	run.Attempts = append(run.Attempts, every(span, 100, Attempt{Took: Deadline + 1})...)                     // too late
	run.Attempts = append(run.Attempts, every(Span{0, time.Second}, 500, Attempt{})...)                       // before
	run.Attempts = append(run.Attempts, Attempt{Due: span.To}, Attempt{Due: span.From, Took: Deadline})       // after; at the last moment
	run.Attempts = append(run.Attempts, Attempt{Due: span.From, Took: Deadline, Outcome: Answered, Class: 1}) // counts like any class
	require.InDelta(t, 1002.0/2000, Goodput(run, span), 1e-9)
	require.InDelta(t, 2002.0/2000, Offered(run, span), 1e-9)
	require.Zero(t, Goodput(run, Span{5, 5}))
}

func TestP99IsOfAllThatWereAdmitted(t *testing.T) {
	var run Run
	for i := range 200 {
		run.Attempts = append(run.Attempts, Attempt{Took: time.Duration(i+1) * ms})
	}
	all := Span{0, time.Second}
	require.Equal(t, 198*ms, P99(run, all))
	run.Attempts = append(run.Attempts, every(all, 1000, Attempt{Outcome: Shed})...)
	require.Equal(t, 198*ms, P99(run, all))
	run.Attempts = append(run.Attempts, every(all, 10, Attempt{Outcome: Failed, Took: ms})...)
	require.Equal(t, Deadline, P99(run, all), "a failure takes the deadline at least")
	run.Attempts = append(run.Attempts, every(all, 10, Attempt{Outcome: Failed, Took: time.Second})...)
	require.Equal(t, time.Second, P99(run, all))
	require.Zero(t, P99(run, Span{time.Hour, 2 * time.Hour}))
	require.Equal(t, 7*ms, P99(Run{Attempts: []Attempt{{Took: 7 * ms}}}, all))
}

func TestSuccessIsOfOneClass(t *testing.T) {
	run := Run{Attempts: []Attempt{
		{Class: Critical}, {Class: Critical}, {Class: Critical, Outcome: Shed}, {Class: Critical, Outcome: Failed},
		{Class: Test, Outcome: Shed}, {Class: Critical, Due: time.Second, Outcome: Shed},
	}}
	require.Equal(t, 0.5, Success(run, Span{0, time.Second}, Critical))
	require.Equal(t, 1.0, Success(run, Span{0, time.Second}, Read), "nobody asked")
}

func TestRecoveredCountsRequestsAndNotRepetitions(t *testing.T) {
	all := Span{0, time.Second}
	run := Run{Attempts: []Attempt{{}, {Outcome: Shed}, {Outcome: Shed, Retry: true}, {Retry: true}, {Outcome: Failed}, {Outcome: Failed, Retry: true}}}
	require.InDelta(t, 2.0/3, Recovered(run, all), 1e-9)
	require.Equal(t, 1.0, Recovered(Run{}, all))
}

func TestSheds(t *testing.T) {
	run := Run{Attempts: []Attempt{{}, {Outcome: Shed}, {Outcome: Shed, Capped: true}, {Outcome: Failed}, {Due: time.Second, Outcome: Shed}}}
	require.Equal(t, 2, Sheds(run, Span{0, time.Second}))
	require.Equal(t, 1, LevelSheds(run, Span{0, time.Second}))
}

func TestInversions(t *testing.T) {
	f := func(want int, attempts ...Attempt) {
		t.Helper()
		require.Equal(t, want, Inversions(Run{Attempts: attempts}, Span{0, time.Minute}))
		for i := range attempts { // the order in which they are listed does not matter
			attempts[0], attempts[i] = attempts[i], attempts[0]
		}
		require.Equal(t, want, Inversions(Run{Attempts: attempts}, Span{0, time.Minute}))
	}
	at := func(due time.Duration, class int, outcome Outcome) Attempt {
		return Attempt{Due: due * ms, Class: class, Outcome: outcome}
	}
	f(0)
	f(1, at(80, Test, Answered), at(100, Read, Shed), at(120, Test, Answered))
	f(1, at(80, Test, Failed), at(100, Critical, Shed), at(120, Read, Answered))
	f(0, at(80, Test, Answered), at(100, Read, Shed))                            // the level rose at 90
	f(0, at(100, Read, Shed), at(120, Test, Answered))                           // the level fell at 110
	f(0, at(70, Test, Answered), at(100, Read, Shed), at(120, Test, Answered))   // 30 ms before
	f(0, at(80, Test, Answered), at(100, Read, Shed), at(130, Test, Answered))   // 30 ms after
	f(0, at(80, Write, Answered), at(100, Read, Shed), at(120, Write, Answered)) // a higher class
	f(0, at(80, Read, Answered), at(100, Read, Shed), at(120, Read, Answered))   // the same class: in part
	f(0, at(80, Test, Shed), at(100, Read, Shed), at(120, Test, Shed))
	f(0, at(80, Test, Answered), Attempt{Due: 100 * ms, Class: Read, Outcome: Shed, Capped: true}, at(120, Test, Answered))
	f(0, at(80, Test, Answered), Attempt{Due: 100 * ms, Class: Read, Outcome: Shed, Took: 26 * ms}, at(120, Test, Answered))
	f(0, at(80, Test, Answered), Attempt{Due: 100 * ms, Sent: 130 * ms, Class: Read, Outcome: Shed, Took: 31 * ms}, at(120, Test, Answered))
	f(1, at(80, Test, Answered), Attempt{Due: 20 * ms, Sent: 100 * ms, Class: Read, Outcome: Shed, Took: 81 * ms}, at(120, Test, Answered))
	f(2, at(80, Test, Answered), at(90, Write, Shed), at(95, Read, Shed), at(100, Test, Answered))
}

func TestSwing(t *testing.T) {
	run := Run{Samples: []Sample{{At: 0, Level: 3}, {At: 100 * ms, Level: 1.5}, {At: 200 * ms, Level: 1.25}, {At: 300 * ms, Level: 1.375}, {At: 400 * ms, Level: 0}}}
	require.Equal(t, 0.25, Swing(run, Span{100 * ms, 400 * ms}))
	require.Zero(t, Swing(run, Span{time.Second, 2 * time.Second}))
}

func TestVariation(t *testing.T) {
	var run Run
	for second, n := range []int{90, 100, 110} {
		from := time.Duration(second) * time.Second
		run.Attempts = append(run.Attempts, every(Span{from, from + time.Second}, n, Attempt{})...)
	}
	span := Span{0, 3*time.Second + 500*ms}
	run.Attempts = append(run.Attempts, every(Span{3 * time.Second, span.To}, 1000, Attempt{})...) // half a second
	run.Attempts = append(run.Attempts, every(Span{0, time.Second}, 1000, Attempt{Outcome: Shed})...)
	require.InDelta(t, 0.1, Variation(run, span), 1e-9)
	require.True(t, math.IsInf(Variation(Run{}, span), 1))
	require.Zero(t, Variation(run, Span{0, 1500 * ms}))
}

func TestOnsetAndRecovery(t *testing.T) {
	step := Span{10 * time.Second, 70 * time.Second}
	run := Run{Attempts: []Attempt{
		{Due: 10*time.Second + 100*ms}, {Due: 11 * time.Second, Outcome: Shed}, {Due: 10*time.Second + 300*ms, Outcome: Shed, Capped: true},
		{Due: 72 * time.Second, Outcome: Shed}, {Due: 71 * time.Second, Outcome: Shed}, {Due: 73 * time.Second, Outcome: Failed},
	}}
	require.Equal(t, 300*ms, Onset(run, step))
	after := Span{70 * time.Second, 85 * time.Second}
	require.Equal(t, 2*time.Second, Recovery(run, after))
	require.Equal(t, Never, Onset(Run{Attempts: run.Attempts[:1]}, step))
	require.Zero(t, Recovery(Run{Attempts: run.Attempts[:3]}, after))
	run.Attempts = append(run.Attempts, Attempt{Due: 84 * time.Second, Outcome: Shed})
	require.Equal(t, Never, Recovery(run, after))
}

func TestLevelZero(t *testing.T) {
	f := func(want time.Duration, levels ...float64) {
		t.Helper()
		run := Run{Samples: []Sample{{At: 900 * ms, Level: 9}}}
		for i, level := range levels {
			run.Samples = append(run.Samples, Sample{At: time.Second + time.Duration(i)*Interval, Level: level})
		}
		require.Equal(t, want, LevelZero(run, Span{time.Second, time.Minute}))
	}
	f(Never)
	f(0, 0, 0)
	f(200*ms, 2, 1, 0, 0)
	f(300*ms, 0, 1, 1, 0)
	f(Never, 1, 0, 0.01)
}

func TestMeasureLooksAtTheRightSpans(t *testing.T) {
	s := Overload(2)
	step := s.Plan.Span(1)
	run := Run{Attempts: every(step, 120_000, Attempt{Class: Read, Outcome: Shed})}
	for i := range run.Attempts {
		switch a := &run.Attempts[i]; {
		case i%2 == 0:
			a.Outcome, a.Took = Answered, 30*ms
			if a.Due < step.From+Transient {
				a.Took = 400 * ms
			}
		}
	}
	run.Attempts = append(run.Attempts, every(Span{step.To, step.To + 4*time.Second}, 4000, Attempt{Outcome: Shed, Class: Test})...)
	run.Samples = []Sample{{At: step.From, Level: 3, InFlight: 90}, {At: step.From + Settled, Level: 1.5}, {At: step.To - 1, Level: 1.4}}
	r := Measure(s, run)
	require.Equal(t, "2x", r.Scenario)
	require.InDelta(t, 1, r.Goodput, 1e-3)
	require.InDelta(t, 2, r.Offered, 1e-3)
	require.Equal(t, 30*ms, r.P99)
	require.Equal(t, 1.0, r.Critical)
	require.Equal(t, 64_000, r.Sheds)
	require.InDelta(t, 0.1, r.Swing, 1e-9)
	require.Less(t, r.Variation, 0.01)
	require.Equal(t, 500*time.Microsecond, r.Onset)
	require.InDelta(t, 4, r.Recovery.Seconds(), 0.01)
	require.EqualValues(t, 90, r.MaxInFlight)
	require.Zero(t, r.Faults)
	require.Equal(t, Never, r.LevelZero)
}
