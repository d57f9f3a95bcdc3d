package dns

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	// slots is how many rates are kept; the table takes 1 MB, whatever comes.
	// Answers that fall into one slot share its rate: forged addresses can so cost
	// others a second question over TCP, which is not limited by rate. Nobody can
	// aim, for the hash has a secret.
	slots = 1 << 17
	// slip is how many of those over the limit get no answer for one that is told
	// to ask by TCP, plus that one.
	slip = 2
	// total is how many times the rate of one answer a network gets of all answers
	// together: no resolver that keeps answers asks for one more often, but a large one
	// asks for many names, and on behalf of many client subnets.
	total = 10
)

// limiter bounds how often a second each network gets each answer over UDP, where
// addresses are easily forged and this server would be turned on their owner. It allows
// a second's worth at once.
type limiter struct {
	interval time.Duration // between two of one answer
	seed     maphash.Seed
	until    []atomic.Int64 // by slot, the time to which its rate is used up, in ns
	over     atomic.Uint32
}

// subject is what counts as one answer: one name and type, or one kind of refusal for
// all names, so that names made up at random are one. The zero subject is counted only
// among all answers: what is tailored to client subnets is not one answer.
type subject struct {
	name  string
	qtype uint16
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
func (l *limiter) check(client netip.Addr, of subject, now time.Duration) verdict {
	if l == nil {
		return send
	}
	bits := 56
	if client.Is4() {
		bits = 24
	}
	network, _ := client.Prefix(bits) // of that family
	if l.count(network, subject{}, l.interval/total, now) && (of == subject{} || l.count(network, of, l.interval, now)) {
		return send
	}
	if l.over.Add(1)%slip == 0 {
		return slipped
	}
	return dropped
}

// count reports whether one more fits into the rate.
func (l *limiter) count(network netip.Prefix, of subject, interval, now time.Duration) bool {
	slot := &l.until[maphash.Comparable(l.seed, key{network, of})%slots]
	for {
		before := slot.Load()
		next := max(before, int64(now)) + int64(interval)
		if next > int64(now+time.Second) {
			return false
		}
		if slot.CompareAndSwap(before, next) {
			return true
		}
	}
}

type key struct {
	network netip.Prefix
	of      subject
}
