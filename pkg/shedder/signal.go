package shedder

import (
	"maps"
	"slices"
	"time"
)

// Signal measures how busy something is, in its own unit. The right utilization depends on
// what is behind the edge, and an application may know best: its queue, its connection
// pool, its budget. Measure may be slow; it is never called on the request path.
type Signal interface {
	// Measure returns the value and when it was measured; the zero time if it is unknown.
	Measure(now time.Time) (value float64, at time.Time)
}

// Measure is what a Signal reported.
type Measure struct {
	Name    string
	Value   float64
	At      time.Time // zero: unknown
	Problem string    // why it is unknown, if not simply ProblemMissing
}

// The problems that exclude a signal. Its value is never guessed.
const (
	ProblemMissing = "missing"
	ProblemStale   = "stale"
	ProblemFew     = "too few samples"
)

// staleAfter is the age above which a measure is ignored.
const staleAfter = time.Second

// SignalStatus is a signal's value and its meaning.
type SignalStatus struct {
	Name        string
	Value       float64
	Knees       Knees
	Utilization float64
	Problem     string // "" if it counts
}

// read converts the measures of the signals that the settings name to utilizations, ordered
// by name.
func read(settings *Settings, e *Estimate, measures []Measure, now time.Time) []SignalStatus {
	out := make([]SignalStatus, 0, len(settings.Signals))
	for _, name := range slices.Sorted(maps.Keys(settings.Signals)) {
		st := SignalStatus{Name: name, Knees: settings.Knees(name, e), Problem: ProblemMissing}
		for i := range measures {
			m := &measures[i]
			if m.Name != name {
				continue
			}
			st.Value = m.Value
			switch {
			case m.At.IsZero() && m.Problem != "":
				st.Problem = m.Problem
			case m.At.IsZero() || m.Value != m.Value:
			case now.Sub(m.At).Abs() > staleAfter: // also rejects a time in the future
				st.Problem = ProblemStale
			default:
				st.Problem, st.Utilization = "", st.Knees.utilization(m.Value)
			}
		}
		out = append(out, st)
	}
	return out
}

// highest returns the signal with the highest utilization, nil if none counts.
func highest(signals []SignalStatus) *SignalStatus {
	var winner *SignalStatus
	for i := range signals {
		if st := &signals[i]; st.Problem == "" && (winner == nil || st.Utilization > winner.Utilization) {
			winner = st
		}
	}
	return winner
}
