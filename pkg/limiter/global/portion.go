package global

import (
	"slices"

	"github.com/weir-edge/weir/pkg/limiter"
)

// A region holds parts of a bucket by epochs: windows that have no other meaning. What it did
// not hold all the time comes without tokens, because somebody else may have spent them, and
// after a rest.

// Portions are what a region holds of the buckets of a limit in one epoch.
type Portions struct {
	now, before []shares // since the rest began; since a bucket began to fill
	since       int64
}

// shares are parts of one division.
type shares struct {
	parts   []int
	regions int
}

// PortionsAt returns what a region holds of a limit in the epoch that has that time.
func PortionsAt(h Held, l *limiter.Limit, at int64) (p Portions) {
	epoch, rest := limiter.Epoch.Microseconds(), limiter.PartRests.Microseconds()
	now := at - at%epoch
	from := now - rest - fills(l)
	var changes []int64
	for i := range h {
		for _, t := range []int64{h[i].From, h[i].To} {
			if t == h[i].To {
				t = min(t, 1<<62) + 1
			}
			if t = (max(0, t) + epoch - 1) / epoch * epoch; from < t && t <= now {
				changes = append(changes, t)
			}
		}
	}
	slices.Sort(changes)
	last := h.sharesAt(max(0, from-from%epoch))
	p.before = []shares{last}
	current := last // when the rest began
	for _, t := range slices.Compact(changes) {
		s := h.sharesAt(t)
		if s.same(last) {
			continue
		}
		last = s
		p.before = append(p.before, s)
		if t <= now-rest {
			p.since, current = t+rest, s
		} else {
			p.now = append(p.now, s)
		}
	}
	p.now = append(p.now, current)
	return p
}

// fills returns how long a part of a bucket takes to fill, at most.
func fills(l *limiter.Limit) int64 {
	burst, rate := max(l.Burst, l.Largest), l.Limit
	if l.Slowest > 0 {
		rate = l.Slowest
	}
	return int64(min(2*float64(burst)/float64(rate), 1<<20)+1) * l.Window.Microseconds()
}

// sharesAt returns what is held in the epoch that begins at start. Of several divisions, the
// one with the smallest parts counts.
func (h Held) sharesAt(start int64) (s shares) {
	for i := range h {
		if h[i].has(start) {
			s.regions = max(s.regions, h[i].Regions)
		}
	}
	for i := range h {
		if h[i].has(start) && h[i].Regions == s.regions && !slices.Contains(s.parts, h[i].Part) {
			s.parts = append(s.parts, h[i].Part)
		}
	}
	slices.Sort(s.parts)
	return s
}

func (s shares) same(o shares) bool { return s.regions == o.regions && slices.Equal(s.parts, o.parts) }

func sharesOf[K string | []byte](s shares, units int64, key K) (sum int64) {
	for _, part := range s.parts {
		sum += partOf(units, key, part, s.regions)
	}
	return sum
}

// PortionOf returns a region's part of a bucket, or false if it holds none: its part of the
// burst, and the rest. Where the largest burst has fewer tokens than there are regions, the rate
// goes to those that have one.
func PortionOf[K string | []byte](p *Portions, l *limiter.Limit, key K) (burst int64, portion limiter.Portion, ok bool) {
	largest := max(l.Burst, l.Largest)
	least := func(list []shares) (num, den, burst, have int64) {
		for i, s := range list {
			n, d, b := int64(len(s.parts)), int64(max(1, s.regions)), sharesOf(s, l.Burst, key)
			held := sharesOf(s, largest, key)
			if largest < d && n > 0 { // for all tiers alike: a bucket refills at the rate of the one that asks
				n, d = held, largest
			}
			if i == 0 || n*den < num*d {
				num, den = n, d
			}
			if i == 0 {
				burst, have = b, held
			}
			burst, have = min(burst, b), min(have, held)
		}
		return num, den, burst, have
	}
	if slices.ContainsFunc(p.now, func(s shares) bool { return len(s.parts) == 0 }) {
		return 0, portion, false
	}
	portion.Num, portion.Den, burst, portion.Have = least(p.now)
	num, den, _, have := least(p.before)
	if have < portion.Have || num*portion.Den < portion.Num*den {
		portion.OldNum, portion.OldDen, portion.Young, portion.Since = num, den, portion.Have-have, p.since
	}
	return burst, portion, true
}
