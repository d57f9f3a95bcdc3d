package dns

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
)

// remembered is how many client networks are compared with their last answer; the table
// takes 512 KB. Networks that share an entry replace each other and are not compared.
const remembered = 1 << 16

// moves detects client networks that are sent to a different PoP than the last time.
type moves struct {
	seed maphash.Seed
	last []atomic.Uint64 // by place: 32 bits of whom, 32 of where
}

// moved records where a network is sent, and reports whether it was last sent elsewhere.
func (m *moves) moved(network netip.Prefix, question, pop string) bool {
	who := maphash.Comparable(m.seed, struct {
		network  netip.Prefix
		question string
	}{network, question})
	where := maphash.String(m.seed, pop)
	before := m.last[who%remembered].Swap(who>>32<<32 | where>>32)
	return before>>32 == who>>32 && uint32(before) != uint32(where>>32)
}
