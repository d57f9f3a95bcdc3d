package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// soaking compares the changed regions with the others, and all with their past.
type soaking struct {
	*waves
	c       *change
	targets []*fleet.Target
	resumed []*fleet.Target // already had the version when this run began, so their past is unknown
	before  map[place]*fleet.Tally
	known   map[string]bool // nodes whose figures could be read
	warned  map[place]bool  // sites that could not be judged
	begun   bool            // a region has the version, or had it
	lost    error           // why regions did not answer at the last look
}

// place is a PoP of a region.
type place struct{ region, pop string }

func (p place) String() string { return p.pop + " in " + p.region }

// changed reports whether a region has the version.
func (s *soaking) changed(name string) bool { return s.c.region(name).region.Outcome.Has() }

// unchanged checks that no one else has changed a region since this change looked at it or
// wrote it.
func (s *soaking) unchanged(ctx context.Context, target *fleet.Target) error {
	ctx, cancel := target.Bounded(ctx)
	defer cancel()
	r := s.c.region(target.Name)
	now, err := fleet.LookAtPointer(ctx, target)
	switch {
	case err != nil:
		return err
	case now.State == fleet.Active && now.Damage == nil && now.Version() == r.step.next.Version():
		return nil
	case !r.region.Outcome.Has() && s.c.engine.Same(r.region.Seen, now):
		return nil
	}
	r.region.Outcome, r.region.Now = rollout.Lost, now
	return term.Conflict("%s: %s", target.Name, whoMoved(target.Kind, now.Pointer))
}

// still checks, under the lock of the next wave, that no one has changed a region since the last
// look, and that this is still the recorded rollout.
func (s *soaking) still(ctx context.Context) error {
	for _, a := range fleet.Ask(ctx, s.targets, func(ctx context.Context, target *fleet.Target) (struct{}, error) {
		return struct{}{}, s.unchanged(ctx, target)
	}) {
		// The soak judged regions that do not answer, and Write checks those that it changes.
		if f := (*term.Failure)(nil); errors.As(a.Err, &f) {
			if !s.begun {
				return term.Conflict("nothing was changed: %w", a.Err)
			}
			return a.Err
		}
	}
	return s.c.journal.own(ctx)
}

// count adds the figures of all edges to the tallies of their sites. It returns what could
// not be read of the changed regions. A node that could never be read does not count as
// missing.
func (s *soaking) count(ctx context.Context, tallies map[place]*fleet.Tally) (silent []string, err error) {
	counts, lost, err := s.c.p.count(ctx, s.targets, s.unchanged)
	if err != nil {
		return nil, err
	}
	s.lost = unseen(lost)
	here := map[string]bool{}
	for _, n := range counts {
		id, at := n.region+" "+n.node.ID, place{n.region, n.node.PoP}
		here[n.region] = true
		if n.err != nil {
			if s.changed(n.region) && s.known[id] {
				silent = append(silent, fmt.Sprintf("%s (%v)", term.Printable(n.node.ID), n.err))
			}
			continue
		}
		s.known[id] = true
		if tallies[at] == nil {
			tallies[at] = &fleet.Tally{}
		}
		tallies[at].Add(n.node.ID, n.figures)
	}
	for _, t := range s.targets {
		switch err := lost[t.Name]; {
		case !s.changed(t.Name):
		case err != nil:
			silent = append(silent, err.Error())
		case !here[t.Name] && slices.ContainsFunc(slices.Collect(maps.Keys(s.before)), func(at place) bool { return at.region == t.Name }):
			silent = append(silent, t.Name+" (its edges are gone)")
		}
	}
	return silent, nil
}

// measure reads the figures of all edges for a short time before the first wave.
func (s *soaking) measure(ctx context.Context) error {
	s.before, s.known, s.warned = map[place]*fleet.Tally{}, map[string]bool{}, map[place]bool{}
	return s.twice(ctx, func() error {
		_, err := s.count(ctx, s.before)
		return cmp.Or(err, s.lost)
	})
}

// judged returns the regions to judge now: those that this run changed or, before it has
// changed any, those that an earlier run did, which have no past.
func (s *soaking) judged() (regions []string, past bool) {
	for _, r := range s.c.with(rollout.Applied, rollout.AlreadyThere) {
		if !slices.Contains(s.resumed, r.target) {
			regions = append(regions, r.target.Name)
		}
	}
	if len(regions) > 0 {
		return regions, true
	}
	for _, t := range s.resumed {
		regions = append(regions, t.Name)
	}
	return regions, false
}

// sum adds up some sites, and those of the unchanged regions.
func (s *soaking) sum(tallies map[place]*fleet.Tally, when time.Time, judged func(place) bool) sample {
	now := sample{at: when}
	for at, t := range tallies {
		if judged(at) {
			now.canary = now.canary.Plus(t.Total)
		} else if !s.changed(at.region) {
			now.others = now.others.Plus(t.Total)
		}
	}
	return now
}

// subject is what is judged: the changed regions together, or one of their sites.
type subject struct {
	name   string
	alone  bool // a site
	is     func(place) bool
	before sample
	late   *window
}

