package rules

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-edge/weir/pkg/limiter"
)

// position returns the hash of a key without the part that names rule and algorithm, and its
// slice, 0 to Slices-1, all equally likely. The result depends only on what the rule counts
// by, so it is the same on every node and in every release, and survives changes to the
// values of the rule or its experiment. The salt makes it independent of other experiments
// and of other hashes of the same key: its bytes come first, and mix follows.
func (x *CompiledExperiment) position(subject, rest []byte) ExperimentCheck {
	h := mix(x.salt ^ xxhash.Sum64(subject))
	if len(rest) > 0 {
		h = mix(h ^ xxhash.Sum64(rest))
	}
	slice, _ := bits.Mul64(h, Slices)
	return ExperimentCheck{Slice: int(slice), Hash: h}
}

// mix spreads a change of any bit over all bits (the finalizer of SplitMix64).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// addExperiment appends the checks of a rule with an experiment: that of the variant that
// applies to the key and, alongside a variant in shadow mode, that of the rule.
func (m *Match) addExperiment(c *Compiled, slot uint64) *DuplicateError {
	x, q := c.Experiment, &m.request
	limit, tried := c.LimitFor(q.tier, q.risk), x.Variant.LimitFor(q.tier, q.risk)
	if limit == nil && tried == nil {
		return nil
	}
	keys, counted, dup := c.appendKey(m.keys, q)
	start := len(m.keys)
	m.keys = keys[:start]
	switch {
	case dup != nil && c.enforces():
		return dup
	case dup != nil || !counted:
		return nil
	}
	infix := start + bytes.IndexByte(keys[start:], '}') // braces in values are escaped
	at := x.position(keys[start:infix], keys[infix+len(c.infix):])
	if at.Slice >= x.Cut {
		return m.put(c, limit, keys, slot, &at)
	}
	if x.Beside && limit != nil {
		if dup := m.put(c, limit, keys, slot, nil); dup != nil {
			return dup
		}
		keys = append(m.keys, m.keys[start:]...)
		infix += len(m.keys) - start
		m.keys = keys[:len(m.keys)]
	}
	return m.put(x.Variant, tried, respell(keys, infix, c.infix, x.Variant.infix), slot, &at)
}

// put appends a check of c for the key at the end of keys. at is its position in the
// experiment, or nil if it does not count there.
func (m *Match) put(c *Compiled, limit *limiter.Limit, keys []byte, slot uint64, at *ExperimentCheck) *DuplicateError {
	if limit == nil {
		return nil
	}
	checks := len(m.Checks)
	if dup := m.check(c, limit, keys, slot); dup != nil {
		return dup
	}
	if len(m.Checks) > checks && at != nil {
		at.Check = checks
		m.InExperiments = append(m.InExperiments, *at)
	}
	return nil
}

// respell replaces the part of keys at the given offset that names rule and algorithm.
func respell(keys []byte, at int, from, to string) []byte {
	end := len(keys)
	keys = append(keys, to...) // room, if to is longer
	copy(keys[at+len(to):], keys[at+len(from):end])
	copy(keys[at:], to)
	return keys[:end+len(to)-len(from)]
}

// Keep removes the checks for whose index keep returns false.
func (m *Match) Keep(keep func(i int) bool) {
	kept, placed := 0, m.InExperiments[:0]
	for i := range m.Checks {
		if !keep(i) {
			continue
		}
		if k := slices.IndexFunc(m.InExperiments, func(p ExperimentCheck) bool { return p.Check == i }); k >= 0 {
			placed = append(placed, ExperimentCheck{kept, m.InExperiments[k].Slice, m.InExperiments[k].Hash})
		}
		m.Checks[kept], m.Rules[kept] = m.Checks[i], m.Rules[i]
		kept++
	}
	m.Checks, m.Rules, m.InExperiments = m.Checks[:kept], m.Rules[:kept], placed
}
