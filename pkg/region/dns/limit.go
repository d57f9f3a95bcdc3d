package dns

import (
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"
)

const (
	// slots is how many rates are kept; the table always takes 1 MB. Answers that share a
	// slot share its rate, so forged addresses can cost others a second query over TCP,
	// which is not rate-limited. They cannot be aimed, because the hash has a secret.
	slots = 1 << 17
	// One in slip of the answers over the limit is sent, and tells the client to retry over
	// TCP; the others are dropped.
	slip = 2
	// total is the rate of all answers to a network together, as a multiple of the rate of
	// one answer: no caching resolver repeats a question that often, but a large one asks
	// for many names, and for many client subnets.
	total = 10
)

// limiter bounds how many times per second each network gets each answer over UDP, where
// forged addresses would direct this server's answers at a victim. It allows a second's
// worth at once.
type limiter struct {
	interval time.Duration // between two copies of one answer
	seed     maphash.Seed
	until    []atomic.Int64 // by slot, the time up to which its rate is used up, in ns
	over     atomic.Uint32
}

// subject is what counts as one answer: one name and type, or one kind of refusal for all
// names, so that random names count as one. The zero subject counts only among all
// answers, because those tailored to client subnets differ.
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

// check counts an answer to a client. now is a monotonic time.
func (l *limiter) check(client netip.Addr, of subject, now time.Duration) verdict {
	if l == nil {
		return send
	}
	bits := 56
	if client.Is4() {
		bits = 24
	}
	network, _ := client.Prefix(bits) // of that family
	// Answers not sent because of their own rate do not count among all answers: otherwise
	// a flood of one question would block the others for a resolver whose address it
	// forges.
	if (of == subject{} || l.count(network, of, l.interval, now)) && l.count(network, subject{}, l.interval/total, now) {
		return send
	}
	if l.over.Add(1)%slip == 0 {
		return slipped
	}
	return dropped
}

// count reports whether one more answer fits into the rate.
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
