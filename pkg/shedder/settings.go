package shedder

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/field"
)

// MaxClasses is the most classes that settings may have.
const MaxClasses = 8

// The signals that every Shedder has. It measures the first two itself; a Sampler
// measures the others, which describe the process.
const (
	SignalInFlight     = "inflight"      // requests sent and not yet answered, except while they wait for their clients
	SignalUpstreamWait = "upstream_wait" // seconds that a request waits for its answer, including those still waiting
	SignalCPU          = "cpu"           // CPU time used, as a share of what the process may use
	SignalSchedLatency = "sched_latency" // seconds that goroutines wait to run, 99th percentile
)

// The laws.
const (
	LawPI         = "pi"         // excess demand shortens its patience; then it regulates the admitted rate
	LawIntegrator = "integrator" // Stripe's law, corrected
	LawCap        = "cap"        // only the caps: the level stays 0
)

// Settings decide when to shed and whom.
type Settings struct {
	// Version identifies the settings in every refusal.
	Version string
	// Enabled is the kill switch: false sheds nothing but keeps measuring.
	Enabled bool
	Law     string
	// Custom, if set, replaces Law. Only a program can set it, to compare laws.
	Custom Law
	// Start is the utilization at which overload begins; Target is what the law aims at
	// while shedding; 0 < Target <= Start < 1.
	Start, Target float64
	// Patience is how long utilization may stay at Start while demand does not exceed what
	// is served. LawPI loses patience sooner the more demand exceeds that.
	Patience time.Duration
	// Rotate is how long the same users are shed before others take their turn.
	Rotate time.Duration
	// Signals are the signals that count, with their knees.
	Signals map[string]Knees
	// AutoFrom, unless 0, lets the node estimate the knee High of SignalInFlight: between
	// AutoFrom and the High in Signals. Caps apply to that High; they shrink with the
	// estimate.
	AutoFrom float64
	// Classes are ordered by importance: the last one is shed first.
	Classes []Class
	// Candidates run in shadow.
	Candidates []Candidate
}

// Knees map a signal to a utilization: 0 up to Low, 1 from High, linear between. They are
// in the signal's own unit; times are in seconds.
type Knees struct{ Low, High float64 }

// Class is a priority.
type Class struct {
	Name string
	// MaxInFlight is how many requests, of all classes, may be in flight before requests
	// of this class are refused, whatever the level.
	MaxInFlight int64
}

// Candidate is settings that run in shadow alongside the live ones. Its own Enabled and
// Candidates are ignored.
type Candidate struct {
	Name     string
	Settings Settings
}

// Defaults suit a node in front of an origin with unknown capacity: they leave room for
// about a thousand requests in flight.
func Defaults() Settings {
	return Settings{
		Version: "built-in", Enabled: true, Law: LawPI,
		Start: 0.8, Target: 0.7, Patience: 28 * time.Second, Rotate: time.Minute,
		Signals: map[string]Knees{
			SignalInFlight:     {0, 800},
			SignalUpstreamWait: {0.5, 5},
			SignalSchedLatency: {0.010, 0.100},
			SignalCPU:          {0.60, 0.98},
		},
		Classes: []Class{{"critical", 1000}, {"write", 900}, {"read", 800}, {"test", 700}},
	}
}

// Validate returns all faults as field.Errors, or nil.
func (s *Settings) Validate() error {
	var errs field.Errors
	fault := errs.Add
	if s.Custom == nil && laws[s.Law] == nil {
		fault("law", "must be pi, integrator or cap (got %q)", s.Law)
	}
	if !(s.Start > 0 && s.Start < 1) {
		fault("start", "must be greater than 0 and less than 1 (got %v)", s.Start)
	}
	if !(s.Target > 0 && s.Target <= s.Start) {
		fault("target", "must be greater than 0 and at most start, %v (got %v)", s.Start, s.Target)
	}
	if s.Patience < Interval || s.Patience > time.Hour {
		fault("patience", "must be between %v and 1h (got %v)", Interval, s.Patience)
	}
	if s.Rotate < time.Second || s.Rotate > 24*time.Hour {
		fault("rotate", "must be between 1s and 24h (got %v)", s.Rotate)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Signals)) {
		k := s.Signals[name]
		switch at := "signals." + name; {
		case math.IsNaN(k.Low) || math.IsInf(k.Low, 0) || k.Low < 0:
			fault(at+".low", "must be 0 or more (got %v)", k.Low)
		case math.IsNaN(k.High) || math.IsInf(k.High, 0) || k.High <= k.Low:
			fault(at+".high", "must be greater than low, %v (got %v)", k.Low, k.High)
		}
	}
	s.validateAuto(fault)
	s.validateClasses(fault)
	names := map[string]bool{}
	for i, c := range s.Candidates {
		if names[c.Name] {
			fault(fmt.Sprintf("candidates[%d].name", i), "%q is taken; choose another", c.Name)
		}
		names[c.Name] = true
		own := c.Settings
		own.Candidates = nil
		if len(own.Classes) != len(s.Classes) {
			fault("candidates."+c.Name+".classes", "must be as many as the live classes, %d (got %d)", len(s.Classes), len(own.Classes))
		}
		errs.Take("candidates."+c.Name, own.Validate())
	}
	return errs.Err()
}

