package rules

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// saltOf makes a salt of a hash.
func saltOf(sum [32]byte) uint64 { return binary.LittleEndian.Uint64(sum[:]) }

// place returns the hash and the slice of a key, which is 0 to Slices-1, all equally likely. It depends on
// what the rule counts by alone, so that it is the same on every node and in every release, and
// stays when the rule's values or its experiment's change. The salt makes it independent of
// other experiments and of what else is hashed: by its bytes before, by mix after.
func (x *Trial) place(key []byte, infix int) Placed {
	subject := bytes.IndexByte(key, '}') // braces in values are escaped
	h := mix(x.salt ^ xxhash.Sum64(key[:subject]))
	if rest := key[subject+infix:]; len(rest) > 0 {
		h = mix(h ^ xxhash.Sum64(rest))
	}
	slice, _ := bits.Mul64(h, Slices)
	return Placed{Slice: int(slice), Hash: h}
}

// mix spreads a change of any bit over all bits (the finalizer of SplitMix64).
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// addTrial appends the checks of a rule with an experiment: that of the variant which has the
// key, and beside a variant in shadow mode that of the rule.
func (m *Match) addTrial(c *Compiled, slot uint64) *DuplicateError {
	x, q := c.Trial, &m.request
	if c.LimitFor(q.tier, q.risk) == nil && x.Variant.LimitFor(q.tier, q.risk) == nil {
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
	at := x.place(keys[start:], len(c.infix))
	if at.Slice >= x.Cut {
		return m.put(c, keys, slot, &at)
	}
	if x.Beside {
		before := len(m.Checks)
		if dup := m.put(c, keys, slot, nil); dup != nil {
			return dup
		}
		if len(m.Checks) > before { // the key is in use
			keys = append(m.keys, m.keys[start:]...)
			start = len(m.keys)
			m.keys = keys[:start]
		}
	}
	return m.put(x.Variant, respell(keys, start, c.infix, x.Variant.infix), slot, &at)
}

// put appends a check of c by the key at the end of keys; at is where it counts for the
// experiment, nil if it does not.
func (m *Match) put(c *Compiled, keys []byte, slot uint64, at *Placed) *DuplicateError {
	limit := c.LimitFor(m.request.tier, m.request.risk)
	if limit == nil {
		return nil
	}
	checks := len(m.Checks)
	if dup := m.check(c, limit, keys, slot); dup != nil {
		return dup
	}
	if len(m.Checks) > checks && at != nil {
		at.Check = checks
		m.Placed = append(m.Placed, *at)
	}
	return nil
}

// respell replaces the part of a key that names rule and algorithm.
func respell(keys []byte, start int, from, to string) []byte {
	at := start + bytes.IndexByte(keys[start:], '}')
	grow := len(to) - len(from)
	end := len(keys)
	for range grow {
		keys = append(keys, 0)
	}
	copy(keys[at+len(to):], keys[at+len(from):end])
	copy(keys[at:], to)
	return keys[:end+grow]
}

// Keep removes the checks of which keep, given their positions, is false.
func (m *Match) Keep(keep func(i int) bool) {
	kept, placed := 0, m.Placed[:0]
	for i := range m.Checks {
		if !keep(i) {
			continue
		}
		if k := slices.IndexFunc(m.Placed, func(p Placed) bool { return p.Check == i }); k >= 0 {
			placed = append(placed, Placed{kept, m.Placed[k].Slice, m.Placed[k].Hash})
		}
		m.Checks[kept], m.Rules[kept] = m.Checks[i], m.Rules[i]
		kept++
	}
	m.Checks, m.Rules, m.Placed = m.Checks[:kept], m.Rules[:kept], placed
}
