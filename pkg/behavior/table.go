package behavior

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	shards     = 64
	numberBits = 18 // of a place; the rest hold part of the key, which avoids reading most other subjects
	// MaxSubjects is the largest size of a table.
	MaxSubjects = shards * (1<<numberBits - 1)

	chunkSize = 128 // subjects that are allocated at once
	looked    = 8   // how many subjects are compared to evict the quietest
	lookedMax = 64  // if the others have scores or are refused
)

// Table holds the subjects of one kind. Its methods may be called concurrently.
type Table struct {
	policy atomic.Pointer[Policy]
	near   atomic.Pointer[near] // nil while no other node needs reports
	nodes  atomic.Int32         // of the region, that judge the same subjects
	began  time.Time
	shards [shards]shard
	site   site
}

// shard is a hash table of subjects. Its places never move, so that growing copies
// nothing.
type shard struct {
	mu     sync.Mutex
	slots  []uint32 // by key: 1 + the number of a subject, below a part of its key; 0 if free
	chunks [][]subject
	n, max uint32
	hand   uint32 // where eviction looks next
	listed []*subject
	turn   int // the index in listed that gives way next
	counts Counts
	_      [64]byte // the next shard's lock is in another cache line
}

// Counts is what happened in a table since it was created.
type Counts struct {
	Subjects  int    // in the table now
	Evicted   uint64 // subjects evicted for new ones
	Untracked uint64 // requests of new subjects for which none could be evicted
}

// NewTable returns a table for up to size subjects, rounded up to a multiple of 64. A
// subject takes 256 bytes once it is seen. The policy must be valid.
func NewTable(size int, p *Policy, now time.Time) *Table {
	t := &Table{began: now}
	t.policy.Store(p)
	each := uint32((min(max(size, 1), MaxSubjects) + shards - 1) / shards)
	for i := range t.shards {
		t.shards[i].max = each
		t.shards[i].slots = make([]uint32, nextPower(2*each-each/2))
	}
	return t
}

func nextPower(n uint32) uint32 {
	p := uint32(8)
	for p < n {
		p *= 2
	}
	return p
}

// SetPolicy replaces the policy. Scores stay, and count under the new tiers.
func (t *Table) SetPolicy(p *Policy) { t.policy.Store(p) }

// Policy returns the active policy.
func (t *Table) Policy() *Policy { return t.policy.Load() }

func (t *Table) tick(now time.Time) tick {
	return tick(now.Sub(t.began) / (time.Second / ticksPerSecond))
}

// Status returns a subject's standing. A subject never seen is in the mildest tier.
func (t *Table) Status(key uint64, now time.Time) Status {
	p, at, s := t.policy.Load(), t.tick(now), t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(key)
	if found == nil {
		return Status{}
	}
	found.settle(p, at)
	st := found.status(at)
	st.Rose = found.shared.has(unsaid)
	return st
}

// Reasons appends the contributions to a subject's score.
func (t *Table) Reasons(key uint64, now time.Time, list []Reason) []Reason {
	p, at, s := t.policy.Load(), t.tick(now), t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.find(key); found != nil {
		found.settle(p, at)
		return found.reasons(p, list)
	}
	return list
}

// Observe counts a finished request and returns its subject's new standing. Do not pass
// requests that the subject's tier refused: they are not judged.
func (t *Table) Observe(key uint64, now time.Time, e *Event) Status {
	return t.observe(key, now, e, true)
}

func (t *Table) observe(key uint64, now time.Time, e *Event, add bool) Status {
	p, at, s := t.policy.Load(), t.tick(now), t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(key)
	if found == nil {
		if !add {
			return Status{}
		}
		if found = s.add(p, key, at); found == nil {
			return Status{}
		}
	}
	found.settle(p, at)
	before := found.tier
	if !found.refuses {
		found.seen = at
		if e.Refused {
			found.refusal(p, e, at)
		} else {
			failed := e.Status >= 500
			t.site.hear(found, at, found.roll(at), failed)
			found.observe(p, e, failed && t.site.failing(at))
		}
		found.settle(p, at)
		if n := t.near.Load(); n != nil && !found.shared.has(listed) && n.reached(found) {
			s.list(found)
		}
	}
	st := found.status(at)
	st.Rose = found.tier > before
	return st
}

