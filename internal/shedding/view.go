package shedding

import (
	"math"
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
)

// ShadowBias must accompany every display of what candidates would have shed.
const ShadowBias = "A candidate sees the utilization of the live settings: its count is too high while they shed less than it, too low while they shed more, exact where neither sheds. Compare candidates with each other."

// UpstreamStatus describes an upstream group, as GET /v1/shedder reports it.
type UpstreamStatus struct {
	Name        string                `json:"name"`
	At          time.Time             `json:"at,omitzero"` // time of the last sample
	Level       float64               `json:"level"`
	Utilization float64               `json:"utilization"`
	Winner      string                `json:"winner"` // the signal with the highest utilization, or ""
	Regulating  bool                  `json:"regulating"`
	Demand      float64               `json:"demand"` // requests per second
	Wanted      float64               `json:"wanted"` // part of Demand, refused only because limits were lowered
	Served      float64               `json:"served"` // requests per second
	Signals     []SignalStatus        `json:"signals"`
	Classes     []shedder.ClassStatus `json:"classes"`
	Candidates  []CandidateStatus     `json:"candidates"`
	Estimate    EstimateStatus        `json:"estimate"`
}

// EstimateStatus is what the node has learned about the origin, even if the settings do not use
// it.
type EstimateStatus struct {
	High      float64 `json:"high"`       // the knee of inflight, unbounded; 0 until a queue was seen
	Rate      float64 `json:"rate"`       // answers per second with a queue; until one was seen, the highest without
	Base      float64 `json:"base"`       // seconds that a request takes without a queue; 0 while unknown
	RoundTrip float64 `json:"round_trip"` // seconds that a request takes; 0 while unknown
	Queued    bool    `json:"queued"`     // requests queue at the origin
	Probes    uint64  `json:"probes"`     // since the start
	Undecided uint64  `json:"undecided"`  // inconclusive probes
}

// SignalStatus is a signal's value in its unit; times are in seconds.
type SignalStatus struct {
	Name        string  `json:"name"`
	Value       float64 `json:"value"`
	Low         float64 `json:"low"`
	High        float64 `json:"high"`
	Utilization float64 `json:"utilization"`
	Problem     string  `json:"problem,omitempty"` // why it does not count
}

// CandidateStatus describes what a candidate would do; see ShadowBias.
type CandidateStatus struct {
	Name        string            `json:"name"`
	Level       float64           `json:"level"`
	Utilization float64           `json:"utilization"`
	Winner      string            `json:"winner"`
	Knee        float64           `json:"knee,omitempty"` // high, of inflight
	Shed        map[string]uint64 `json:"shed"`           // by class, since the node started
}

// NewUpstreamStatus converts s for operators.
func NewUpstreamStatus(s shedder.Status) UpstreamStatus {
	u := UpstreamStatus{
		Name: s.Name, At: s.At.UTC(), Level: finite(s.Level), Utilization: finite(s.Utilization), Winner: s.Winner, Regulating: s.Regulating,
		Demand: finite(s.Demand), Wanted: finite(s.Wanted), Served: finite(s.Served),
		Signals: []SignalStatus{}, Classes: []shedder.ClassStatus{}, Candidates: []CandidateStatus{},
	}
	e := &s.Estimate
	u.Estimate = EstimateStatus{
		High: finite(e.High(s.Settings.Target)), Rate: finite(e.Rate), Base: finite(e.Base), RoundTrip: finite(e.RoundTrip()),
		Queued: e.Queued(), Probes: e.Probes, Undecided: e.Undecided,
	}
	for _, g := range s.Signals {
		u.Signals = append(u.Signals, SignalStatus{
			Name: g.Name, Value: finite(g.Value), Low: g.Knees.Low, High: g.Knees.High, Utilization: finite(g.Utilization), Problem: g.Problem,
		})
	}
	for _, c := range s.Classes {
		c.Probability, c.Demand = finite(c.Probability), finite(c.Demand)
		u.Classes = append(u.Classes, c)
	}
	for _, c := range s.Candidates {
		v := CandidateStatus{Name: c.Name, Level: finite(c.Level), Utilization: finite(c.Utilization), Winner: c.Winner, Knee: c.Knee, Shed: map[string]uint64{}}
		for i, n := range c.Shed {
			if i < len(s.Classes) {
				v.Shed[s.Classes[i].Name] = n
			}
		}
		u.Candidates = append(u.Candidates, v)
	}
	return u
}

// finite replaces values that JSON cannot represent; an application's signal may have them.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}
