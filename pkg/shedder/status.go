package shedder

import "time"

// Status is what a Shedder measures and does.
type Status struct {
	Name        string
	Settings    Settings
	At          time.Time // of the last sample
	Level       float64
	Utilization float64
	Winner      string  // the signal with the highest utilization; "" if none counts
	Regulating  bool    // the law is holding utilization at Target
	Demand      float64 // requests per second that users want, those of Wanted included; no stall distorts it
	Wanted      float64 // of that, requests that rules refused only because of a lowered limit
	Served      float64 // requests per second that completed
	// Capacity is how many requests per second the site can serve: measured if it was full
	// within the last hour, otherwise at least this.
	Capacity   float64
	Measured   bool // Capacity is measured
	Signals    []SignalStatus
	Classes    []ClassStatus
	Candidates []CandidateStatus
	Estimate   Estimate // of the origin; computed whether or not the settings use it
}

// ClassStatus describes a class. Counts are since the start; they include those of any
// class that had the same index before.
type ClassStatus struct {
	Name        string  `json:"name"`
	InFlight    int64   `json:"in_flight"` // admitted and not done
	MaxInFlight int64   `json:"max_in_flight"`
	Probability float64 `json:"probability"` // of being shed by the level
	Demand      float64 `json:"demand"`      // requests per second that users want
	Admitted    uint64  `json:"admitted"`
	ShedByLevel uint64  `json:"shed_by_level"`
	ShedByCap   uint64  `json:"shed_by_cap"`
}

// CandidateStatus describes what other settings would do.
type CandidateStatus struct {
	Name        string
	Level       float64
	Utilization float64
	Winner      string
	Knee        float64  // high, of SignalInFlight; 0 if that does not count
	Shed        []uint64 // requests since the start that it would have shed, by class
}

// Status returns the result of the last sample.
func (s *Shedder) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.ticker
	st := Status{
		Name: s.name, Settings: t.settings.clone(), At: t.at, Level: t.state.Level,
		Regulating: t.state.Rate > 0, Served: t.demand.served.calm,
		Signals: append([]SignalStatus(nil), t.signals...), Estimate: t.estimate,
	}
	if t.winner != nil {
		st.Winner, st.Utilization = t.winner.Name, t.winner.Utilization
	}
	st.Wanted = t.demand.wanted.calm
	st.Demand = st.Wanted
	classes := len(t.settings.Classes)
	for i, class := range t.settings.Classes {
		c := &s.classes[i]
		st.Demand += t.demand.classes[i].calm
		st.Classes = append(st.Classes, ClassStatus{
			Name: class.Name, InFlight: c.held.Load(), MaxInFlight: t.settings.cap(i, &t.estimate, t.begun),
			Probability: share(t.state.Level, i, classes), Demand: t.demand.classes[i].calm,
			Admitted: c.admitted.Load(), ShedByLevel: c.byLevel.Load(), ShedByCap: c.byCap.Load(),
		})
	}
	st.Demand = t.demand.recent.bound(st.Demand)
	if st.Capacity, st.Measured = t.capacity.measured, t.capacity.measured > 0; !st.Measured {
		r := t.demand.reading(st.Utilization)
		r.Served = min(r.Served, atMost*st.Demand) // more is what waited, while the origin or this process stalled
		st.Capacity = t.capacity.atLeast(r, t.settings.Target)
	}
	for _, c := range t.candidates {
		st.Candidates = append(st.Candidates, c.status())
	}
	return st
}
