package global

import (
	"hash/fnv"
	"math"
	"slices"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Span is a range of windows: those that begin from From to To, inclusive, in Unix
// microseconds.
type Span struct{ From, To int64 }

// Always covers every window.
var Always = Span{0, math.MaxInt64}

func (s Span) has(start int64) bool { return s.From <= start && start <= s.To }

// Covered returns the windows that at least need of the spans cover, in order.
func Covered(spans []Span, need int) (list []Span) {
	var edges []int64 // window starts at which coverage changes
	for _, s := range spans {
		if s.From <= s.To {
			edges = append(edges, s.From)
			if s.To < math.MaxInt64 {
				edges = append(edges, s.To+1)
			}
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	for i, from := range edges {
		to := int64(math.MaxInt64)
		if i+1 < len(edges) {
			to = edges[i+1] - 1
		}
		n := 0
		for _, s := range spans {
			if s.has(from) {
				n++
			}
		}
		if n < need {
			continue
		}
		if last := len(list) - 1; last >= 0 && list[last].To+1 == from {
			list[last].To = to
		} else {
			list = append(list, Span{from, to})
		}
	}
	return list
}

// Division identifies the set of regions that divide a limit, by their sorted names.
func Division(regions []string) int64 {
	h := fnv.New64a()
	for _, name := range regions {
		_, _ = h.Write(append([]byte(name), 0))
	}
	return int64(h.Sum64() % (limiter.MaxLife - 1))
}

// HeirOf returns the region that inherits another's part: the next one by name.
func HeirOf(region, regions int) int { return (region + 1) % regions }

// Majority returns how many of the regions' stores must promise a window.
func Majority(regions int) int { return regions/2 + 1 }

// Reclaims reports whether a dead region's part can be taken over. Among two regions no
// majority can tell a dead region from a disconnected one, so each keeps its part.
func Reclaims(regions int) bool { return regions > 2 }

// Holding is one part of some windows, from when limits were divided among the given number
// of regions.
type Holding struct {
	Span
	Part, Regions int
}

// Held is what a region holds. It is immutable once in use.
type Held []Holding

// Part returns what a region holds of a key in the window that begins at start, before any
// rights move, and false if the region holds no part of it.
func Part[K string | []byte](h Held, l *limiter.Limit, key K, start int64) (units int64, ok bool) {
	for i := range h {
		if h[i].has(start) {
			units, ok = units+PartOf(l, key, h[i].Part, h[i].Regions), true
		}
	}
	return units, ok
}

// Parts returns how many parts a region holds of windows that begin at start.
func (h Held) Parts(start int64) (n int) {
	for i := range h {
		if h[i].has(start) {
			n++
		}
	}
	return n
}

// mostHoldings bounds the holdings remembered. Beyond it, the windows of the oldest
// holdings are lost.
const mostHoldings = 64

// With returns h with the windows of one more part added.
func (h Held) With(part, regions int, spans []Span) Held {
	var list Held
	var same []Span
	for i := range h {
		if h[i].Part == part && h[i].Regions == regions {
			same = append(same, h[i].Span)
		} else {
			list = append(list, h[i])
		}
	}
	for _, s := range Covered(append(same, spans...), 1) {
		list = append(list, Holding{s, part, regions})
	}
	if n := len(list) - mostHoldings; n > 0 {
		slices.SortFunc(list, func(a, b Holding) int { return int(min(1, max(-1, a.To-b.To))) })
		list = list[n:]
	}
	return list
}
