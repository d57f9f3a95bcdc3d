package edge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region"
)

// follower keeps in force what two keys in Consul name: the current rules, and while
// it lasts the canary of this PoP, which only its edges follow. A document that is
// not good, and a pointer that is gone, change nothing. One goroutine owns it.
type follower struct {
	edge    *Edge
	cache   *ruleCache
	current followed
	canary  followed
	kept    *published // that the cache was given
	events  chan event
}

// followed is what is known of one pointer.
type followed struct {
	asked   error // why Consul could not be asked for the pointer, nil if it answered
	known   bool  // there is a finding
	finding finding
	good    *published // that the pointer named last and that was good
	set     *rules.Set // good compiled; nil if it was in force
	refused *refusal

	// Of a canary: the pointer that was seen last, and when it is over by this
	// node's monotonic clock. A clock that is behind, or set back, must not prolong it.
	seen region.Pointer
	ends time.Time
}

// see notes a canary's pointer, which ends no later after it is first seen than it
// was to last when it was set.
func (f *followed) see(p *region.Pointer, now time.Time) {
	if f.seen.ExpiresAt != nil && f.seen.SHA256 == p.SHA256 && f.seen.AppliedAt.Equal(p.AppliedAt) && f.seen.ExpiresAt.Equal(*p.ExpiresAt) {
		return
	}
	f.seen, f.ends = *p, now.Add(p.ExpiresAt.Sub(p.AppliedAt))
}

// lives reports whether a canary's pointer is there and not over.
func (f *followed) lives(now time.Time) bool {
	p := f.finding.pointer
	return p != nil && !p.Expired(now) && now.Before(f.ends)
}

// errNoAnswer stands for the time before the first answer.
var errNoAnswer = errors.New("has not answered yet")

// newFollower puts the cached document in force, if there is a good one.
func newFollower(e *Edge) (*follower, error) {
	f := &follower{edge: e, events: make(chan event)}
	f.current.asked, f.canary.asked = errNoAnswer, errNoAnswer
	failed := e.metrics.cacheErrors.Inc
	f.cache = newRuleCache(e.config.Rules.Cache, e.config.cacheOwner(), e.cacheState, failed)
	if err := f.fromCache(); err != nil {
		failed()
		e.log.Error("cached rules not used", "error", err)
	}
	err := f.cache.prepare()
	if err != nil {
		failed()
	}
	e.cacheState.note(err)
	f.settle(time.Now())
	switch {
	case e.running.Load() != nil:
	case e.config.Rules.Required:
		e.log.Warn("no rules yet, requests get 503 until consul names some")
	default:
		e.log.Warn("no rules yet, every request passes until consul names some (rules.required is false)")
		err = e.unlimited()
		f.settle(time.Now())
		return f, err
	}
	return f, nil
}

func (f *follower) fromCache() error {
	cached, err := f.cache.read()
	if err != nil || cached == nil {
		return err
	}
	set, err := rules.Load(cached.document)
	if err != nil {
		return err
	}
	f.current.good, f.current.set = cached, set
	return nil
}

