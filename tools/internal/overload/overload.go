// Package overload defines what a load shedder must hold and measures whether it does:
// load plans against an origin of known capacity, the outcome of every request, and
// measures of those outcomes. A simulation in virtual time and a real run of edge
// (tools/overload) follow the same plans and are measured the same way.
package overload

import (
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
)

// The origin and its clients.
const (
	Workers     = 20                    // serve one request each at a time
	MeanService = 20 * time.Millisecond // exponentially distributed
	Capacity    = 1000                  // requests a second; C in tables: Workers / MeanService
	QueueLimit  = 4096                  // requests that wait, first in, first out; more are turned away
	Deadline    = 500 * time.Millisecond
	// RetryDelay is how soon a client of a retry storm retries, whatever Retry-After
	// says: it waits this long, plus a random time of up to as much again.
	RetryDelay = 100 * time.Millisecond
	// Interval is how often a Run is sampled.
	Interval = shedder.Interval
	// Users send requests, each as often as the others.
	Users = 10_000
)

// The classes, as indexes; first kept to first shed.
const (
	Critical = iota
	Write
	Read
	Test
	Classes
)

// Outcome is how one attempt ended.
type Outcome uint8

// The outcomes.
const (
	Answered Outcome = iota // by the origin, within the deadline
	Shed                    // refused by the shedder
	Failed                  // admitted and not answered within the deadline, or turned away by the origin
)

// Attempt is one request.
type Attempt struct {
	Due     time.Duration // when it was to be sent, since the start of the run
	Sent    time.Duration // when it was sent, if that was later
	Took    time.Duration // from Due to the answer; of one without an answer, at least Deadline
	Class   int
	Outcome Outcome
	Capped  bool // shed by a hard cap and not by the level
	Retry   bool // repeats one that was shed or failed
}

// Sample is the shedder's state at one moment.
type Sample struct {
	At          time.Duration // since the start of the run
	Level       float64
	Signal      string // with the highest utilization; "" if unknown
	InFlight    int64
	Probability []float64 // of shedding, by class
}

// Run is what happened: every attempt, in any order, and a sample per Interval.
type Run struct {
	Attempts []Attempt
	Samples  []Sample
}

// Step is a temporarily constant load.
type Step struct {
	For  time.Duration
	Load []float64 // by class, as a share of Capacity
	// Retries is how often a client retries an attempt that was shed or failed, each
	// time a RetryDelay after the answer or, without one, after its deadline. It
	// applies to requests first due in this step.
	Retries int
}

// Contender is one of the compared shedders.
type Contender struct {
	Name     string
	Settings shedder.Settings
}

// Contenders returns the table's contenders; the last one must hold every bar.
func Contenders() []Contender {
	none := Settings(shedder.LawCap)
	none.Enabled = false
	oneCap := Settings(shedder.LawCap)
	for i := range oneCap.Classes {
		oneCap.Classes[i].MaxInFlight = 100
	}
	// As published, utilization is the share of busy workers, and there are no caps.
	published := Settings(shedder.LawIntegrator)
	published.Custom = Published
	published.Signals = map[string]shedder.Knees{shedder.SignalInFlight: {High: Workers}}
	for i := range published.Classes {
		published.Classes[i].MaxInFlight = 1_000_000_000
	}
	return []Contender{
		{"none", none},
		{"one cap", oneCap},
		{"published", published},
		{"integrator", Settings(shedder.LawIntegrator)},
		{"weir", Settings(shedder.LawPI)},
	}
}

// Settings suit the origin, whatever the law. The in-flight knees follow from the
// origin's capacity (Little's law): at Capacity, 20 requests are being served, and each
// further one waits a millisecond longer.
func Settings(law string) shedder.Settings {
	s := shedder.Defaults()
	s.Version, s.Law = "overload", law
	s.Signals[shedder.SignalInFlight] = shedder.Knees{Low: 0, High: 80}
	for i, limit := range []int64{120, 110, 100, 90} {
		s.Classes[i].MaxInFlight = limit
	}
	return s
}
