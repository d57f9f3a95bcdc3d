// Package shedding is the document with the load shedder's settings: its format, validation,
// and meaning for one upstream group. pkg/shedder decides; this package only selects the
// settings.
package shedding

import (
	"maps"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
)

// Bounds of a document. Each signal, class, group and candidate adds at least one metric
// series, and candidates are evaluated for every request.
const (
	MaxBytes      = 64 << 10
	maxSignals    = 32
	maxUpstreams  = 64
	maxCandidates = 16
	maxConditions = 64 // per class
	maxUser       = 4
	longestRetry  = time.Hour
)

// Versions of settings that were never published.
const (
	VersionBuiltIn = "built-in"
	VersionConfig  = "config"
)

// Document holds the settings of all upstream groups. Documents from Parse, Set and Defaults
// are valid and must not be changed.
type Document struct {
	// Version is not part of the document: the first 12 hex digits of the parsed text's
	// SHA-256, unless a caller sets it.
	Version string `json:"-" yaml:"-"`

	Enabled  bool     `json:"enabled" yaml:"enabled"`   // the kill switch: false sheds nothing and keeps measuring
	Law      string   `json:"law" yaml:"law"`           // pi, integrator or cap: how the level follows utilization
	Start    float64  `json:"start" yaml:"start"`       // over 0, below 1: the utilization at which overload begins
	Target   float64  `json:"target" yaml:"target"`     // over 0, at most start: the utilization to hold while shedding
	Patience Duration `json:"patience" yaml:"patience"` // 100ms to 1h: how long utilization may stay above start while demand does not exceed what is served
	Rotate   Duration `json:"rotate" yaml:"rotate"`     // 1s to 24h: how long the same users are shed

	User         []string `json:"user" yaml:"user"`                   // 1 to 4 key parts, as in a rule: the first that a request has, once, identifies its user; else its address
	RetryAfter   Span     `json:"retry_after" yaml:"retry_after"`     // {min: 1s, max: 10s} by default, each 1s to 1h: Retry-After of a refusal is random between them
	ReasonHeader bool     `json:"reason_header" yaml:"reason_header"` // refusals carry Weir-Shed-Reason, for debugging

	// Signals are {low, high} or off by name; absent: all four. A knee not named keeps its value.
	// high of inflight may be auto or {min, max}; max times start is at most each max_in_flight.
	// Other names are for an application's signals.
	Signals Signals `json:"signals" yaml:"signals"`
	// Classes are 1 to 8, most important first: name, max_in_flight (at most that of the class
	// before) and match, a list of conditions as in a rule, any of which suffices; absent: four.
	Classes      []Class   `json:"classes" yaml:"classes"`
	DefaultClass string    `json:"default_class" yaml:"default_class"`               // for requests that match none
	Upstreams    Overrides `json:"upstreams,omitempty" yaml:"upstreams,omitempty"`   // by group: law, start, target, patience, signals and max_in_flight ({class: limit}) where they differ
	Candidates   Overrides `json:"candidates,omitempty" yaml:"candidates,omitempty"` // at most 16, by name: the fields of a group. They run in shadow on top of each group's settings
}

// Span is a range of times.
type Span struct {
	Min Duration `json:"min" yaml:"min"`
	Max Duration `json:"max" yaml:"max"`
}

// Class is a priority and its requests.
type Class struct {
	Name        string       `json:"name" yaml:"name"`
	MaxInFlight int64        `json:"max_in_flight" yaml:"max_in_flight"`
	Match       Alternatives `json:"match,omitempty" yaml:"match,omitempty"`
}

// Override lists the differences of an upstream group or a candidate. nil keeps the underlying
// value.
type Override struct {
	Law         *string          `json:"law,omitempty" yaml:"law,omitempty"`
	Start       *float64         `json:"start,omitempty" yaml:"start,omitempty"`
	Target      *float64         `json:"target,omitempty" yaml:"target,omitempty"`
	Patience    *Duration        `json:"patience,omitempty" yaml:"patience,omitempty"`
	Signals     Signals          `json:"signals,omitempty" yaml:"signals,omitempty"`
	MaxInFlight map[string]int64 `json:"max_in_flight,omitempty" yaml:"max_in_flight,omitempty"`
}

// Signals are load signals by name.
type Signals map[string]Knees

// Overrides are keyed by upstream group or candidate.
type Overrides map[string]Override

// Knees are a signal's knees; nil keeps the underlying value.
type Knees struct {
	Off       bool
	Low, High *Knee
}