// run follows Consul until ctx ends.
func (f *follower) run(ctx context.Context) {
	c := f.edge.consul
	documents := c.Documents("rules")
	var wg sync.WaitGroup
	defer wg.Wait()
	current := &pointerWatch{consul: c, documents: documents, key: documents.CurrentKey(), tell: f.hear, good: f.current.good}
	canary := &pointerWatch{consul: c, documents: documents, key: documents.CanaryKey(f.edge.config.Node.PoP), tell: f.hear, canary: true}
	wg.Go(func() { current.run(ctx) })
	wg.Go(func() { canary.run(ctx) })
	wg.Go(func() { f.cache.run(ctx) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(f.nextLook(time.Now()))
		select {
		case <-ctx.Done():
			return
		case ev := <-f.events:
			f.take(ev, time.Now())
		case <-timer.C:
		}
		f.settle(time.Now())
	}
}

// hear hands an event to run.
func (f *follower) hear(ctx context.Context, ev event) {
	select {
	case f.events <- ev:
	case <-ctx.Done():
	}
}

// nextLook is when the canary ends; at most a minute, for clocks are set.
func (f *follower) nextLook(now time.Time) time.Duration {
	if !f.canary.lives(now) {
		return time.Minute
	}
	return min(time.Minute, f.canary.finding.pointer.ExpiresAt.Sub(now), f.canary.ends.Sub(now))
}

// take notes an event.
func (f *follower) take(ev event, now time.Time) {
	p := &f.current
	if ev.canary {
		p = &f.canary
	}
	if ev.finding == nil {
		p.asked = ev.asked
		return
	}
	found := *ev.finding
	p.known, p.finding = true, found
	if ev.canary && found.pointer != nil {
		p.see(found.pointer, now)
	}
	if found.good != nil {
		p.good = found.good
		if found.set != nil {
			p.set = found.set
		}
	}
	f.judge(p, ev.canary)
}

// judge notes what is wrong with a finding, once.
func (f *follower) judge(p *followed, canary bool) {
	found, version := &p.finding, ""
	if found.pointer != nil {
		version = found.pointer.Version
	}
	switch {
	case errors.Is(found.fault, errNoPointer) && f.edge.state.Load().none():
		p.refused = nil // nothing has been published yet
	case found.fault != nil:
		var fresh bool
		if p.refused, fresh = f.edge.refuse(p.refused, version, canary, found.fault); fresh {
			f.edge.log.Error("rules refused", "version", version, "canary", canary, "error", found.fault)
		}
	case found.failure != nil && p.refused != nil && p.refused.Version == version:
		// Consul was away when it was looked at again.
	default:
		p.refused = nil
	}
}

// settle puts in force what is to be, and tells what is.
func (f *follower) settle(now time.Time) {
	e := f.edge
	pointer, chosen, canary := f.current.finding.pointer, &f.current, false
	if f.canary.lives(now) {
		pointer = f.canary.finding.pointer
		if f.canary.finding.good != nil {
			chosen, canary = &f.canary, true
		}
	} else if f.canary.finding.pointer != nil {
		f.canary.refused = nil // its time is over
	}
	running := e.running.Load()
	if chosen.good != nil && (running == nil || running.version != chosen.good.pointer.Version) {
		f.enforce(chosen, canary)
		running = e.running.Load()
	}
	// Only what is current is kept: a canary must not outlive its pointer, as it
	// would in a node that starts from it while Consul is away. The current rules
	// are kept also while a canary runs in their place.
	if g := f.current.good; g != f.kept && g.source == fromConsul {
		f.kept = g
		f.cache.put(g)
	}
	f.judgeConsul()
	s := ruleState{canary: canary, pointer: pointer, refused: newer(f.current.refused, f.canary.refused)}
	if chosen.good != nil {
		s.source = chosen.good.source
	}
	s.stale = !f.current.known || !f.canary.known || pointer == nil || running == nil || running.version != pointer.Version
	e.publish(s)
}

func (f *follower) enforce(p *followed, canary bool) {
	set := p.set
	p.set = nil
	if set == nil { // it was in force before the canary
		var err error
		if set, err = rules.Load(p.good.document); err != nil {
			f.edge.log.Error("rules that were in force do not load again", "version", p.good.pointer.Version, "error", err)
			return
		}
	}
	f.edge.enforce(set, p.good.source, canary)
}

// judgeConsul tells whether Consul answers whatever it is asked.
func (f *follower) judgeConsul() {
	var err error
	for _, why := range []error{f.current.asked, f.canary.asked, f.current.finding.failure, f.canary.finding.failure} {
		if err == nil || why != nil && errors.Is(err, errNoAnswer) {
			err = why
		}
	}
	f.edge.metrics.setSourceUp(err == nil)
	if !errors.Is(err, errNoAnswer) {
		f.edge.consulState.note(err)
	}
}

func newer(a, b *refusal) *refusal {
	if a == nil || b != nil && b.At.After(a.At) {
		return b
	}
	return a
}
