package shedder

import "sync/atomic"

// Only who sends requests distinguishes an overloaded origin from a few users whose requests
// take long. So two laws run side by side. One counts of each user only its share of the
// requests waiting, and sheds what is sent within these shares. The other counts all
// requests, and sheds what users send beyond their shares.

type side uint8

const (
	within side = iota // its user's share
	beyond
	sides
)

const (
	// A user's share is this part of the requests waiting, as a divisor, but at least leastShare.
	shareDivisor, leastShare = 32, 3
	// places is how many counters the users share, so that few meet in one.
	places = 8192
)

// users counts the waiting requests of each user.
type users [places]atomic.Int32

func (u *users) of(user uint64) *atomic.Int32 { return &u[user%places] }

// seen is what users have waiting.
type seen struct {
	within int64 // each user's share
	light  int64 // of users that wait for no more than that
	users  int64
}

func (u *users) count(share int64) (s seen) {
	for i := range u {
		n := int64(u[i].Load())
		if n <= 0 {
			continue
		}
		s.users++
		s.within += min(n, share)
		if n <= share {
			s.light += n
		}
	}
	return s
}

// wait counts one more request that waits for the upstream, or one less.
func (p *Permit) wait(by int32) {
	p.user.Add(by)
	p.shedder.waiting.Add(int64(by))
}

// control is a law with what it sees.
type control struct {
	state    State
	wait     wait
	measures []Measure
	signals  []SignalStatus
	winner   *SignalStatus // nil if no signal counts
}

// utilization returns the winner's utilization, or 0 if no signal counts.
func (c *control) utilization() float64 {
	if c.winner == nil {
		return 0
	}
	return c.winner.Utilization
}

// read takes the measures of one interval.
func (c *control) read(t *ticker, inFlight int64, wait Measure, shared []Measure) {
	c.measures = append([]Measure{{Name: SignalInFlight, Value: float64(inFlight), At: t.at}, wait}, shared...)
	c.signals = read(&t.settings, &t.estimate, c.measures, t.at)
	c.winner = highest(c.signals)
}

// levels returns those of both sides.
func (t *ticker) levels() [sides]float64 {
	return [sides]float64{t.sides[within].state.Level, t.sides[beyond].state.Level}
}

// shown returns the control that describes the site. Where hardly anyone gets answers within
// shares, one user may be all that the site has.
func (t *ticker) shown() *control {
	if t.sides[within].wait.rate() >= fewAnswers {
		return &t.sides[within]
	}
	return &t.sides[beyond]
}

// inFlight returns what an Estimate is to learn from. What a user has waiting beyond its share
// counts as if it took as long as the requests of light users, if these get answers.
func (t *ticker) inFlight(waiting int64) float64 {
	light, all := &t.sides[within].wait, &t.sides[beyond].wait
	if t.excess == 0 || light.rate() < fewAnswers {
		return float64(waiting)
	}
	return min(float64(waiting), light.lightly()*all.rate()/light.rate())
}

// rate returns the answers per second, and lightly the requests of light users that wait, both
// over a second.
func (w *wait) rate() float64    { return sum(&w.served) / max(sum(&w.seconds), Interval.Seconds()) }
func (w *wait) lightly() float64 { return sum(&w.light) / max(sum(&w.seconds), Interval.Seconds()) }

func sum(list *[waitSamples]float64) (total float64) {
	for _, v := range list {
		total += v
	}
	return total
}
