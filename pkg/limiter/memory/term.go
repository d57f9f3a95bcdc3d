package memory

import (
	"context"
	"slices"
	"sync"

	"github.com/weir-edge/weir/pkg/limiter"
)

var _ limiter.TermStore = (*Store)(nil)

// promises are what term.lua keeps.
type promises struct {
	sync.Mutex
	life, division, since, most, sure int64
	settled                           limiter.Settling
	parts                             map[string]*promise
}

type promise struct {
	holder         string
	from, to, seen int64
	life           int64 // the first life of the owner's store that this store heard of; 0 if none
}

// Renew promises windows to regions.
func (s *Store) Renew(_ context.Context, terms []limiter.Term) {
	p := &s.promises
	p.Lock()
	defer p.Unlock()
	for i := range terms {
		p.renew(&terms[i], s.clock())
	}
}

func (p *promises) renew(t *limiter.Term, now int64) {
	if p.life == 0 {
		p.life, p.sure, p.division, p.parts = t.Draw, now+limiter.TermForgotten.Microseconds(), t.Division, map[string]*promise{}
	}
	owner, life := t.Part == t.Holder, t.Life
	// What was settled for a store does not apply to its successor.
	settled := p.settled
	if settled == limiter.Unsettled && life == p.life && (t.Settle == limiter.SettledLater || p.heard(t.Others)) {
		if settled = t.Settle; settled != limiter.WouldBeFirst {
			p.settled = settled
		}
	}
	if life == 0 || t.Settle != limiter.Unsettled {
		life = p.life
	}
	if p.division != t.Division {
		p.division, p.since = t.Division, p.most+1
	}
	h := p.parts[t.Part]
	if h == nil {
		h = &promise{holder: t.Part, seen: now}
		if p.parts[t.Part] = h; !owner {
			h.to = p.sure // what was promised to the owner before this store forgot it
		}
	}
	h.seen = min(h.seen, now)
	t.Err, t.Promised, t.First = nil, false, false
	if owner {
		if h.seen = now; h.life == 0 {
			h.life = life
		}
		t.First = settled != limiter.SettledLater && h.life == life
	}
	if owner || h.holder == t.Holder || now-h.seen > limiter.TermSilence.Microseconds() {
		t.Promised = true
		if h.holder != t.Holder {
			h.holder, h.from = t.Holder, h.to+1
		}
		h.to = max(h.to, min(t.Until, now+limiter.LongestTerm.Microseconds()))
		p.most = max(p.most, h.to)
	}
	h.from = max(h.from, p.since)
	t.From, t.To, t.Sure, t.Own, t.Settled = h.from, h.to, p.sure, p.life, settled
}

// heard reports whether each region has reported the life of its store.
func (p *promises) heard(regions []string) bool {
	return !slices.ContainsFunc(regions, func(r string) bool { return p.parts[r] == nil || p.parts[r].life == 0 })
}

// Open allows spending parts of limits in windows that began before this store.
func (s *Store) Open(context.Context) error {
	s.openFrom.Store(0)
	return nil
}

// Reopen does nothing: this store has had its state since it was created.
func (s *Store) Reopen(context.Context) error { return nil }
