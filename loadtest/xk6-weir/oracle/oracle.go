// Package oracle judges a rate limiter from outside. It learns when each request is
// sent and answered, and proves what no order of the limiter's decisions could explain:
// that more passed than a rule allows, that a request was refused without a cause, or
// that a refusal stated a wrong retry-after.
//
// A request is decided at an unknown time after it was sent and before it was answered.
// Every proof here holds for all decision times in these intervals, so a correct limiter
// is never accused; each algorithm states what its proof misses.
package oracle

import (
	"fmt"
	"hash/maphash"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Options of an Oracle. Zero values mean the defaults.
type Options struct {
	// ClockError is how far this process's clock and the limiter's may differ; default
	// 1ms. Every interval is widened by it on both sides.
	ClockError time.Duration
	// Late is how long after it was given up a request may still be charged; default 60s.
	Late time.Duration
	// Release is how long after its answer a request may still hold its concurrency slot;
	// default 1s.
	Release time.Duration
	// RetrySlack is by how much a retry-after may be too short; default 25ms, the
	// longest time that an edge waits for its store.
	RetrySlack time.Duration
	// Fresh promises that the keys were never used before. Otherwise counts from before
	// a rule's declaration may be the cause of a refusal.
	Fresh bool
	// MaxKeys bounds how many keys are remembered; default 200,000.
	MaxKeys int
	// MaxRequests bounds how many requests per key are; default 100,000.
	MaxRequests int
	// Now returns Unix microseconds, and microseconds of a monotonic clock; tests set
	// it.
	Now func() (wall, running int64)
}

func (o *Options) complete() {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.ClockError, time.Millisecond)
	set(&o.Late, time.Minute)
	set(&o.Release, time.Second)
	set(&o.RetrySlack, 25*time.Millisecond)
	if o.MaxKeys <= 0 {
		o.MaxKeys = 200_000
	}
	if o.MaxRequests <= 0 {
		o.MaxRequests = 100_000
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() (wall, running int64) {
			now := time.Now()
			return now.UnixMicro(), now.Sub(start).Microseconds()
		}
	}
}

// Outcome is what happened to a request, as seen by one rule.
type Outcome uint8

// The outcomes.
const (
	// Admitted: it passed, so it was charged.
	Admitted Outcome = iota
	// Refused by this rule.
	Refused
	// RefusedElsewhere: by another rule, and not charged by this one.
	RefusedElsewhere
	// Unknown: it may have been charged, now or later.
	Unknown
)

// Answer ends a request.
type Answer struct {
	Outcome Outcome
	// RetryAfter in seconds; negative if none was stated.
	RetryAfter int64
	// Only says that no other rule also refused the request: then the retry-after is
	// this rule's alone.
	Only bool
	// Phase is the part of the test in which the answer arrived.
	Phase string
}

const shardCount = 64

// Oracle is safe for concurrent use.
type Oracle struct {
	options Options
	rules   sync.Map // id → *rule
	seed    maphash.Seed
	shards  [shardCount]shard
	report  tally
	keys    atomic.Int64
	apart   atomic.Int64 // wall less running clock, until the wall clock is set
}

type shard struct {
	sync.Mutex
	counts map[counter]*count
	last   int64 // the clock never runs backwards here
	forgot int64 // when a key was last forgotten early
}

// New returns an oracle without rules.
func New(o Options) *Oracle {
	o.complete()
	n := &Oracle{options: o, seed: maphash.MakeSeed()}
	n.apart.Store(longAgo)
	for range 5 { // a delay between the two readings makes the difference too small
		wall, running := o.Now()
		n.apart.Store(max(n.apart.Load(), wall-running))
	}
	for i := range n.shards {
		n.shards[i] = shard{counts: map[counter]*count{}, last: longAgo, forgot: longAgo}
	}
	n.report.lines = map[lineKey]*Line{}
	return n
}

