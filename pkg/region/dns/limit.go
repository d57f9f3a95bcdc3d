package dns

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	// slots is how many rates are kept; the table takes 1 MB, whatever comes.
	// Networks that fall into one slot share its rate: forged addresses can so cost
	// others a second question over TCP, which is not limited by rate. Nobody can
	// aim, for the hash has a secret.
	slots = 1 << 17
	// slip is how many of those over the limit get no answer for one that is told
	// to ask by TCP, plus that one.
	slip = 2
)

// limiter bounds the answers a second to each network, for UDP, where addresses
// are easily forged and this server would be turned on their owner. It allows a
// second's worth at once.
type limiter struct {
	interval time.Duration // between two answers
	seed     maphash.Seed
	until    []atomic.Int64 // by slot, the time to which its rate is used up, in ns
	over     atomic.Uint32
}

type verdict int

const (
	send verdict = iota
	slipped
	dropped
)

// newLimiter returns nil, which limits nothing, for a rate of 0.
func newLimiter(perSecond int) *limiter {
	if perSecond <= 0 {
		return nil
	}
	return &limiter{interval: time.Second / time.Duration(perSecond), seed: maphash.MakeSeed(), until: make([]atomic.Int64, slots)}
}

// check counts an answer to a client. now runs on from any start.
func (l *limiter) check(client netip.Addr, now time.Duration) verdict {
	if l == nil {
		return send
	}
	bits := 56
	if client.Is4() {
		bits = 24
	}
	network, _ := client.Prefix(bits) // of that family
	slot := &l.until[maphash.Comparable(l.seed, network.Addr())%slots]
	for {
		before := slot.Load()
		next := max(before, int64(now)) + int64(l.interval)
		if next > int64(now+time.Second) {
			if l.over.Add(1)%slip == 0 {
				return slipped
			}
			return dropped
		}
		if slot.CompareAndSwap(before, next) {
			return send
		}
	}
}