func (s *soaking) subject(name string, alone, past bool, is func(place) bool) *subject {
	x := &subject{name: name, alone: alone, is: is, late: newWindow(s.bake, s.minRequests)}
	if x.before = s.sum(s.before, time.Time{}, is); !past {
		x.before.canary = fleet.Traffic{}
	}
	return x
}

// subjects returns everything that is judged in a soak.
func (s *soaking) subjects() []*subject {
	regions, past := s.judged()
	list := []*subject{s.subject("the changed regions", false, past, func(at place) bool { return slices.Contains(regions, at.region) })}
	if !past {
		return list
	}
	for _, at := range slices.SortedFunc(maps.Keys(s.before), func(a, b place) int { return cmp.Compare(a.String(), b.String()) }) {
		if slices.Contains(regions, at.region) {
			list = append(list, s.subject(at.String(), true, true, func(other place) bool { return other == at }))
		}
	}
	return list
}

// watch returns why the next wave must not follow, or nil.
func (s *soaking) watch(ctx context.Context, wave, of int) error {
	progress := s.c.p.Progress()
	tallies, subjects := map[place]*fleet.Tally{}, s.subjects()
	outside, why, ends := 0, "", time.Time{}
	for {
		silent, err := s.count(ctx, tallies)
		if ctx.Err() != nil {
			return term.Interrupted("interrupted")
		}
		if err != nil {
			return err
		}
		// The first look only shows where the counters stand, and may take as long as a soak.
		if ends.IsZero() {
			ends = time.Now().Add(s.bake)
		}
		var all sample
		why = ""
		for i, x := range subjects {
			now := s.sum(tallies, time.Now(), x.is)
			if i == 0 {
				all = now
			}
			canary, others, long := x.late.add(now)
			why = cmp.Or(why, s.worse(x, now), lately(long, s.worse(x, sample{now.at, canary, others})))
		}
		if outside++; why == "" {
			outside = 0
		}
		left := time.Until(ends)
		progress.Update([]string{fmt.Sprintf("wave %d of %d: %s; %s left", wave, of, compared(&all, &subjects[0].before.canary), max(0, left).Round(time.Second))})
		switch {
		case outside == outsideLooks, left <= 0 && outside > 0:
			return fmt.Errorf("%s", why)
		case left > 0:
		case len(silent) > 0:
			return fmt.Errorf("the figures of %s could not be read at the end", strings.Join(silent, ", "))
		case !s.enough(&all.canary):
			return fmt.Errorf("the changed regions had only %.0f requests in %s, and are judged by at least %d; soak longer, or lower --min-requests", all.canary.Requests, s.bake, s.minRequests)
		default:
			return s.idle(tallies)
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(s.interval, max(0, left))):
		}
	}
}

// compared shows the figures of the changed regions next to their past or, if that is
// unknown, to the other regions, by which they are then judged.
func compared(now *sample, before *fleet.Traffic) string {
	than, what := before, "before"
	if before.Requests == 0 {
		than, what = &now.others, "elsewhere"
	}
	return fmt.Sprintf("%.0f requests, limited %s (%s %s), 5xx %s (%s %s)", now.canary.Requests,
		percent(now.canary.LimitedShare()), what, percent(than.LimitedShare()), percent(now.canary.ErrorShare()), what, percent(than.ErrorShare()))
}

// worse says in which figure a subject left its own past further than the others did; "" if
// in none, or if there was too little to judge. Without a past it is compared with the
// others, like a canary. For one site among many, only differences beyond chance count.
func (s *soaking) worse(x *subject, now sample) string {
	switch {
	case !s.enough(&now.canary):
		return ""
	case s.enough(&x.before.canary):
		return cmp.Or(s.risen(x.name, x.before, now, x.alone), s.fallen(x.name, x.before, now, x.alone), s.slower(x.name, x.before, now))
	case x.alone:
		return ""
	}
	return cmp.Or(s.excess(&now.canary, &now.others), s.slower(x.name, x.before, now))
}

// idle reports changed sites that had too few requests in a soak to be judged. If a site
// had enough of them before, in a fraction of the time, that is an error: they may be gone
// because of the change. Otherwise it is only a warning: the site may never have any.
func (s *soaking) idle(tallies map[place]*fleet.Tally) error {
	for _, at := range slices.SortedFunc(maps.Keys(s.before), func(a, b place) int { return cmp.Compare(a.String(), b.String()) }) {
		was, is := s.before[at].Total, fleet.Traffic{}
		if t := tallies[at]; t != nil {
			is = t.Total
		}
		switch {
		case !s.changed(at.region) || s.enough(&is):
		case s.enough(&was):
			return fmt.Errorf("%s had only %.0f requests in %s, and %.0f in %s before; find out why its clients are gone", at, is.Requests, s.bake, was.Requests, s.baseline())
		case !s.warned[at]:
			s.warned[at] = true
			s.c.p.Warn("%s had only %.0f requests in %s, and needs at least %d: whether the change harms it is unknown", at, is.Requests, s.bake, s.minRequests)
		}
	}
	return nil
}