// Announce reports whether Merge moved the subject to a severer tier and no one has
// announced it yet. Call it if Status returns Rose.
func (t *Table) Announce(key uint64) bool {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(key)
	if found == nil || !found.shared.has(unsaid) {
		return false
	}
	found.shared &^= unsaid
	return true
}

// Counts returns what happened so far.
func (t *Table) Counts() (sum Counts) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		sum.Subjects += int(s.n)
		sum.Evicted += s.counts.Evicted
		sum.Untracked += s.counts.Untracked
		s.mu.Unlock()
	}
	return sum
}

// shard uses the key's upper bits; the places use the lower ones.
func (t *Table) shard(key uint64) *shard { return &t.shards[key>>58] }

func (s *shard) at(n uint32) *subject { return &s.chunks[n/chunkSize][n%chunkSize] }

func (s *shard) find(key uint64) *subject {
	mask, part := uint32(len(s.slots)-1), partOf(key)
	for i := uint32(key) & mask; s.slots[i] != 0; i = (i + 1) & mask {
		if s.slots[i]&^numbers != part {
			continue
		}
		if found := s.in(i); found.key == key {
			return found
		}
	}
	return nil
}

const numbers = 1<<numberBits - 1

func partOf(key uint64) uint32 { return uint32(key>>24) &^ numbers }

// in returns the subject whose place is i.
func (s *shard) in(i uint32) *subject { return s.at(s.slots[i]&numbers - 1) }

// add returns a new subject, or nil if all candidates for eviction are refused.
func (s *shard) add(p *Policy, key uint64, now tick) *subject {
	n := s.n
	if n < s.max {
		if n%chunkSize == 0 {
			s.chunks = append(s.chunks, make([]subject, min(chunkSize, s.max-n)))
		}
		s.n++
	} else {
		victim, ok := s.quietest(p, now)
		if !ok {
			s.counts.Untracked++
			return nil
		}
		s.remove(s.at(victim).key)
		s.unlist(s.at(victim))
		s.counts.Evicted++
		n = victim
	}
	mask := uint32(len(s.slots) - 1)
	i := uint32(key) & mask
	for s.slots[i] != 0 {
		i = (i + 1) & mask
	}
	s.slots[i] = partOf(key) | (n + 1)
	found := s.at(n)
	found.begin(key, now)
	return found
}

// quietest compares a few subjects and returns the one with the lowest score or, among
// equals, the one seen longest ago. It never returns one that is refused now. It decays
// scores first, because those of idle subjects would otherwise never fall.
func (s *shard) quietest(p *Policy, now tick) (victim uint32, ok bool) {
	var least float32
	var idle int32
	for i := range min(lookedMax, s.n) {
		if i >= looked && ok && least == 0 {
			break
		}
		n := s.hand
		s.hand = (s.hand + 1) % s.n
		c := s.at(n)
		if c.refuses && now.since(c.blocked) < 0 {
			continue
		}
		if c.score() > 0 {
			c.settle(p, now)
		}
		score, quiet := c.score(), now.since(c.seen)
		if !ok || score < least || score == least && quiet > idle {
			victim, ok, least, idle = n, true, score, quiet
		}
	}
	return victim, ok
}

// remove removes a key and closes the gap.
func (s *shard) remove(key uint64) {
	mask := uint32(len(s.slots) - 1)
	i := uint32(key) & mask
	for s.in(i).key != key {
		i = (i + 1) & mask
	}
	for j := (i + 1) & mask; s.slots[j] != 0; j = (j + 1) & mask {
		// The entry at j may move to i if its search passes i.
		if home := uint32(s.in(j).key) & mask; (j-home)&mask >= (j-i)&mask {
			s.slots[i], i = s.slots[j], j
		}
	}
	s.slots[i] = 0
}
