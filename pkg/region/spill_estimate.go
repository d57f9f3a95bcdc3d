package region

import "math"

// What PoPs publish is late and rough, and routers know how: a figure is of the instant at
// which it changes, and while it stays, demand is within a step of it. What reaches a PoP at that instant
// follows from what routers answered before, so the effect of moves is not taken for a
// change of demand.
const (
	// unsaid is the change of demand, as a share, that no node publishes.
	unsaid = 0.05
	// measuring is the time constant, in seconds, with which an edge measures demand that
	// changes little by little.
	measuring = 8.0
)

// estimate finds what each PoP's own clients ask for: what arrives there, less what others
// gave it, and more what it gave away. A figure tells that when it changes; from when the next
// may follow, only if what is expected by now differs from it by more than a step. A PoP
// that is out keeps its last estimate.
func (w *spilling) estimate() {
	for range 8 { // each turn divides the error; gifts rarely pass from one to the next
		arriving := w.sent(noticed)
		for i, name := range w.all {
			s, g := w.states[name], w.gifts[name]
			left := 1 - g.given(noticed, w.near[i])
			// Of a PoP that keeps almost nobody, too little is left to judge by.
			if !s.tells() || left <= 0.1 {
				continue
			}
			demand, least := g.Told, (1-unsaid)*g.Told
			if demand > s.Capacity { // who stays is shed, so rather too much than too little
				demand, least = demand*(1+unsaid/2), demand
			}
			switch age := w.now.Sub(g.Since); {
			case age > publishing:
				demand = max(least, min((1+unsaid)*g.Told, g.Own*left+arriving[name]))
			case age > 0:
				continue
			}
			g.Own = max(0, demand-arriving[name]) / left
			w.gifts[name] = g
		}
	}
}

// see lets Noticed follow Share: as clients do, whose answers expire evenly within a TTL (three
// equal delays in a row have the same mean and variance), and as edges measure it, who do not
// publish all at once if there are many.
func (w *spilling) see(p *Part, nodes int) {
	after := p.Share
	for i := range p.Asking {
		p.Asking[i] += (after - p.Asking[i]) * w.within(w.ttl.Seconds()/2/float64(len(p.Asking)))
		after = p.Asking[i]
	}
	p.Noticed += (after - p.Noticed) * w.within(measuring+publishing.Seconds()/2*(1-1/float64(max(nodes, 1))))
}

// within returns how much of a difference is gone after the step, with a time constant in
// seconds.
func (w *spilling) within(constant float64) float64 {
	return -math.Expm1(-w.dt / max(constant, 1e-3))
}