func (s *Settings) validateClasses(fault func(path, format string, args ...any)) {
	if n := len(s.Classes); n < 1 || n > MaxClasses {
		fault("classes", "must be 1 to %d (got %d)", MaxClasses, n)
	}
	names := map[string]bool{}
	for i, c := range s.Classes {
		at := fmt.Sprintf("classes[%d]", i)
		switch {
		case c.Name == "":
			fault(at+".name", "must be set")
		case names[c.Name]:
			fault(at+".name", "%q is taken; choose another", c.Name)
		}
		names[c.Name] = true
		if c.MaxInFlight < 1 {
			fault(at+".max_in_flight", "must be at least 1 (got %d)", c.MaxInFlight)
		}
		if i > 0 && c.MaxInFlight > s.Classes[i-1].MaxInFlight {
			fault(at+".max_in_flight", "must be at most that of %s, a more important class, %d (got %d)", s.Classes[i-1].Name, s.Classes[i-1].MaxInFlight, c.MaxInFlight)
		}
	}
}

// validateAuto checks the bounds of an estimated knee. The caps belong to the upper one.
func (s *Settings) validateAuto(fault func(path, format string, args ...any)) {
	k, counts := s.Signals[SignalInFlight]
	if s.AutoFrom == 0 || !counts {
		return
	}
	at := "signals." + SignalInFlight + ".high."
	switch {
	case !(s.AutoFrom >= 1 && s.AutoFrom > k.Low): // true for NaN
		fault(at+"min", "must be at least 1 and greater than low, %v (got %v)", k.Low, s.AutoFrom)
	case s.AutoFrom > k.High:
		fault(at+"min", "must be at most max, %v (got %v)", k.High, s.AutoFrom)
	}
	if n := len(s.Classes); n > 0 && float64(s.Classes[n-1].MaxInFlight) < s.Start*k.High {
		least := s.Classes[n-1]
		fault(at+"max", "must be at most %.0f: max_in_flight of %s, %d, belongs to this max, shrinks with the estimate, and must stay above start, %v of it; lower max, or raise max_in_flight (got %v)",
			math.Floor(float64(least.MaxInFlight)/s.Start), least.Name, least.MaxInFlight, s.Start, k.High)
	}
}

// clone returns a deep copy.
func (s *Settings) clone() Settings {
	c := *s
	c.Signals = maps.Clone(s.Signals)
	c.Classes = slices.Clone(s.Classes)
	c.Candidates = make([]Candidate, len(s.Candidates))
	for i := range s.Candidates {
		c.Candidates[i] = Candidate{s.Candidates[i].Name, s.Candidates[i].Settings.clone()}
	}
	return c
}

// Knees returns the knees of a signal; e provides the one that the settings leave to the
// node.
func (s *Settings) Knees(name string, e *Estimate) Knees {
	k := s.Signals[name]
	if name == SignalInFlight && s.AutoFrom > 0 {
		if high := e.High(s.Target); high > 0 {
			k.High = min(k.High, max(s.AutoFrom, high))
		}
	}
	return k
}

// cap returns how many requests may be in flight before requests of a class are refused.
// With an estimated knee, the cap on requests waiting for an answer keeps the same distance
// from the knee as in the settings; begun, the requests in flight that already have an
// answer or wait for their clients, count only against the cap in the settings.
func (s *Settings) cap(class int, e *Estimate, begun int64) int64 {
	limit := s.Classes[class].MaxInFlight
	if k, counts := s.Signals[SignalInFlight]; counts && s.AutoFrom > 0 {
		share := s.Knees(SignalInFlight, e).High / k.High
		limit = min(limit, max(1, int64(math.Ceil(float64(limit)*share)))+begun)
	}
	return limit
}

// utilization converts a signal's value.
func (k Knees) utilization(v float64) float64 {
	return min(1, max(0, (v-k.Low)/(k.High-k.Low)))
}

// at returns the value that corresponds to a utilization.
func (k Knees) at(utilization float64) float64 { return k.Low + utilization*(k.High-k.Low) }
