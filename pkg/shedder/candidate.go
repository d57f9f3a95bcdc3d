package shedder

import (
	"sync/atomic"
	"time"
)

// candidate computes what other settings would do with the same requests and samples. It
// runs open-loop: it sees the utilization that the live settings produce. So it overstates
// its shedding while they shed less than it would, and understates it while they shed more.
type candidate struct {
	name     string
	settings Settings
	state    State
	winner   string
	highest  float64

	knee float64 // high, of SignalInFlight; 0: it does not count

	caps [MaxClasses]atomic.Int64
	shed [MaxClasses]atomic.Uint64 // of 1<<32 users
	seen [MaxClasses]atomic.Uint64 // requests that it would have shed
}

func newCandidate(c Candidate) *candidate {
	n := &candidate{name: c.Name, settings: c.Settings}
	n.limit(&Estimate{}, 0)
	return n
}

// limit sets the knee and the caps.
func (c *candidate) limit(e *Estimate, begun int64) {
	c.knee = c.settings.Knees(SignalInFlight, e).High
	for i := range c.settings.Classes {
		c.caps[i].Store(c.settings.cap(i, e, begun))
	}
}

// see counts a request that this candidate would shed.
func (c *candidate) see(class int, position uint64, held int64) {
	if position < c.shed[class].Load() || held >= c.caps[class].Load() {
		c.seen[class].Add(1)
	}
}

// tickShadow moves the level that this candidate would have.
func (c *candidate) tickShadow(now time.Time, dt time.Duration, measures []Measure, d *demand, e *Estimate) {
	winner := highest(read(&c.settings, e, measures, now))
	c.state = next(c.state, dt, winner, d, &c.settings)
	c.winner, c.highest = "", 0
	if winner != nil {
		c.winner, c.highest = winner.Name, winner.Utilization
	}
	for i := range c.settings.Classes {
		c.shed[i].Store(asPositions(share(c.state.Level, i, len(c.settings.Classes))))
	}
}

func (c *candidate) status() CandidateStatus {
	st := CandidateStatus{Name: c.name, Level: c.state.Level, Utilization: c.highest, Winner: c.winner, Knee: c.knee}
	for i := range c.settings.Classes {
		st.Shed = append(st.Shed, c.seen[i].Load())
	}
	return st
}
