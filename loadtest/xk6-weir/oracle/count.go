package oracle

import "math"

// count is what is known about one key: which requests were admitted for certain, and
// which may have been charged.
type count struct {
	rule *rule
	tag  counter
	// kept is the admitted requests, except those proven beyond the limit; maybe is
	// everything that may have been charged.
	kept, maybe flow
	least, most *levels // buckets only: the levels that kept and maybe produce
	// sure is everything charged for certain, and floor its level; with count_denied
	// only, where it exceeds kept.
	sure    flow
	floor   *levels
	open    []*Ticket
	pending []refusal // not judged yet: requests sent before their answer are in flight
	accused series
	demand  *demand // reported rules only
	// known is the time from which maybe lacks no request.
	known int64
	seen  int64 // the last event
	dirty int   // events since the last prune
}

// counter is where a verdict belongs.
type counter struct{ region, rule, key string }

// refusal is a request that the rule refused.
type refusal struct {
	sent, answered int64
	cost           int64
	own            int64 // what it charged itself, with count_denied
	retry          int64 // seconds, -1: not said
	only           bool  // no other rule refused it too
	phase          string
}

func newCount(r *rule, p counter, known int64) *count {
	c := &count{rule: r, tag: p, kept: newFlow(), maybe: newFlow(), sure: newFlow(), accused: newSeries(), known: known}
	if r.Delay > 0 {
		d := newDemand(r.Delay.Microseconds())
		c.demand = &d
	}
	if b, ok := bucketOf(r.method); ok {
		c.least = &levels{rate: b.rate, full: math.Inf(1), startAt: longAgo}
		c.most = &levels{rate: b.rate, full: float64(b.capacity), startAt: longAgo}
		c.floor = &levels{rate: b.rate, full: float64(b.capacity), startAt: longAgo}
		if known > longAgo {
			c.most.startAt, c.most.start = known, float64(b.capacity)
		}
	}
	return c
}

// admit records a request that passed, and returns how much must be removed for the
// rest to fit the rule.
func (c *count) admit(sent, answered, cost int64) (beyond int64) {
	c.charge(sent, answered, cost)
	if c.rule.CountDenied {
		if c.rule.method.mustRefuse(c, sent, answered, cost) {
			return cost
		}
		c.chargeSurely(sent, answered, cost)
	}
	if c.least != nil && !c.least.add(sent, float64(cost)) {
		return 0
	}
	c.kept.add(sent, answered, cost)
	for c.rule.method.beyond(c, answered) > 0 {
		amount := c.kept.sent.removeLast(&c.kept.answered)
		if amount == 0 {
			return beyond // what is left was pruned
		}
		if c.least != nil {
			c.least.removeLast()
		}
		beyond += amount
	}
	return beyond
}

// charge records a request that may have been charged.
func (c *count) charge(sent, answered, cost int64) {
	c.maybe.add(sent, answered, cost)
	if c.most != nil {
		c.most.add(answered, float64(cost))
	}
}

// chargeSurely records a request that was charged for certain.
func (c *count) chargeSurely(sent, answered, cost int64) {
	c.sure.add(sent, answered, cost)
	if c.floor != nil {
		c.floor.add(sent, float64(cost))
	}
}

// sentBy is the cost of everything that may have been charged by t.
func (c *count) sentBy(t int64) int64 {
	sum := c.maybe.sent.upTo(t)
	for _, o := range c.open {
		if o.sent <= t {
			sum += o.cost
		}
	}
	return sum
}

// possible is the most that can have been decided in [x, y] before r.
func (c *count) possible(x, y int64, r *refusal) int64 {
	return c.sentBy(y) - c.maybe.answered.upTo(x-1) - r.own
}

// settled reports whether everything that can explain the refusal is known.
func (c *count) settled(r *refusal) bool {
	for _, o := range c.open {
		if o.sent <= r.answered {
			return false
		}
	}
	return true
}

func (c *count) close(t *Ticket) {
	for i, o := range c.open {
		if o == t {
			last := len(c.open) - 1
			c.open[i], c.open[last] = c.open[last], nil
			c.open = c.open[:last]
			return
		}
	}
}

// oldest is the earliest time that a future event can refer to.
func (c *count) oldest(now int64) int64 {
	for _, o := range c.open {
		now = min(now, o.sent)
	}
	for i := range c.pending {
		now = min(now, c.pending[i].sent)
	}
	return now
}

// prune forgets what no longer matters, and the older half if there is too much.
func (c *count) prune(now int64, most int) {
	before := c.oldest(now) - c.rule.life
	if n := len(c.maybe.sent.at); n > most {
		if cut := c.maybe.sent.at[n/2]; cut > before {
			before, c.known = cut, max(c.known, cut+1)
		}
	}
	c.kept.prune(before)
	c.maybe.prune(before)
	c.sure.prune(before)
	c.accused.prune(before)
	if c.least != nil {
		c.least.prune(before)
		c.most.prune(before)
		c.floor.prune(before)
	}
}
