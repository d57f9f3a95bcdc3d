// Package top finds which keys are counted most, in a fixed amount of memory: the Space-Saving
// algorithm (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements
// in Data Streams, 2005), in windows of a minute. Counting never makes a request wait, and
// allocates nothing.
package top

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Keys is how many keys a sketch follows in a window. A key with more than 1/Keys of the
	// window's counts is always among them, and no count is too high by more than that.
	Keys = 32
	// Window is how long keys are counted. A reader sees the current window and the one before.
	Window = time.Minute

	longestName = 86
)

// Sketch counts by key. It takes 8 KiB. Its methods may be called concurrently.
type Sketch struct {
	mu      sync.Mutex
	windows [2]window // by the parity of their number
}

type window struct {
	number int64 // since 1970
	total  uint64
	missed atomic.Uint64 // not counted, because another goroutine was at the sketch
	used   int
	hashes [Keys]uint64
	counts [Keys]uint32
	over   [Keys]uint32 // how much of the count may belong to keys that it replaced
	keys   [Keys]key
}

type key struct {
	client [16]byte // of the latest request
	kind   uint8
	length uint8
	name   [longestName]byte
}

const (
	hasClient uint8 = 1 << iota
	isIPv4
	isCut // the name was truncated
)

// Add counts a key once. The hash identifies it, so clients must not be able to choose it;
// the name, subject and rest, is what operators see.
func (s *Sketch) Add(at time.Time, hash uint64, client netip.Addr, subject, rest []byte) {
	n := numberOf(at)
	w := &s.windows[n&1]
	if !s.mu.TryLock() {
		w.missed.Add(1)
		return
	}
	defer s.mu.Unlock()
	switch w.number {
	case n:
	case n + 2: // it was delayed until its window was over
		return
	default:
		w.number, w.total, w.used = n, 0, 0
		w.missed.Store(0)
	}
	w.total++
	i := slices.Index(w.hashes[:w.used], hash)
	if i < 0 {
		i = w.replace(hash, subject, rest)
	}
	w.counts[i]++
	w.keys[i].seen(client)
}

func numberOf(at time.Time) int64 { return at.Unix() / int64(Window/time.Second) }

// replace gives a new key a free position, or that of the key with the lowest count, which
// the new one takes over: it may have been counted that often before it was replaced itself.
func (w *window) replace(hash uint64, subject, rest []byte) (i int) {
	if i = w.used; i < Keys {
		w.used++
		w.counts[i] = 0
	} else {
		i = w.lowest()
	}
	w.hashes[i], w.over[i] = hash, w.counts[i]
	k := &w.keys[i]
	n := copy(k.name[:], subject)
	n += copy(k.name[n:], rest)
	k.length, k.kind = uint8(n), 0
	if n < len(subject)+len(rest) {
		k.kind = isCut
	}
	return i
}

func (w *window) lowest() (i int) {
	for j := range w.counts {
		if w.counts[j] < w.counts[i] {
			i = j
		}
	}
	return i
}

func (k *key) seen(client netip.Addr) {
	k.kind &= isCut
	if !client.IsValid() {
		return
	}
	k.client = client.As16()
	k.kind |= hasClient
	if client.Is4() {
		k.kind |= isIPv4
	}
}

func (k *key) address() (a netip.Addr) {
	if k.kind&hasClient == 0 {
		return a
	}
	if a = netip.AddrFrom16(k.client); k.kind&isIPv4 != 0 {
		a = a.Unmap()
	}
	return a
}

// Counts is what a sketch found since a time.
type Counts struct {
	Since  time.Time
	Total  uint64
	Missed uint64 // not counted, beyond Total
	Keys   []Key  // the most frequent first
	lowest uint64 // what the last window may lack of a key that it does not follow
}

// Key is a key that was counted at least and at most so often, apart from what was missed.
type Key struct {
	Hash            uint64
	Name            string
	Cut             bool // the name is truncated
	Client          netip.Addr
	AtLeast, AtMost uint64
}

// Since returns from when on a reader sees counts.
func Since(now time.Time) time.Time {
	return time.Unix((numberOf(now)-1)*int64(Window/time.Second), 0).UTC()
}

// Read returns the keys of the current window and the one before. It leaves out keys of whose
// count less than half is certain: among many equally frequent keys, none stands out.
func (s *Sketch) Read(now time.Time) Counts {
	c := Counts{Since: Since(now)}
	s.mu.Lock()
	for n := numberOf(now) - 1; n <= numberOf(now); n++ {
		if w := &s.windows[n&1]; w.number == n {
			c.add(w)
		}
	}
	s.mu.Unlock()
	c.Keys = slices.DeleteFunc(c.Keys, func(k Key) bool { return 2*k.AtLeast < k.AtMost })
	slices.SortFunc(c.Keys, func(a, b Key) int { return cmp.Or(cmp.Compare(b.AtLeast, a.AtLeast), cmp.Compare(a.Name, b.Name)) })
	return c
}

// add adds a window. A key that a full window does not follow may have been counted there as
// often as the least frequent one that it does.
func (c *Counts) add(w *window) {
	lacks, before, known := uint64(0), c.lowest, len(c.Keys)
	if w.used == Keys {
		lacks = uint64(w.counts[w.lowest()])
	}
	for i := range c.Keys {
		c.Keys[i].AtMost += lacks
	}
	for i := range w.used {
		k, count := &w.keys[i], uint64(w.counts[i])
		certain := count - uint64(w.over[i])
		at := slices.IndexFunc(c.Keys[:known], func(k Key) bool { return k.Hash == w.hashes[i] })
		if at < 0 {
			c.Keys = append(c.Keys, Key{Hash: w.hashes[i], Name: string(k.name[:k.length]), Cut: k.kind&isCut != 0, Client: k.address(), AtLeast: certain, AtMost: before + count})
			continue
		}
		both := &c.Keys[at]
		both.AtLeast, both.AtMost, both.Client = both.AtLeast+certain, both.AtMost-lacks+count, k.address()
	}
	c.Total, c.Missed, c.lowest = c.Total+w.total, c.Missed+w.missed.Load(), lacks
}
