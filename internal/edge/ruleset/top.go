package ruleset

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/top"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// topSketch finds whom a rule refuses most; nil until it refuses anyone.
type topSketch struct{ atomic.Pointer[top.Sketch] }

// seed keeps clients from choosing keys with the same hash.
var seed = maphash.MakeSeed()

// topsOf returns the sketches of a set, by rule index. A rule that counts by the same key and
// has the same mode keeps its own.
func topsOf(set *rules.Set, before *Running) []topSketch {
	list := make([]topSketch, len(set.Rules()))
	if before == nil {
		return list
	}
	for _, c := range set.Rules() {
		if was, ok := before.set.Rule(c.ID); ok && was.Mode == c.Mode && slices.Equal(was.Key, c.Key) {
			list[c.Index].Store(before.tops[was.Index].Load())
		}
	}
	return list
}

// add counts a check that refused, or would have in shadow mode.
func (t *topSketch) add(r *decide.Request, check int) {
	sketch := t.Load()
	if sketch == nil {
		t.CompareAndSwap(nil, &top.Sketch{})
		sketch = t.Load()
	}
	key := r.Match.Checks[check].Key
	subject, rest := top.Split(key, len(r.Match.Rules[check].Key))
	sketch.Add(r.Began.Add(r.Took), maphash.Bytes(seed, key), r.Client, subject, rest)
}

// mostTop is how many rules Top returns.
const mostTop = 100

// Top returns the rules that refused requests lately, the most first, and whom each refused
// most, up to most of them.
func (s *Running) Top(now time.Time, most int) []adminapi.TopRule {
	list := []adminapi.TopRule{}
	if s == nil {
		return list
	}
	for _, c := range s.set.Rules() {
		sketch := s.tops[c.Index].Load()
		if sketch == nil {
			continue
		}
		counts := sketch.Read(now)
		if counts.Total == 0 {
			continue
		}
		rule := adminapi.TopRule{Rule: c.ID, Mode: c.Mode.String(), Refused: counts.Total, Missed: counts.Missed, Clients: []adminapi.TopClient{}}
		for i := range counts.Keys[:min(most, len(counts.Keys))] {
			k := &counts.Keys[i]
			rule.Clients = append(rule.Clients, adminapi.TopClient{Key: k.Values(c.Key), Client: k.Client, Refused: k.AtLeast, AtMost: k.AtMost})
		}
		list = append(list, rule)
	}
	slices.SortStableFunc(list, func(a, b adminapi.TopRule) int { return cmp.Compare(b.Refused, a.Refused) })
	return list[:min(mostTop, len(list))]
}
