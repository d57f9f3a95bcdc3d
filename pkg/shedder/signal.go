package shedder

import (
	"maps"
	"slices"
	"time"
)

// Signal measures how busy something is, in a unit of its own. The right utilization
// depends on what is behind the edge, and an application may know best: its queue, its
// pool of connections, its budget. Measure may be slow; it is never called on the
// path of a request.
type Signal interface {
	// Measure returns the value and when it was measured; the zero time if it is
	// unknown.
	Measure(now time.Time) (value float64, at time.Time)
}

// Measure is what a Signal said.
type Measure struct {
	Name    string
	Value   float64
	At      time.Time // zero: unknown
	Problem string    // why it is unknown, if that is not simply ProblemMissing
}

// The problems of a signal, which is then left out, and never guessed.
const (
	ProblemMissing = "missing"
	ProblemStale   = "stale"
	ProblemFew     = "too few samples"
)

// staleAfter is how old a measure may be.
const staleAfter = time.Second

// SignalStatus is what a signal says, and what that means.
type SignalStatus struct {
	Name        string
	Value       float64
	Knees       Knees
	Utilization float64
	Problem     string // "" if it counts
}

// read turns the measures of those signals that the settings name into utilizations,
// in the order of their names.
func read(settings *Settings, measures []Measure, now time.Time) []SignalStatus {
	out := make([]SignalStatus, 0, len(settings.Signals))
	for _, name := range slices.Sorted(maps.Keys(settings.Signals)) {
		st := SignalStatus{Name: name, Knees: settings.Signals[name], Problem: ProblemMissing}
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
			case now.Sub(m.At).Abs() > staleAfter: // or from a future that is none
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