// Declare sets a rule, or replaces it. While a replaced rule settles, it is not judged;
// after that, its earlier counts are unknown. Declaring the same rule again changes
// nothing, unless it is to settle.
func (o *Oracle) Declare(r Rule, settle time.Duration) error {
	c, err := compile(r, &o.options)
	if err != nil {
		return err
	}
	before, replaced := o.rules.Load(r.ID)
	if replaced && settle == 0 && before.(*rule).Rule == c.Rule {
		return nil
	}
	now := o.now()
	c.from, c.fresh = now, o.options.Fresh && !replaced
	if replaced {
		c.from += settle.Microseconds()
	}
	o.rules.Store(r.ID, c)
	return nil
}

// Rule returns the declared rule with that id.
func (o *Oracle) Rule(id string) (Rule, bool) {
	r, ok := o.rules.Load(id)
	if !ok {
		return Rule{}, false
	}
	return r.(*rule).Rule, true
}

// Place returns the region that a rule's requests to a region are judged in.
func (o *Oracle) Place(region, id string) string {
	if r, ok := o.rules.Load(id); ok {
		return r.(*rule).in(region)
	}
	return region
}

func (r *rule) in(region string) string {
	if r.Global {
		return Everywhere
	}
	return region
}

// Ticket is a request in flight.
type Ticket struct {
	oracle *Oracle
	count  *count
	shard  *shard
	sent   int64
	cost   int64
}

// Begin notes that a request is about to be sent: the region that will decide it, the
// rule and the key. It returns nil, which is a valid ticket, if there is nothing to
// judge: a cost of 0, or a rule that settles.
func (o *Oracle) Begin(region, id, key string, cost int64) (*Ticket, error) {
	v, ok := o.rules.Load(id)
	if !ok {
		return nil, fmt.Errorf("rule %q is not declared; declare it before requests name it", id)
	}
	r := v.(*rule)
	p := counter{r.in(region), id, key}
	if cost <= 0 {
		return nil, nil
	}
	s := &o.shards[maphash.Comparable(o.seed, p)%shardCount]
	s.Lock()
	defer s.Unlock()
	now := s.clock(o)
	if !r.fresh && now < r.from {
		return nil, nil
	}
	c := s.counts[p]
	if c == nil || c.rule != r {
		if c == nil {
			s.makeRoom(o, now)
			o.keys.Add(1)
		}
		apart := o.options.ClockError.Microseconds()
		known := r.from + apart // by the limiter's clock
		if r.fresh {
			known = longAgo
		}
		if s.forgot+r.life+apart > now {
			known = max(known, s.forgot+apart)
		}
		c = newCount(r, p, known)
		s.counts[p] = c
	}
	c.seen = now
	t := &Ticket{oracle: o, count: c, shard: s, sent: now - o.options.ClockError.Microseconds(), cost: cost}
	c.open = append(c.open, t)
	if c.demand != nil {
		c.demand.begin(t.sent, cost)
	}
	return t, nil
}

func (s *shard) clock(o *Oracle) int64 {
	s.last = max(s.last, o.now())
	return s.last
}

// now reads the wall clock, which the limiter's windows follow. Once the clock is set,
// counts from before prove nothing.
func (o *Oracle) now() int64 {
	wall, running := o.options.Now()
	apart := o.apart.Load()
	step := wall - running - apart
	for range 4 { // the two are not read at the same instant
		if max(step, -step) <= max(1000, o.options.ClockError.Microseconds()) {
			return wall
		}
		wall, running = o.options.Now()
		step = wall - running - apart
	}
	o.rules.Range(func(id, v any) bool {
		again := *v.(*rule)
		again.from, again.fresh = max(again.from, wall, wall-step)+1, false
		o.rules.CompareAndSwap(id, v, &again)
		return true
	})
	o.apart.CompareAndSwap(apart, apart+step) // after the rules: nothing may be judged until then
	return wall
}

