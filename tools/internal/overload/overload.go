// Package overload defines what a load shedder must hold and measures whether it does:
// load plans against an origin of known capacity, the outcome of every request, and
// measures of those outcomes. A simulation in virtual time and a real run of edge
// (tools/overload) follow the same plans and are measured the same way.
package overload

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
)

// The origin and its clients.
const (
	Workers     = 20                    // serve one request each at a time
	MeanService = 20 * time.Millisecond // exponentially distributed
	Capacity    = 1000                  // requests per second; C in tables: Workers / MeanService
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
	// Of what nodes estimate: the knee High of what is in flight, summed, the longest base,
	// and the rate, summed.
	Knee, Base, Rate float64
	Nodes            []shedder.Estimate // by node, in the simulation
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

// Change is what happens to the origin or to the nodes while a plan runs. A field that is 0
// changes nothing.
type Change struct {
	At       time.Duration // since the start of the run
	Slowness float64       // the service times are multiplied by it
	Delay    time.Duration // each answer comes later by this, and no worker is busy meanwhile
	Nodes    int           // how many share the origin; new ones know nothing
}

// Contender is one of the compared shedders.
type Contender struct {
	Name     string
	Settings shedder.Settings
}

// Node returns the settings of each node if several start: divided by hand, unless nodes
// estimate them.
func (c *Contender) Node(changes []Change) shedder.Settings {
	s := c.Settings
	if len(changes) == 0 || changes[0].At > 0 || changes[0].Nodes < 2 || s.AutoFrom > 0 {
		return s
	}
	n := changes[0].Nodes
	s.Signals, s.Classes = maps.Clone(s.Signals), slices.Clone(s.Classes)
	k := s.Signals[shedder.SignalInFlight]
	s.Signals[shedder.SignalInFlight] = shedder.Knees{Low: k.Low / float64(n), High: k.High / float64(n)}
	for i := range s.Classes {
		s.Classes[i].MaxInFlight = max(1, s.Classes[i].MaxInFlight/int64(n))
	}
	return s
}

// Contenders returns the table's contenders. weir must hold every bar, Estimated those for
// what changes.
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
		{Estimated, Auto()},
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

// Auto are settings chosen without measuring: they allow ten times what suits the origin and
// leave the knee to the node.
func Auto() shedder.Settings {
	s := Settings(shedder.LawPI)
	k := s.Signals[shedder.SignalInFlight]
	k.High *= 10
	s.Signals[shedder.SignalInFlight], s.AutoFrom = k, 10
	for i := range s.Classes {
		s.Classes[i].MaxInFlight *= 10
	}
	return s
}
