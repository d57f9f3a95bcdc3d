package behavior

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// An account is what one node counted of a subject in its current windows. It carries no
// score, so what a node concludes from others' accounts never enters its own.

// AccountSize is the length of an encoded account in bytes.
const AccountSize = 8 + 4 + 4 + 2 + 6*2 + 4*6 + 2*6 + 4*2 + 2*accountWords*8

const accountWords = (seenBits + missingBits) / 64

// current returns a copy of a subject in which expired windows are empty.
func (s *subject) current(now tick) subject {
	c := *s
	if now.since(c.short) >= shortTicks {
		c.requests = 0
	}
	if now.since(c.minute) >= minuteTicks {
		c.total, c.lacks, c.auth, c.gone, c.broken, c.early = 0, 0, 0, 0, 0, 0
		c.printCounts, c.routeCounts = [4]uint16{}, [2]uint16{}
		c.minuteWalk, c.minuteRoutes = walk{}, routes{}
	}
	if now.since(c.long) >= longTicks {
		c.longWalk, c.longRoute = walk{}, routes{}
	}
	return c
}

// add adds what another node counted of the same subject.
func (s *subject) add(o *subject) {
	s.requests = uint32(min(uint64(s.requests)+uint64(o.requests), math.MaxUint32))
	s.baseline += o.baseline
	s.windows = max(s.windows, o.windows)
	if uint32(s.total)+uint32(o.total) > math.MaxUint16 {
		half := *o
		half.halve()
		s.halve()
		o = &half
	}
	for _, sum := range [...]struct{ to, of *uint16 }{
		{&s.total, &o.total}, {&s.lacks, &o.lacks}, {&s.auth, &o.auth}, {&s.gone, &o.gone}, {&s.broken, &o.broken}, {&s.early, &o.early},
	} {
		*sum.to = plus(*sum.to, *sum.of)
	}
	for i, n := range o.printCounts {
		addCount(s.printHashes[:], s.printCounts[:], o.printHashes[i], n)
	}
	for i, n := range o.routeCounts {
		addCount(s.routeHashes[:], s.routeCounts[:], o.routeHashes[i], n)
	}
	s.minuteRoutes.union(&s.minuteWalk, &o.minuteRoutes, &o.minuteWalk)
	s.longRoute.union(&s.longWalk, &o.longRoute, &o.longWalk)
}

func plus(a, b uint16) uint16 { return uint16(min(uint32(a)+uint32(b), math.MaxUint16)) }

// addCount adds what another node counted for a hash. A hash that is new here replaces the
// least counted one if that has a lower count.
func addCount(hashes []uint32, counts []uint16, hash uint32, n uint16) {
	least := 0
	for i := range counts {
		if hashes[i] == hash && counts[i] > 0 {
			counts[i] = plus(counts[i], n)
			return
		}
		if counts[i] < counts[least] {
			least = i
		}
	}
	if n > counts[least] {
		hashes[least], counts[least] = hash, n
	}
}

// union adds the routes that another node saw; a route that both saw counts once.
func (r *routes) union(n *walk, o *routes, of *walk) {
	if uint32(n.total)+uint32(of.total) > math.MaxUint16 {
		n.total, n.gone, of = n.total/2, n.gone/2, &walk{total: of.total / 2, gone: of.gone / 2}
	}
	n.total, n.gone, n.seen, n.missing = n.total+of.total, plus(n.gone, of.gone), 0, 0
	for i := range r.seen {
		r.seen[i] |= o.seen[i]
		n.seen += uint16(bits.OnesCount64(r.seen[i]))
	}
	for i := range r.missing {
		r.missing[i] |= o.missing[i]
		n.missing += uint16(bits.OnesCount64(r.missing[i]))
	}
}

// appendAccount encodes what was counted of a subject, in AccountSize bytes.
func (s *subject) appendAccount(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, s.key)
	b = le.AppendUint32(b, s.requests)
	b = le.AppendUint32(b, math.Float32bits(s.baseline))
	for _, n := range [...]uint16{uint16(s.windows), s.total, s.lacks, s.auth, s.gone, s.broken, s.early} {
		b = le.AppendUint16(b, n)
	}
	for i, n := range s.printCounts {
		b = le.AppendUint16(le.AppendUint32(b, s.printHashes[i]), n)
	}
	for i, n := range s.routeCounts {
		b = le.AppendUint16(le.AppendUint32(b, s.routeHashes[i]), n)
	}
	for _, n := range [...]uint16{s.minuteWalk.total, s.minuteWalk.gone, s.longWalk.total, s.longWalk.gone} {
		b = le.AppendUint16(b, n)
	}
	for _, r := range [...]*routes{&s.minuteRoutes, &s.longRoute} {
		for _, word := range r.seen {
			b = le.AppendUint64(b, word)
		}
		for _, word := range r.missing {
			b = le.AppendUint64(b, word)
		}
	}
	return b
}

// readAccount decodes an account of AccountSize bytes. It reports whether a node could have
// counted it.
func (s *subject) readAccount(b []byte) bool {
	next := func(size int) (part []byte) {
		part, b = b[:size], b[size:]
		return part
	}
	u16 := func() uint16 { return binary.LittleEndian.Uint16(next(2)) }
	u32 := func() uint32 { return binary.LittleEndian.Uint32(next(4)) }
	u64 := func() uint64 { return binary.LittleEndian.Uint64(next(8)) }
	*s = subject{key: u64(), requests: u32()}
	s.baseline = math.Float32frombits(u32())
	windows := u16()
	s.windows = uint8(min(windows, settled))
	for _, n := range [...]*uint16{&s.total, &s.lacks, &s.auth, &s.gone, &s.broken, &s.early} {
		*n = u16()
	}
	for i := range s.printCounts {
		s.printHashes[i], s.printCounts[i] = u32(), u16()
	}
	for i := range s.routeCounts {
		s.routeHashes[i], s.routeCounts[i] = u32(), u16()
	}
	for _, n := range [...]*uint16{&s.minuteWalk.total, &s.minuteWalk.gone, &s.longWalk.total, &s.longWalk.gone} {
		*n = u16()
	}
	for _, r := range [...]*routes{&s.minuteRoutes, &s.longRoute} {
		for i := range r.seen {
			r.seen[i] = u64()
		}
		for i := range r.missing {
			r.missing[i] = u64()
		}
	}
	var none routes
	s.minuteRoutes.union(&s.minuteWalk, &none, &walk{})
	s.longRoute.union(&s.longWalk, &none, &walk{})
	return windows <= settled && s.baseline >= 0 && s.baseline <= math.MaxUint32
}
