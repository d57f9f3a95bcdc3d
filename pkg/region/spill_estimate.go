package region

import "math"

// What PoPs publish is late and coarse, but in known ways: a figure is exact at the instant
// it changes, and while it stays, demand is within a step of it. What reaches a PoP at that
// instant follows from earlier answers, so the effect of moves is not mistaken for a change
// of demand.
const (
	// unpublished is the relative change of demand that no node publishes.
	unpublished = 0.05
	// measuring is the time constant, in seconds, with which an edge measures slowly
	// changing demand.
	measuring = 8.0
)

// estimate computes the demand of each PoP's own clients: what arrives there, less what
// others gave it, plus what it gave away. A figure is informative when it changes; once the
// next one is due, only if the expected value differs from it by more than a step. A PoP
// that is out keeps its last estimate.
func (w *spilling) estimate() {
	for range 8 { // each turn divides the error; gifts rarely pass from one PoP to the next
		arriving := w.sent(noticed)
		for i, name := range w.all {
			s, g := w.states[name], w.gifts[name]
			left := 1 - g.given(noticed, w.near[i])
			// If a PoP keeps almost no clients, too little is left to judge by.
			if !s.tells() || left <= 0.1 {
				continue
			}
			demand, least := g.Published, (1-unpublished)*g.Published
			if demand > s.Capacity { // those who stay are shed, so overestimate rather than underestimate
				demand, least = demand*(1+unpublished/2), demand
			}
			switch age := w.now.Sub(g.Since); {
			case age > publishing:
				demand = max(least, min((1+unpublished)*g.Published, g.Own*left+arriving[name]))
			case age > 0:
				continue
			}
			g.Own = max(0, demand-arriving[name]) / left
			w.gifts[name] = g
		}
	}
}

// see lets Noticed follow Share, first as clients do, whose answers expire evenly within a
// TTL (three equal delays in a row have the same mean and variance), then as edges measure
// it, which do not all publish at once if there are many.
func (w *spilling) see(p *Part, nodes int) {
	after := p.Share
	for i := range p.Asking {
		p.Asking[i] += (after - p.Asking[i]) * w.within(w.ttl.Seconds()/2/float64(len(p.Asking)))
		after = p.Asking[i]
	}
	p.Noticed += (after - p.Noticed) * w.within(measuring+publishing.Seconds()/2*(1-1/float64(max(nodes, 1))))
}

// within returns the fraction of a difference that is gone after the step, with a time
// constant in seconds.
func (w *spilling) within(constant float64) float64 {
	return -math.Expm1(-w.dt / max(constant, 1e-3))
}
