package region

import (
	"math"
	"time"
)

// Change is when a PoP's clients, and those it was given, last became free to move as fast
// as the TTL allows, and how loaded the PoP was.
type Change struct {
	At       time.Time `json:"at"`
	Own      float64   `json:"own"`             // Gift.Own then
	Capacity float64   `json:"capacity"`        // the most since
	Less     bool      `json:"less,omitempty"`  // Own fell
	Least    float64   `json:"least,omitempty"` // the capacity then
	// Relapses is how often in a row a change has filled the PoP after one that had emptied
	// it, and Relapsed when it last did.
	Relapses int       `json:"relapses,omitempty"`
	Relapsed time.Time `json:"relapsed,omitzero"`
}

// Clients are free to move for a few TTLs after a sudden change of their PoP's demand or
// capacity. Then the PoP is settled: only a limited share of its clients moves per minute.
// So whatever the figures do, a PoP moves more than that only once for each sudden change
// and once every resting; a self-reinforcing error decays to that pace.
const (
	// sudden is the relative loss of capacity that counts as a change, and grown the
	// relative change of demand. If heavy networks are among the moved clients, an estimate
	// is off by a few more percent, and by more while they move.
	sudden                  = 0.2
	grown                   = 0.1
	errorMoved, errorMoving = 0.1, 0.25
	// freeTTLs is for how many TTLs, in addition to the time of publishing, clients are
	// free.
	freeTTLs = 3
	// resting is how long a settled PoP that is not served well waits to be free again.
	resting = 15 * time.Minute
	// settledPace is the fraction of the fleet's clients that may move per minute while
	// their PoPs are settled.
	settledPace = 0.006
	// relapses is after how many of them a PoP is restless.
	relapses = 2
)

// notice finds the PoPs that have changed.
func (w *spilling) notice() {
	promised, arriving := w.sent(goal), w.sent(noticed)
	for i, name := range w.all {
		s, g := w.states[name], w.gifts[name]
		last := g.Last
		if s.tells() {
			last.Capacity = max(last.Capacity, s.Capacity)
		}
		wrong := errorMoved
		if w.free(name) {
			wrong = errorMoving
		}
		large := grown*max(g.Own, last.Own) + arriving[name]/2 + wrong*g.given(noticed, w.near[i])*g.Own
		given := g.given(goal, w.near[i])
		staying := g.Own * (1 - given)
		unserved := s.tells() && (staying+promised[name] > keepTo*s.Capacity || given > 0 && staying < returnBelow*s.Capacity)
		if last.At.IsZero() || math.Abs(g.Own-last.Own) > large || s.tells() && s.Capacity < (1-sudden)*last.Capacity ||
			unserved && w.now.Sub(last.At) >= resting {
			next := Change{At: w.now, Own: g.Own, Capacity: s.Capacity, Less: g.Own < last.Own || staying < returnBelow*s.Capacity, Least: s.Capacity}
			last = next.after(last, s.tells() && g.Own+promised[name] > giveAbove*s.Capacity)
			for to, p := range g.Parts {
				p.Most = 0
				g.Parts[to] = p
			}
		}
		g.Last = last
		w.gifts[name] = g
	}
}

// after returns c with the relapses up to it. It is one itself if demand is back that had gone,
// or capacity is gone that had come back, and all clients together would fill the PoP.
func (c Change) after(before Change, full bool) Change {
	c.Relapses, c.Relapsed = before.Relapses, before.Relapsed
	if c.At.Sub(c.Relapsed) >= resting {
		c.Relapses = 0
	}
	regrown := before.Least > 0 && before.Capacity > (1+sudden)*before.Least
	if full && !c.Less && (before.Less || regrown) {
		c.Relapses, c.Relapsed = c.Relapses+1, c.At
	}
	return c
}

// restless reports whether a PoP was asked for too much again each time that clients had come
// back to it. Until that has rested, those that it gave away do not return, and others come to it
// last and slowly. A demand that comes and goes every minute would otherwise move them every
// minute, and be shed each time until they have left.
func (w *spilling) restless(name string) bool { return w.gifts[name].Last.restless(w.now) }

func (c Change) restless(now time.Time) bool {
	return c.Relapses >= relapses && now.Sub(c.Relapsed) < resting
}

// free reports whether a PoP's clients may move fast.
func (w *spilling) free(name string) bool {
	return w.now.Sub(w.gifts[name].Last.At) < freeTTLs*w.ttl+publishing
}

// settled reports whether both PoPs are settled.
func (w *spilling) settled(from, to string) bool { return !w.free(from) && !w.free(to) }

// returnBelow returns the load below which a PoP gets its own clients back. Unless its
// demand has just fallen, the band is wider than one network, or the estimate's error while
// clients leave, can fill, so that no network comes and goes.
func (w *spilling) returnBelow(name string) float64 {
	if w.free(name) && w.gifts[name].Last.Less {
		return returnBelow
	}
	return settledBack
}

// move lets the shares follow the goals, slowly compared with the time in which clients
// follow the shares, and more slowly on the way back.
func (w *spilling) move() {
	ttl := w.ttl.Seconds()
	givers := 0
	for _, g := range w.gifts {
		if len(g.Parts) > 0 {
			givers++
		}
	}
	for i, name := range w.all {
		from, g := w.states[name], w.gifts[name]
		if len(g.Parts) == 0 {
			continue
		}
		left := settledPace * float64(len(w.all)) / float64(givers) * w.dt / 60
		for _, to := range w.near[i] {
			p, given := g.Parts[to]
			if !given {
				continue
			}
			receiver := w.states[to]
			pace := ttl / 10
			if p.Goal < p.Share && !p.cut {
				pace = ttl / 2
			}
			if p.cut && w.settled(name, to) { // what the receiver's figures do not show yet is undone at once
				p.Share = min(p.Share, max(p.Noticed, p.Goal))
			}
			off := p.Goal - p.Share
			frozen := from.Stale && from.up() || receiver.Stale && receiver.up()
			if most := w.dt / max(ttl/10, 1e-3); !frozen { // what a change moves at most
				p.Behind -= max(-most, min(most, p.Behind))
			}
			switch {
			case frozen:
			case !receiver.up():
				p.Share = p.Goal
			case w.settled(name, to), off > 0 && from.up() && w.restless(to):
				off = max(-left, min(left, off))
				left -= math.Abs(off)
				p.Share += off
			case !from.up(), math.Abs(off) < leastGift/2:
				p.Share = p.Goal
			default:
				p.Share += off * min(1, w.dt/max(pace, 1e-3))
			}
			w.see(&p, from.Nodes)
			g.Parts[to] = p
		}
	}
}
