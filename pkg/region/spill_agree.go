package region

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Routers that receive the same facts from the same start move alike without talking. A
// router that missed some would differ for hours, and clients that ask both would move with
// each answer. So one router, the senior, records its spill, and others continue from that.
const (
	// recordEvery is the least time between two reads of the record, and so between two
	// writes; refreshEvery is when an unchanged record is written again.
	recordEvery  = 10 * time.Second
	refreshEvery = time.Minute
	// goneAfter is the age of the record at which its writer counts as gone, and a junior
	// writes. outdated is the age at which even a router without any state ignores it.
	goneAfter = 3 * time.Minute
	outdated  = time.Hour
)

// Agreement compares a router's spill with the record. The zero value is ready to use.
type Agreement struct {
	past []*Spill // what this router answered by lately, the oldest first
	// Since when this router has seen the record as it is, how long before it had looked, and
	// whether it was another then. Clocks of routers may differ.
	seen, looked time.Time
	unseen       time.Duration
	changed      bool
	by           string
	at           time.Time
	// followed is when this router has last followed the record as it is.
	followed time.Time
}

// Agree returns the spill from which the router of v continues: its own, or one that follows a
// senior router's record, which is nil if there is none. write reports whether the result is to be
// recorded. An error means that the record exceeds what PoPs can serve.
func (a *Agreement) Agree(v *View, record *Spill, now time.Time) (next *Spill, write bool, err error) {
	mine := v.Spill
	if record == nil {
		return mine, true, nil
	}
	age := a.age(record, now)
	written := now.Add(-age)
	follows := mine.junior(record) && (age < goneAfter || mine.Since.After(written) && age < outdated)
	if !follows {
		return mine, record.By != mine.By || age >= refreshEvery || mine.differs(record), nil
	}
	// A record is followed once: its writer may be gone, and following it again would undo what
	// has moved since. What a router follows right after it began to hear may not last.
	if a.followed.Sub(mine.Since) >= recordEvery {
		return mine, false, nil
	}
	// The record is some seconds old, so it is compared with what was answered then.
	if then := a.answered(written); then != nil && !then.differs(record) {
		a.followed = now
		return mine, false, nil
	}
	if err := v.exceeds(record); err != nil {
		return mine, false, err
	}
	a.past, a.followed = nil, now
	return mine.follow(record, now), false, nil
}

// follow returns s with what a record adds. A router that does not hear all PoPs, or has only just
// begun to, knows neither the demand of each PoP's own clients nor what others gave away, so it
// continues from the record; any other follows only its goals. Either way its answers move at the
// law's pace.
func (s *Spill) follow(record *Spill, now time.Time) *Spill {
	next := *s
	next.Gifts = map[string]Gift{}
	learns := s.Deaf > 0 || now.Sub(s.Since) < goneAfter
	for name := range merged(s.Gifts, record.Gifts) {
		mine, theirs := s.Gifts[name], record.Gifts[name]
		g := mine
		if learns {
			g = theirs
		}
		g.Parts = map[string]Part{}
		for to := range merged(mine.Parts, theirs.Parts) {
			p, q := mine.Parts[to], theirs.Parts[to]
			if learns {
				q.Behind = q.Share - p.Given()
				p = q
			}
			p.Goal = q.Goal
			g.Parts[to] = p
		}
		next.Gifts[name] = g
	}
	return &next
}

// merged returns a map that has the keys of both.
func merged[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(b)
	if all == nil {
		all = map[string]V{}
	}
	maps.Copy(all, a)
	return all
}

// exceeds returns an error for a record by which a PoP would get clients that it cannot serve
// by v's figures. They tell how many clients are at their PoP; where the others are is the
// record's claim. A router that learns answers by shares, and then by goals.
func (v *View) exceeds(record *Spill) error {
	if v.chooser == nil {
		return nil
	}
	w := &spilling{chooser: v.chooser, gifts: maps.Clone(record.Gifts)}
	most := func(p Part) float64 { return max(p.Goal, p.Share) }
	arriving, owns := w.sent(noticed), map[string]float64{}
	for i, name := range w.all {
		s, g := v.PoPs[name], w.gifts[name]
		owns[name] = g.Own
		if s.tells() {
			owns[name] = max(g.Own, s.Demand-arriving[name]+g.Own*g.given(noticed, w.near[i]))
		}
	}
	for name, own := range owns {
		g := w.gifts[name]
		g.Own = own
		w.gifts[name] = g
	}
	for i, promised := 0, w.sent(most); i < len(w.all); i++ {
		name := w.all[i]
		s, g := v.PoPs[name], w.gifts[name]
		load := promised[name] + g.Own*(1-g.given(most, w.near[i]))
		if s.tells() && promised[name] > 0 && load > (1+sudden)*s.Capacity {
			return fmt.Errorf("sends %s %.0f requests per second, which can serve %.0f", name, load, s.Capacity)
		}
	}
	return nil
}

// Note sets what a router answers by from now on.
func (a *Agreement) Note(s *Spill) {
	a.past = slices.DeleteFunc(append(a.past, s), func(old *Spill) bool { return s.At.Sub(old.At) > refreshEvery+2*recordEvery })
}

// age returns how old a record is. Its writer's clock counts as far as it agrees with what this
// router has seen: one that is ahead would keep its last record fresh long after it died, and
// one that is behind would make each router write its own.
func (a *Agreement) age(record *Spill, now time.Time) time.Duration {
	if a.by != record.By || !a.at.Equal(record.At) {
		a.changed = a.by != ""
		a.unseen, a.seen, a.by, a.at, a.followed = now.Sub(a.looked), now, record.By, record.At, time.Time{}
	}
	a.looked = now
	age, least := now.Sub(record.At), now.Sub(a.seen)
	if a.changed {
		age = min(age, least+a.unseen)
	}
	return max(age, least)
}

// answered returns what the router answered by at some time; nil: that is not known.
func (a *Agreement) answered(t time.Time) *Spill {
	for _, s := range slices.Backward(a.past) {
		if !s.At.After(t) {
			return s
		}
	}
	return nil
}

// junior reports whether other is better informed: it hears more PoPs or, if equal, has
// heard them for longer. The final comparison only breaks the tie.
func (s *Spill) junior(other *Spill) bool {
	return cmp.Or(cmp.Compare(s.Deaf, other.Deaf), s.Since.Compare(other.Since), cmp.Compare(s.By, other.By)) > 0
}

// differs reports whether two spills send clients to different PoPs, or would soon.
func (s *Spill) differs(other *Spill) bool {
	gives := func(g, than Gift) bool {
		for to, p := range g.Parts {
			if q := than.Parts[to]; math.Abs(p.Share-q.Share) >= leastGift/2 || math.Abs(p.Noticed-q.Noticed) >= leastGift {
				return true
			}
		}
		return g.Out != than.Out || math.Abs(g.Own-than.Own) > sudden*max(g.Own, than.Own)
	}
	for name, g := range s.Gifts {
		if gives(g, other.Gifts[name]) {
			return true
		}
	}
	for name, g := range other.Gifts {
		if gives(g, s.Gifts[name]) {
			return true
		}
	}
	return false
}
