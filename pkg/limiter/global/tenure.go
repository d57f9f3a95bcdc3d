package global

import (
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// SettleFor is how long a region waits for the others to say whether its store is new, if it
// may spend without them.
const SettleFor = 10 * time.Second

// settleLater is for how long a region waits until its store has heard of all others.
const settleLater = limiter.TermForgotten + 5*time.Second

// Tenure is what a node knows of what its region holds: what the regions' stores have promised.
type Tenure struct {
	region   string
	regions  []string // sorted
	self     int
	division int64
	answers  map[int][]limiter.Term // by part: what each region's store answered last; Own 0: nothing
	held     Held
	began    time.Duration
}

// SetRegions says which regions divide limits, in any order. It reports whether this one is among
// them.
func (t *Tenure) SetRegions(region string, regions []string, now time.Duration) bool {
	sorted := slices.Sorted(slices.Values(regions))
	self := slices.Index(sorted, region)
	if self < 0 {
		return false
	}
	if d := Division(sorted); t.answers == nil || d != t.division {
		t.region, t.regions, t.self, t.division = region, sorted, self, d
		t.answers, t.began = map[int][]limiter.Term{}, now
		// What no store has promised is only held while there are two regions.
		t.held = slices.DeleteFunc(slices.Clone(t.held), func(h Holding) bool { return !Reclaims(h.Regions) })
	}
	return true
}

// Division identifies the regions that SetRegions named.
func (t *Tenure) Division() int64 { return t.division }

// Regions returns them, sorted, and which one this is.
func (t *Tenure) Regions() (regions []string, self int) { return t.regions, t.self }

// Ask returns the questions for this region's store: first for its own part, then for those
// that it inherits. Who is cut off takes all others for dead, so it must hold its own.
func (t *Tenure) Ask(wall, draw int64) (terms []limiter.Term) {
	n := len(t.regions)
	heir := Reclaims(n) && slices.ContainsFunc(t.held, func(h Holding) bool { return h.Part == t.self && h.Regions == n && h.has(wall) })
	for i := range t.regions {
		part := (t.self + i) % n
		if i > 0 && !(heir && HeirOf(part, n) == t.self) {
			continue
		}
		terms = append(terms, limiter.Term{
			Division: t.division, Part: t.regions[part], Holder: t.region, Until: wall + limiter.TermLasts.Microseconds(), Draw: draw,
		})
	}
	return terms
}

// OwnAnswered takes in what this region's store has answered, and returns the questions for the
// others: for another's part only if that region is silent here, too.
func (t *Tenure) OwnAnswered(terms []limiter.Term) (others []limiter.Term) {
	if len(terms) == 0 || terms[0].Err != nil || terms[0].Division != t.division {
		return nil // the next round asks again
	}
	life := terms[0].Own
	for i := range terms {
		one := terms[i]
		one.Life = life
		if one.Settled == limiter.WouldBeFirst {
			one.Settled = limiter.Unsettled
		}
		if t.hear(t.self, &one); one.Err == nil && (one.Promised || i == 0) {
			others = append(others, one)
		}
	}
	return others
}

// Hear takes in what another region's store has answered.
func (t *Tenure) Hear(voter int, terms []limiter.Term) {
	own := t.answers[t.self]
	if own == nil || voter < 0 || voter >= len(t.regions) || voter == t.self {
		return
	}
	for i := range terms {
		if one := &terms[i]; one.Division == t.division && one.Holder == t.region {
			t.hear(voter, one)
		}
	}
}

func (t *Tenure) hear(voter int, one *limiter.Term) {
	part := slices.Index(t.regions, one.Part)
	if part < 0 || one.Err != nil {
		return
	}
	if t.answers[part] == nil {
		t.answers[part] = make([]limiter.Term, len(t.regions))
	}
	one.Own = max(one.Own, 1) // it has answered
	t.answers[part][voter] = *one
}

// Held returns what this region holds by all answers.
func (t *Tenure) Held() Held {
	n := len(t.regions)
	for part, answers := range t.answers {
		t.held = t.held.With(part, n, promised(answers))
	}
	if !Reclaims(n) && n > 0 {
		t.held = Held{{Span: Always, Part: t.self, Regions: n}}
	}
	return t.held
}

// promised returns the windows that a majority has promised. What begins before a store is
// sure may be promised to another, who asked before it forgot that; but not if all stores have
// promised it, for they have not all forgotten.
func promised(answers []limiter.Term) []Span {
	var sure, all []Span
	for i := range answers {
		if a := &answers[i]; a.Promised {
			sure = append(sure, Span{max(a.From, a.Sure), a.To})
			all = append(all, Span{a.From, a.To})
		}
	}
	return append(Covered(sure, Majority(len(answers))), Covered(all, len(answers))...)
}

// Settled reports whether this region's store may be spent from. If not, it tells whether it
// is time to settle that, and whether this is the first store that the region has: then what
// it holds may be spent at once, and otherwise from the next window on.
func (t *Tenure) Settled(now time.Duration) (settled, due, first bool) {
	own := t.answers[t.self]
	if own == nil || own[t.self].Own == 0 {
		return false, false, false
	}
	answered := 0
	first = true
	for i := range own {
		if a := &own[i]; a.Own > 0 && a.Life == own[t.self].Own {
			answered++
			first = first && a.First
		}
	}
	known := !first || answered == len(own)
	first = first && known && now-t.began < settleLater
	return own[t.self].Settled != limiter.Unsettled, known || len(t.held) > 0 && now-t.began >= SettleFor, first
}

// Settle returns the question that settles this region's store, if it still has the life by
// which it was judged. The first store of a region vouches for the others, so it must have
// heard of theirs.
func (t *Tenure) Settle(wall, draw, life int64, as limiter.Settling) []limiter.Term {
	one := t.Ask(wall, draw)[:1]
	one[0].Life, one[0].Settle = life, as
	one[0].Others = slices.Delete(slices.Clone(t.regions), t.self, t.self+1)
	return one
}

// Life returns that of this region's store by its last answer; 0 if it has not answered. What
// Settled says is about the store of that life.
func (t *Tenure) Life() int64 {
	if own := t.answers[t.self]; own != nil {
		return own[t.self].Own
	}
	return 0
}
