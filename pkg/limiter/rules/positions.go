package rules

import "hash/maphash"

// positions finds equal keys among the many of a call: a hash table with open addressing. A caller
// chooses the values that keys are made of, so the hash has a secret seed.
type positions struct {
	at     []int32 // one more than the key's index, or 0; the length is a power of two
	filled int     // how many keys are in it
}

// fewKeys are compared one by one; most calls have no more.
const fewKeys = 8

// maxKeptSlots bounds what is kept for the next call.
const maxKeptSlots = 4 << 10

var keySeed = maphash.MakeSeed()

func (p *positions) reset() {
	if p.filled == 0 {
		return
	}
	p.filled = 0
	if len(p.at) > maxKeptSlots {
		p.at = nil
	}
	clear(p.at)
}

// seen returns the index of an equal key that the call already has, or -1; then the caller adds
// the key.
func (m *Match) seen(key []byte) int {
	if len(m.ends) < fewKeys {
		for i := range m.ends {
			if string(m.keyAt(i)) == string(key) {
				return i
			}
		}
		return -1
	}
	p := &m.positions
	for p.filled < len(m.ends) { // the keys that were added since
		if 2*(p.filled+1) > len(p.at) {
			p.at, p.filled = make([]int32, max(8*fewKeys, 2*len(p.at))), 0
			continue
		}
		slot, _ := m.slot(m.keyAt(p.filled))
		p.filled++
		p.at[slot] = int32(p.filled)
	}
	_, i := m.slot(key)
	return i
}

// slot returns where a key is in the table and its index, or where it belongs and -1.
func (m *Match) slot(key []byte) (slot, index int) {
	at := m.positions.at
	for slot = int(maphash.Bytes(keySeed, key) & uint64(len(at)-1)); at[slot] != 0; slot = (slot + 1) & (len(at) - 1) {
		if i := int(at[slot]) - 1; string(m.keyAt(i)) == string(key) {
			return slot, i
		}
	}
	return slot, -1
}

func (m *Match) keyAt(i int) []byte {
	start := 0
	if i > 0 {
		start = m.ends[i-1]
	}
	return m.keys[start:m.ends[i]]
}
