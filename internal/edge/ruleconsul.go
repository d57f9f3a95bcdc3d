package edge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// follower keeps in force what two keys in Consul name: the current rules, and while
// it lasts the canary of this PoP, which only its edges follow. A document that is
// not good, and a pointer that is gone, change nothing. One goroutine owns it.
type follower struct {
	edge    *Edge
	cache   *documentCache
	current followed[rules.Set]
	canary  followed[rules.Set]
	kept    *published // that the cache was given
	events  chan event[rules.Set]
}

// newFollower puts the cached document in force, if there is a good one.
func newFollower(e *Edge) (*follower, error) {
	f := &follower{edge: e, events: make(chan event[rules.Set])}
	f.current.asked, f.canary.asked = errNoAnswer, errNoAnswer
	failed := e.metrics.cacheErrors.Inc
	f.cache = newDocumentCache(e.config.Rules.Cache, e.config.cacheOwner(), e.cacheState, failed)
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
	set, err := f.edge.compile(cached.document)
	if err != nil {
		return err
	}
	f.current.good, f.current.made = cached, set
	return nil
}

// run follows Consul until ctx ends.
func (f *follower) run(ctx context.Context) {
	c := f.edge.consul
	documents := c.Documents("rules")
	var wg sync.WaitGroup
	defer wg.Wait()
	watch := pointerWatch[rules.Set]{consul: c, documents: documents, what: "rules", events: f.events, compile: f.edge.compile}
	current, canary := watch, watch
	current.key, current.good = documents.CurrentKey(), f.current.good
	canary.key, canary.canary = documents.CanaryKey(f.edge.config.Node.PoP), true
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

// nextLook is when the canary ends; at most a minute, for clocks are set.
func (f *follower) nextLook(now time.Time) time.Duration {
	if !f.canary.lives(now) {
		return time.Minute
	}
	return min(time.Minute, f.canary.left(now))
}

// take notes an event.
func (f *follower) take(ev event[rules.Set], now time.Time) {
	p := &f.current
	if ev.canary {
		p = &f.canary
	}
	if !p.note(ev, now) {
		return
	}
	standing := p.refused
	if p.judge(f.edge.state.Load().none(), ev.canary); p.refused != nil && p.refused != standing {
		f.edge.metrics.rulesRejected.Inc()
		f.edge.log.Error("rules refused", "version", p.refused.Version, "canary", ev.canary, "error", p.finding.fault)
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

func (f *follower) enforce(p *followed[rules.Set], canary bool) {
	set := p.made
	p.made = nil
	if set == nil { // it was in force before the canary
		var err error
		if set, err = f.edge.compile(p.good.document); err != nil {
			f.edge.log.Error("rules that were in force do not load again", "version", p.good.pointer.Version, "error", err)
			return
		}
	}
	f.edge.enforce(set, p.good.source, canary)
}

// judgeConsul tells whether Consul answers whatever it is asked.
func (f *follower) judgeConsul() {
	err := unanswered(f.current.asked, f.canary.asked, f.current.finding.failure, f.canary.finding.failure)
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
