package shedder

import (
	"sync/atomic"
	"time"
)

// candidate is what other settings would do, on the same requests and samples. What it
// would have shed was let in and raised the utilization that it sees next: it runs in
// an open loop, and says more than it would shed in force.
type candidate struct {
	name     string
	settings Settings
	state    State
	winner   string
	highest  float64

	caps [MaxClasses]int64
	shed [MaxClasses]atomic.Uint64 // of 1<<32 users
	seen [MaxClasses]atomic.Uint64 // requests that it would have shed
}

func newCandidate(c Candidate) *candidate {
	n := &candidate{name: c.Name, settings: c.Settings}
	for i, class := range c.Settings.Classes {
		n.caps[i] = class.MaxInFlight
	}
	return n
}

// see counts a request that this candidate would shed.
func (c *candidate) see(class int, place uint64, inflight int64) {
	if place < c.shed[class].Load() || inflight >= c.caps[class] {
		c.seen[class].Add(1)
	}
}

func (c *candidate) tick(now time.Time, dt time.Duration, measures []Measure, d *demand) {
	c.winner, c.highest = "", 0
	if w := highest(read(&c.settings, measures, now)); w != nil {
		c.winner, c.highest = w.Name, w.Utilization
	}
	c.state = laws[c.settings.Law](c.state, dt, d.reading(c.highest), &c.settings)
	for i := range c.settings.Classes {
		c.shed[i].Store(asPlaces(share(c.state.Level, i, len(c.settings.Classes))))
	}
}

func (c *candidate) status() CandidateStatus {
	st := CandidateStatus{Name: c.name, Level: c.state.Level, Utilization: c.highest, Winner: c.winner}
	for i := range c.settings.Classes {
		st.Shed = append(st.Shed, c.seen[i].Load())
	}
	return st
}
