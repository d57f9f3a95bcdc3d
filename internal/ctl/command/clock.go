package command

import (
	"slices"
	"time"
)

// clockApart is the difference of clocks that an operator should know about.
const clockApart = time.Minute

// ahead returns how far the fleet's clock is ahead of this machine's: the median of what
// the regions' Consuls answered. One region with a wrong clock does not matter.
func (p *Program) ahead() time.Duration {
	var list []time.Duration
	for _, t := range p.opened {
		if d, known := t.Consul.Ahead(); known {
			list = append(list, d)
		}
	}
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[(len(list)-1)/2]
}

// Now returns the time by the fleet's clock. Expiry times use it, because nodes compare
// them with their own clocks.
func (p *Program) Now() time.Time { return time.Now().Add(p.ahead()) }

// WarnOfClock tells an operator whose clock is wrong why times look odd.
func (p *Program) WarnOfClock() {
	switch by := p.ahead().Round(time.Second); {
	case by > clockApart:
		p.Warn("the clock of this machine is %s behind the Consuls'; the change is dated by theirs", by)
	case by < -clockApart:
		p.Warn("the clock of this machine is %s ahead of the Consuls'; the change is dated by theirs", -by)
	}
}
