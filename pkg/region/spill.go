package region

import (
	"maps"
	"time"
)

// How a router spills: it sends clients of a PoP that cannot serve them all to PoPs that
// can. Each PoP publishes its demand and its capacity. A router sees the effect of its
// answers late: clients keep an answer for its TTL, and PoPs publish figures every 10 s. So
// it predicts what its own moves will do (a Smith predictor: Åström and Hägglund, Advanced
// PID Control, ch. 8), and moves again only if the prediction leaves a wide band. All
// routers read the same facts, so they move alike.

// The loads at which a router acts, as fractions of a PoP's capacity. The gaps are wider
// than the steps in which figures are published, so that a single step moves no client.
const (
	giveAbove   = 0.97 // a PoP above this gives clients away,
	giveTo      = 0.93 // down to this
	returnBelow = 0.83 // a PoP below this gets its own clients back,
	returnTo    = 0.90 // up to this
	settledBack = 0.70 // returnBelow for a settled PoP
	keepTo      = 0.98 // a PoP above this keeps fewer clients of others,
	receiveTo   = 0.93 // and a PoP below this receives more, up to this,
	strainTo    = 0.96 // or up to this, if they would be shed otherwise
	leastGift   = 0.01 // fraction of a PoP's clients; less is not worth a move
)

const (
	// spillEvery is the time between two steps.
	spillEvery = time.Second
	// longestSpillStep bounds the time that a step accounts for after a pause.
	longestSpillStep = 5 * time.Second
	// staleAfter is the age of a PoP's figures at which its clients are frozen where they
	// are.
	staleAfter = time.Minute
	// publishing is how long a PoP may take to publish a change.
	publishing = 10 * time.Second
	// agreeing is the time constant with which gifts fade: less is given until the giver
	// needs more again. All routers then add the same amount, so differences in their
	// starting states fade.
	agreeing = 6 * time.Hour
)

// Part is the share, 0..1, of a PoP's clients that one other PoP gets.
type Part struct {
	Goal    float64 `json:"goal"`
	Share   float64 `json:"share"`   // follows Goal
	Noticed float64 `json:"noticed"` // the share that PoPs have measured so far
	// Asking is Share on its way to Noticed, while clients' cached answers expire.
	Asking [3]float64 `json:"asking"`
	// Most is the share at which the settled receiver was full; 0 if it was not.
	Most float64 `json:"most,omitempty"`
	// Behind is what the share in answers lacks of Share, after the router has followed a record.
	Behind float64 `json:"behind,omitempty"`
	cut    bool    // the receiver is full
}

// Given returns the share in answers.
func (p Part) Given() float64 { return max(0, p.Share-p.Behind) }

// Gift is what a PoP gives away.
type Gift struct {
	Own float64 `json:"own"` // requests per second of the PoP's own clients, wherever they are sent
	// Published is the demand that the PoP last published, and Since is when.
	Published float64         `json:"published"`
	Since     time.Time       `json:"since"`
	Parts     map[string]Part `json:"parts"`
	Out       bool            `json:"out,omitempty"` // the PoP is down or drained
	Last      Change          `json:"last"`
}

// Spill is what a router remembers of its moves.
type Spill struct {
	At    time.Time       `json:"at"`
	Gifts map[string]Gift `json:"gifts"` // by the PoP that gives
	By    string          `json:"by,omitempty"`
	Deaf  int             `json:"deaf,omitempty"` // number of PoPs with outdated figures
	Since time.Time       `json:"since"`          // when the router started, or Deaf last decreased
}

// given returns the fraction, 0..1, of a PoP's clients that go elsewhere, by one of Part's
// fields.
func (g Gift) given(by func(Part) float64, near []string) (sum float64) {
	if len(g.Parts) == 0 {
		return 0
	}
	for _, name := range near { // not the map, whose order changes the rounding
		sum += by(g.Parts[name])
	}
	return min(sum, 1)
}

// Gives reports whether any of the PoP's clients go elsewhere.
func (g Gift) Gives() bool {
	for _, p := range g.Parts {
		if p.Given() > 0 {
			return true
		}
	}
	return false
}

