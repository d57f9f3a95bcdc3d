package dns

import (
	"math/rand/v2"
	"sync/atomic"

	wire "github.com/miekg/dns"
)

// turns counts the answers with a name's addresses, separately for A and AAAA, because a
// client that asks for both would otherwise see only every second turn.
type turns [2]atomic.Uint64

func (t *turns) next(qtype uint16) uint64 {
	i := 0
	if qtype == wire.TypeAAAA {
		i = 1
	}
	return t[i].Add(1) - 1
}

// spread orders addresses for one answer, because most clients take the first. Of n answers
// in a row, each of n addresses leads one. The order is drawn again for each n: in a fixed
// rotation, two resolvers that ask in turn would always get the same leader.
func spread(list []wire.RR, seed, turn uint64) {
	n := uint64(len(list))
	if n < 2 {
		return
	}
	var draw rand.PCG
	draw.Seed(seed, turn/n)
	first := (draw.Uint64()%n + turn) % n
	list[0], list[first] = list[first], list[0]
	// The rest is shuffled, so that the clients of a dead address do not all fall back to
	// the same neighbor.
	for i := n - 1; i > 1; i-- {
		j := 1 + draw.Uint64()%i
		list[i], list[j] = list[j], list[i]
	}
}