// makeRoom drops a few keys that no longer matter, and one that may if there are too
// many.
func (s *shard) makeRoom(o *Oracle, now int64) {
	const samples = 4
	var eldest *count
	seen := 0
	for p, c := range s.counts {
		if seen++; seen > samples {
			break
		}
		if len(c.open)+len(c.pending) > 0 {
			continue
		}
		if c.seen+c.rule.life+o.options.Late.Microseconds() < now {
			delete(s.counts, p)
			o.keys.Add(-1)
		} else if eldest == nil || c.seen < eldest.seen {
			eldest = c
		}
	}
	if eldest != nil && len(s.counts) >= max(1, o.options.MaxKeys/shardCount) {
		delete(s.counts, eldest.tag)
		o.keys.Add(-1)
		s.forgot = now
	}
}

// End records the answer, and returns what it proves about this request or earlier
// ones.
func (t *Ticket) End(a Answer) []Verdict {
	if t == nil {
		return nil
	}
	o, c := t.oracle, t.count
	t.shard.Lock()
	defer t.shard.Unlock()
	now := t.shard.clock(o)
	answered := now + o.options.ClockError.Microseconds() + 1
	c.close(t)
	c.seen = now
	if c.demand != nil {
		ended := answered
		if a.Outcome == Unknown {
			ended += o.uncertain(c.rule)
		}
		c.demand.end(ended, t.cost)
	}
	if v, _ := o.rules.Load(c.rule.ID); v != c.rule {
		return nil // the rule was replaced meanwhile
	}
	var verdicts []Verdict
	o.report.answered(c.tag, a)
	switch a.Outcome {
	case Admitted:
		if n := c.admit(t.sent, answered, t.cost); n > 0 {
			c.accused.add(answered, n, 0)
			verdicts = append(verdicts, Verdict{
				Kind: Overadmitted, Region: c.tag.region, Rule: c.tag.rule, Key: c.tag.key, Phase: a.Phase, Value: float64(n),
				Excess: c.accused.upTo(answered) - c.accused.upTo(answered-c.rule.window),
				Sent:   t.sent, Answered: answered,
			})
		}
	case Refused:
		r := refusal{sent: t.sent, answered: answered, cost: t.cost, retry: a.RetryAfter, only: a.Only, phase: a.Phase}
		if c.rule.CountDenied {
			r.own = t.cost
			c.charge(t.sent, answered, t.cost)
			c.chargeSurely(t.sent, answered, t.cost)
		}
		c.pending = append(c.pending, r)
	case Unknown:
		c.charge(t.sent, answered+o.uncertain(c.rule), t.cost)
	}
	verdicts = c.judge(o, answered, verdicts)
	if c.dirty++; c.dirty >= 64 {
		c.dirty = 0
		c.prune(now, o.options.MaxRequests)
	}
	o.report.proven(verdicts, c.rule)
	return verdicts
}

// uncertain is how long after it was given up a request may be charged, or hold a slot.
func (o *Oracle) uncertain(r *rule) int64 {
	if r.Algorithm == "concurrency" {
		return r.window + o.options.Late.Microseconds()
	}
	return o.options.Late.Microseconds()
}

// Cancel withdraws a request that was never sent.
func (t *Ticket) Cancel() {
	if t == nil {
		return
	}
	t.shard.Lock()
	defer t.shard.Unlock()
	t.count.close(t)
	if d := t.count.demand; d != nil {
		d.end(t.sent, t.cost)
	}
}

// Finish ends the test: requests still in flight have an unknown outcome, and what
// waited for them is judged.
func (o *Oracle) Finish() []Verdict {
	var verdicts []Verdict
	for i := range o.shards {
		s := &o.shards[i]
		s.Lock()
		now := s.clock(o)
		for _, c := range s.counts {
			if v, _ := o.rules.Load(c.rule.ID); v != c.rule {
				continue
			}
			for _, t := range c.open {
				c.charge(t.sent, now+o.uncertain(c.rule), t.cost)
			}
			c.open = nil
			found := c.judge(o, now, nil)
			o.report.proven(found, c.rule)
			verdicts = append(verdicts, found...)
		}
		s.Unlock()
	}
	sort.Slice(verdicts, func(i, j int) bool { return verdicts[i].Answered < verdicts[j].Answered })
	return verdicts
}

// Keys returns how many keys are remembered.
func (o *Oracle) Keys() int { return int(o.keys.Load()) }