func goal(p Part) float64    { return p.Goal }
func noticed(p Part) float64 { return p.Noticed }

// spilling is one step.
type spilling struct {
	*chooser
	states map[string]PoPState
	gifts  map[string]Gift
	ttl    time.Duration
	now    time.Time
	dt     float64 // seconds
}

// spill returns the state that follows before. It is pure, and changes nothing that before
// refers to.
func (c *chooser) spill(before *Spill, states map[string]PoPState, ttl time.Duration, now time.Time) *Spill {
	w := &spilling{chooser: c, states: states, gifts: map[string]Gift{}, ttl: ttl, now: now}
	w.dt = max(0, min(now.Sub(before.At), longestSpillStep)).Seconds() // a clock may have been set back
	for _, name := range c.all {
		g := before.Gifts[name]
		s, parts := states[name], map[string]Part{}
		back := g.Out && s.up()
		for to, p := range g.Parts {
			if _, known := states[to]; known && (p.Share > 0 || p.Goal > 0 || p.Noticed > 1e-3 || p.Given() > 1e-3) {
				if back { // its clients return at once, as they do to any PoP that was out
					p.Goal, p.Share, p.Behind = 0, 0, 0
				}
				parts[to] = p
			}
		}
		if g.Out == s.up() || g.Last.At.After(now) || g.Last.Relapsed.After(now) {
			g.Last = Change{}
		}
		if s.tells() && (s.Demand != g.Published || g.Since.After(now)) {
			g.Published, g.Since = s.Demand, now
		}
		g.Parts, g.Out = parts, !s.up()
		w.gifts[name] = g
	}
	w.estimate()
	w.notice()
	w.allocate()
	w.move()
	maps.DeleteFunc(w.gifts, func(_ string, g Gift) bool { return g.Own == 0 && len(g.Parts) == 0 })
	next := &Spill{At: now, Gifts: w.gifts, By: before.By, Since: before.Since}
	for _, s := range states {
		if s.up() && s.Stale {
			next.Deaf++
		}
	}
	if next.Since.IsZero() || next.Deaf < before.Deaf {
		next.Since = now
	}
	return next
}

// up reports whether a PoP serves its own clients.
func (s *PoPState) up() bool { return s.Healthy && s.Drained == nil }

// tells reports whether a PoP's figures are current and say how loaded it is.
func (s *PoPState) tells() bool { return s.up() && !s.Stale && s.Capacity > 0 }

// sent returns how many requests per second each PoP gets from others, by one of Part's
// fields. It adds them up in one order, so that all routers round alike.
func (w *spilling) sent(by func(Part) float64) map[string]float64 {
	sums := map[string]float64{}
	for i, name := range w.all {
		g := w.gifts[name]
		if len(g.Parts) == 0 {
			continue
		}
		for _, to := range w.near[i] {
			if p, given := g.Parts[to]; given {
				sums[to] += by(p) * g.Own
			}
		}
	}
	return sums
}