// Knee is a signal's value, in its unit; times are in seconds.
type Knee struct {
	Value  float64
	IsTime bool    // written as a duration
	Auto   *Bounds // the node estimates the value between these
}

// Bounds limit an estimated knee. 0 is the default: leastKnee for Min, the underlying knee for
// Max.
type Bounds struct {
	Min float64 `json:"min,omitempty" yaml:"min,omitempty"`
	Max float64 `json:"max,omitempty" yaml:"max,omitempty"`
}

// leastKnee suits a small site; below it, chance alone fills the requests in flight.
const leastKnee = 10

// timed lists the signals that are times.
var timed = map[string]bool{shedder.SignalUpstreamWait: true, shedder.SignalSchedLatency: true}

// defaultClass is the DefaultClass of documents that do not set it.
const defaultClass = "read"

// Defaults returns the settings of a node without configuration.
func Defaults() *Document {
	s := shedder.Defaults()
	d := &Document{
		Version: VersionBuiltIn, Enabled: s.Enabled, Law: s.Law, Start: s.Start, Target: s.Target,
		Patience: Duration(s.Patience), Rotate: Duration(s.Rotate),
		User:       []string{"client_ip"},
		RetryAfter: Span{Duration(time.Second), Duration(10 * time.Second)},
		Signals:    Signals{}, DefaultClass: defaultClass,
	}
	for name, k := range s.Signals {
		d.Signals[name] = Knees{Low: &Knee{Value: k.Low, IsTime: timed[name]}, High: &Knee{Value: k.High, IsTime: timed[name]}}
	}
	match := map[string]Alternatives{
		"critical": {{Headers: map[string]string{"X-Weir-Class": "critical"}}},
		"write":    {{Methods: []string{"POST", "PUT", "PATCH", "DELETE"}}},
		"test":     {{Headers: map[string]string{"X-Weir-Class": "test"}}},
	}
	for _, c := range s.Classes {
		d.Classes = append(d.Classes, Class{c.Name, c.MaxInFlight, match[c.Name]})
	}
	return d
}

// Settings returns an upstream group's settings, with the candidates based on them.
func (d *Document) Settings(group string) (shedder.Settings, error) {
	s := d.live(group)
	for _, name := range slices.Sorted(maps.Keys(d.Candidates)) {
		own := d.live(group)
		own.apply(d.Candidates[name])
		s.Candidates = append(s.Candidates, shedder.Candidate{Name: name, Settings: own.Settings})
	}
	return s.Settings, s.Validate()
}

// settings are pkg/shedder's, under construction.
type settings struct{ shedder.Settings }

// live returns a group's enforced settings.
func (d *Document) live(group string) *settings {
	s := &settings{shedder.Settings{
		Version: d.Version, Enabled: d.Enabled, Law: d.Law, Start: d.Start, Target: d.Target,
		Patience: time.Duration(d.Patience), Rotate: time.Duration(d.Rotate), Signals: map[string]shedder.Knees{},
	}}
	for _, c := range d.Classes {
		s.Classes = append(s.Classes, shedder.Class{Name: c.Name, MaxInFlight: c.MaxInFlight})
	}
	s.signals(d.Signals)
	s.apply(d.Upstreams[group])
	return s
}

func (s *settings) apply(o Override) {
	if o.Law != nil {
		s.Law = *o.Law
	}
	if o.Start != nil {
		s.Start = *o.Start
	}
	if o.Target != nil {
		s.Target = *o.Target
	}
	if o.Patience != nil {
		s.Patience = time.Duration(*o.Patience)
	}
	s.signals(o.Signals)
	for i := range s.Classes {
		if n, given := o.MaxInFlight[s.Classes[i].Name]; given {
			s.Classes[i].MaxInFlight = n
		}
	}
}

func (s *settings) signals(given Signals) {
	for name, k := range given {
		if k.Off {
			delete(s.Signals, name)
			continue
		}
		knees := s.Signals[name]
		if k.Low != nil {
			knees.Low = k.Low.Value
		}
		if k.High != nil {
			s.high(name, k.High, &knees)
		}
		s.Signals[name] = knees
	}
}

// high sets the high knee; only SignalInFlight's can be Auto.
func (s *settings) high(signal string, k *Knee, knees *shedder.Knees) {
	if k.Auto == nil {
		knees.High = k.Value
		if signal == shedder.SignalInFlight {
			s.AutoFrom = 0
		}
		return
	}
	if k.Auto.Max != 0 {
		knees.High = k.Auto.Max
	}
	if s.AutoFrom = k.Auto.Min; s.AutoFrom == 0 {
		s.AutoFrom = min(leastKnee, knees.High)
	}
}
