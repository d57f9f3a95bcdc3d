package behavior

import "math"

// routes counts distinct routes by linear counting (Whang et al., 1990): the share of bits
// that stay clear determines how many routes there were. A bitmap of half the size counts
// the routes that do not exist.
type routes struct {
	seen    [seenBits / 64]uint64
	missing [missingBits / 64]uint64
}

const (
	seenBits    = 256
	missingBits = 128
	// fullOnes is when a bitmap is too full to count well: its window ends early, and the
	// next one begins empty.
	fullOnes = 230
)

// The estimates for n bits set of 256, and of 128.
var distinctOf, missingOf = estimates(seenBits), estimates(missingBits)

// fullRoutes is the largest number of distinct routes that a window can represent.
var fullRoutes = int(distinctOf[fullOnes])

func estimates(bits int) []uint16 {
	list := make([]uint16, bits+1)
	for n := range bits {
		list[n] = uint16(math.Round(-float64(bits) * math.Log(1-float64(n)/float64(bits))))
	}
	list[bits] = list[bits-1]
	return list
}

// walk counts the requests that routes holds, and the bits that they set.
type walk struct{ total, gone, seen, missing uint16 }

func (r *routes) add(n *walk, route uint64, missing bool) {
	if n.total == math.MaxUint16 {
		return // the shares stay the same
	}
	n.total++
	if word, bit := &r.seen[route>>6%(seenBits/64)], uint64(1)<<(route%64); *word&bit == 0 {
		*word |= bit
		n.seen++
	}
	if !missing {
		return
	}
	n.gone++
	route >>= 8 // different bits from those used above
	if word, bit := &r.missing[route>>6%(missingBits/64)], uint64(1)<<(route%64); *word&bit == 0 {
		*word |= bit
		n.missing++
	}
}

// count counts a hash among the most frequent ones by Space-Saving (Metwally et al., 2005),
// and returns its count, which is too high by at most what its place held before.
func count(hashes []uint32, counts []uint16, hash uint32) uint16 {
	least := 0
	for i, n := range counts {
		if hashes[i] == hash && n > 0 {
			counts[i] = saturate(n)
			return counts[i]
		}
		if n < counts[least] {
			least = i
		}
	}
	hashes[least], counts[least] = hash, saturate(counts[least])
	return counts[least]
}

// saturate adds one, up to the largest value.
func saturate(n uint16) uint16 {
	if n == math.MaxUint16 {
		return n
	}
	return n + 1
}