// allocate sets the goals: as few clients as possible leave their PoP, moved clients do not
// move again without need, and no PoP gets more than fits.
func (w *spilling) allocate() {
	n := len(w.all)
	want, room, fixed := make([]float64, n), w.rooms(), make([]bool, n)
	for i, name := range w.all {
		want[i], fixed[i] = w.want(i)
		g := w.gifts[name]
		for _, to := range w.near[i] { // the nearest keep what they have
			p, given := g.Parts[to]
			if !given {
				continue
			}
			has := p.Goal * g.Own
			if fixed[i] {
				w.take(room, to, has)
				continue
			}
			keep := min(has, want[i], max(room[to].keep, 0))
			if p.cut = keep < min(has, want[i]); p.cut && w.settled(name, to) {
				p.Most = p.Share
			}
			want[i] -= keep
			w.take(room, to, keep)
			p.Goal = 0
			if g.Own > 0 {
				p.Goal = keep / g.Own
			}
			g.Parts[to] = p
		}
	}
	// A promise may exceed what the PoP can serve, so half of all promises are filled
	// first.
	half := map[string]space{}
	for name, r := range room {
		switch s := w.states[name]; {
		case w.restless(name): // the last resort
			r.more = 0
		case s.CapacityEstimated:
			r.more /= 2
		}
		half[name] = r
	}
	w.fill(want, fixed, half)
	for name, r := range half {
		if s := w.states[name]; s.CapacityEstimated && !w.restless(name) {
			half[name] = space{r.keep, r.more + room[name].more/2}
		}
	}
	w.fill(want, fixed, half)
	for i, name := range w.all { // what is still to be shed may fill the others a bit more
		s, g := w.states[name], w.gifts[name]
		if s.up() {
			want[i] = min(want[i], g.Own*(1-g.given(goal, w.near[i]))-s.Capacity)
		}
		r, ok := half[name]
		if ok && w.restless(name) {
			r.more += max(room[name].more, 0)
		}
		if ok && s.tells() && !s.CapacityEstimated {
			r.more += (strainTo - receiveTo) * s.Capacity
		}
		if ok {
			half[name] = r
		}
	}
	w.fill(want, fixed, half)
}

// fill gives what is wanted to PoPs with room: the nearest pairs first, so that no PoP
// takes clients that are nearer to another.
func (w *spilling) fill(want []float64, fixed []bool, room map[string]space) {
	for nth := range w.all {
		for i, name := range w.all {
			g := w.gifts[name]
			if fixed[i] || nth >= len(w.near[i]) || want[i] <= 0 || g.Own == 0 {
				continue
			}
			to := w.near[i][nth]
			p := g.Parts[to]
			add := min(want[i], max(room[to].more, 0))
			if p.Most > 0 {
				add = min(add, (p.Most-p.Goal)*g.Own)
			}
			if s := w.states[to]; add < leastGift*min(g.Own, s.Capacity) {
				continue
			}
			want[i] -= add
			w.take(room, to, add)
			p.Goal += add / g.Own
			g.Parts[to] = p
		}
	}
}

// want returns how many requests per second a PoP wants to give away, or that its gifts
// stay as they are because its figures are unknown.
func (w *spilling) want(i int) (rate float64, fixed bool) {
	s, g := w.states[w.all[i]], w.gifts[w.all[i]]
	given := g.given(goal, w.near[i])
	staying := g.Own * (1 - given)
	switch {
	case !s.up():
		return g.Own, false // all of its clients go elsewhere anyway; send them where they fit
	case s.Stale:
		return 0, true
	case !s.tells():
		return 0, false // no figures say that it is full
	case staying > giveAbove*s.Capacity && !s.CapacityEstimated: // a PoP that only promises a capacity was never full
		return g.Own - giveTo*s.Capacity, false
	case staying < w.returnBelow(w.all[i])*s.Capacity && !w.restless(w.all[i]):
		return min(g.Own*given, max(0, g.Own-returnTo*s.Capacity)), false
	}
	return g.Own * given * (1 - w.dt/agreeing.Seconds()), false
}

// space is how many requests per second of other PoPs' clients a PoP takes.
type space struct{ keep, more float64 }

// rooms returns every PoP's space.
func (w *spilling) rooms() map[string]space {
	promised := w.sent(goal)
	room := map[string]space{}
	for i, name := range w.all {
		s, own := w.states[name], w.gifts[name].Own
		switch {
		case !s.up() || w.pops[i].weight() == 0:
		case !s.tells():
			room[name] = space{keep: promised[name]}
		default:
			staying := own * (1 - w.gifts[name].given(goal, w.near[i]))
			r := space{keepTo*s.Capacity - staying, receiveTo*s.Capacity - staying}
			if promised[name] > r.keep {
				r.keep = strainTo*s.Capacity - staying
			}
			room[name] = r
		}
	}
	return room
}

func (w *spilling) take(room map[string]space, to string, rate float64) {
	r := room[to]
	room[to] = space{r.keep - rate, r.more - rate}
}
