package behavior

import (
	"math"
	"time"
)

// settle lets the score of a subject decay until now, and moves it between tiers.
func (s *subject) settle(p *Policy, now tick) {
	if passed := now.since(s.scored); passed > 0 { // callers may be a little late
		if s.score() > 0 {
			s.scale(math.Exp2(-float64(passed) / ticksPerSecond / p.HalfLife.Seconds()))
		}
		s.scored = now
	}
	last := len(p.Tiers) - 1
	s.tier = min(s.tier, uint8(last)) // of an earlier policy with more tiers
	if s.refuses {
		if now.since(s.blocked) < 0 && p.Tiers[s.tier].Refuse > 0 {
			return
		}
		s.release(p)
	}
	score := float64(s.score())
	for int(s.tier) < last && score >= p.Tiers[s.tier+1].From {
		s.tier++
	}
	for s.tier > 0 && score < p.Tiers[s.tier].Until {
		s.tier--
	}
	if t := &p.Tiers[s.tier]; t.Refuse > 0 {
		s.block(t, now)
	}
}

// scale multiplies all points. It drops anything below a hundredth of a point, so that most
// subjects have none and need no arithmetic.
func (s *subject) scale(by float64) {
	for i := range s.points {
		if s.points[i] *= float32(by); s.points[i] < 0.01 {
			s.points[i] = 0
		}
	}
}

// release ends a refusal. The remaining score puts the subject into the tier below: only
// new requests can get it refused again.
func (s *subject) release(p *Policy) {
	s.refuses = false
	t := &p.Tiers[s.tier]
	if s.tier == 0 || t.Refuse == 0 {
		return
	}
	if score := float64(s.score()); score >= t.Until {
		s.scale(t.Until / score * 0.999)
	}
	// Counts from before the refusal must not either.
	s.requests, s.total, s.lacks, s.auth, s.gone, s.broken, s.early = 0, 0, 0, 0, 0, 0, 0
	s.printCounts, s.routeCounts = [4]uint16{}, [2]uint16{}
	s.minuteWalk, s.minuteRoutes, s.longWalk, s.longRoute = walk{}, routes{}, walk{}, routes{}
}

// block refuses a subject, each time twice as long as before, up to the tier's maximum.
// After ten times the maximum, earlier refusals are forgotten.
func (s *subject) block(t *Tier, now tick) {
	if now.since(s.blocked) > ticks(10*t.RefuseMax) {
		s.strikes = 0
	}
	length := min(t.Refuse, t.RefuseMax)
	for range s.strikes {
		if length > t.RefuseMax/2 {
			length = t.RefuseMax
			break
		}
		length *= 2
	}
	s.strikes = min(s.strikes+1, 20)
	s.refuses, s.blocked = true, now+tick(ticks(length))
}

func ticks(d time.Duration) int32 { return int32(d / (time.Second / ticksPerSecond)) }

// status returns the standing of a settled subject.
func (s *subject) status(now tick) Status {
	st := Status{Tier: int(s.tier), Score: float64(s.score()), Proven: s.answers&proven > 0, denied: int(s.auth)}
	if s.refuses {
		st.Refused = time.Duration(max(0, s.blocked.since(now))) * (time.Second / ticksPerSecond)
	}
	return st
}

// reasons appends what the signals contribute to the score of a settled subject.
func (s *subject) reasons(p *Policy, list []Reason) []Reason {
	for i, points := range s.points {
		if points == 0 {
			continue
		}
		r := Reason{Signal: Signal(i), Points: float64(points), Value: float64(s.values[i]), Threshold: float64(p.Signals[i].AtLeast)}
		if r.Signal == Burst {
			r.Threshold = min(p.Signals[Burst].burst(s), r.Value) // its past may have grown since
		}
		list = append(list, r)
	}
	return list
}
