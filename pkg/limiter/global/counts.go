// Package global enforces limits across regions: it tracks what a region knows of the
// others, what it tells them, and what it may admit. It does no I/O, has no clock and takes
// no lock; its caller does.
//
// Counts is for limits that may be exceeded by a printed bound ("eventual"): for each key
// and window, each region has a counter that only grows, and knows the last value it
// received of the others' counters. Held is for limits that are never exceeded ("escrow"):
// which parts of which windows a region holds.
package global

import (
	"cmp"
	"math"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Period is the pause between two messages from one region to another.
const Period = 100 * time.Millisecond

// MaxBatch is the most counters in a message. The rest follow in the next one.
const MaxBatch = 10_000

// maxCount keeps sums exact, whatever a peer sends.
const maxCount = 1 << 53

// MaxSkew is how far apart the regions' clocks may be. A counter belongs to the window that
// its own region's clock names.
const MaxSkew = 10 * time.Second

// Cell is one region's counter for one key and window. A later incarnation replaces an
// earlier one even if it has counted less. After a failover, a flush or a reset, taking the
// maximum would hide new counts until they reached the old value.
type Cell struct {
	Incarnation int64
	Count       int64
}

// Merge returns the later of two states of a counter. It is commutative, associative and
// idempotent, so duplicated, late or reordered messages are harmless.
func (c Cell) Merge(o Cell) Cell {
	if o.Incarnation > c.Incarnation || o.Incarnation == c.Incarnation && o.Count > c.Count {
		return o
	}
	return c
}

// Count is a counter on its way to another region. Start and Width describe the window, in
// Unix microseconds and microseconds.
type Count struct {
	Key string
	// Tier is the tier whose limit counts the key; "" for the rule's own limit.
	Tier         string
	Start, Width int64
	Cell
}

// Message carries one region's own counters to another.
type Message struct {
	Header
	Counts []Count
}

// Gain is what another region has counted beyond what was known of it. Gains fill a bucket
// as they arrive. A new incarnation counts in full: a bucket may then hold a unit twice,
// but misses none.
type Gain struct {
	Key   string
	Start int64
	Units int64
}

// Config is a region's place among the others. All regions use the same numbering.
type Config struct {
	Self, Regions int
	// Incarnation is greater than that of any earlier state of this region.
	Incarnation int64
	// Resend is how long a message may go unanswered before it counts as lost; 0 means one
	// second.
	Resend time.Duration
	// MaxKeys bounds the counters kept; beyond it, other regions' counters are refused. 0
	// means a million.
	MaxKeys int
}

// Counts is what one region knows of all regions' counters.
type Counts struct {
	config  Config
	entries map[slot]*entry
	journal journal[*entry]
	links   []link
	refused int64
	merge   func(a, b Cell) Cell
}

type slot struct {
	key   string
	start int64
}

// entry is a key in one window, in all regions.
type entry struct {
	slot
	width     int64
	tier      string
	journaled record[*entry]
	own       Cell
	sent      Cell // as it last entered the journal
	pace      pace
	heard     []heard // by region, for those that count
	sum       int64   // of heard
}

type heard struct {
	region int
	cell   Cell
}

// NewCounts returns the state of a region that has heard nothing yet.
func NewCounts(c Config) *Counts {
	c.Resend = cmp.Or(c.Resend, time.Second)
	c.MaxKeys = cmp.Or(c.MaxKeys, 1_000_000)
	return &Counts{config: c, entries: map[slot]*entry{}, links: make([]link, c.Regions), merge: Cell.Merge}
}

// Observe records that this region has counted the given units of a key in the window that
// begins at start, as its store reports after its requests.
func (c *Counts) Observe(l *limiter.Limit, key string, start, count int64, now time.Duration) {
	e := c.entry(slot{key, start}, Width(l))
	if l.Global != nil {
		e.tier = l.Global.Tier
	}
	if count <= e.own.Count && e.own.Incarnation != 0 {
		return // a late answer
	}
	if e.own.Incarnation == 0 {
		e.own.Incarnation = c.config.Incarnation
	}
	e.pace.add(count-e.own.Count, now)
	e.own.Count = count
	if c.travels(l, e, now) {
		e.sent = e.own
		c.journal.touch(&e.journaled)
	}
}

// Superseded reports whether the sender of a message has heard a later incarnation of this
// region. It then ignores everything this one sends.
func (c *Counts) Superseded(m *Message) bool {
	return m.Heard > c.config.Incarnation && m.Heard < math.MaxInt64/2
}

// Supersede moves to a later incarnation and queues every counter of this region to be sent
// again.
func (c *Counts) Supersede(incarnation int64) {
	c.config.Incarnation = incarnation
	for _, e := range c.entries {
		if e.own.Incarnation == 0 {
			continue
		}
		e.own.Incarnation = incarnation
		if e.sent.Incarnation != 0 {
			e.sent = e.own
			c.journal.touch(&e.journaled)
		}
	}
	for i := range c.links {
		c.links[i].sent, c.links[i].acked = 0, 0
	}
}

// Others returns the sum of the other regions' counts, as far as this one has heard.
func (c *Counts) Others(key string, start int64) int64 {
	if e := c.entries[slot{key, start}]; e != nil {
		return e.sum
	}
	return 0
}

// Known returns this region's view of a region's counter: its own, or the last one it
// heard.
func (c *Counts) Known(region int, key string, start int64) Cell {
	e := c.entries[slot{key, start}]
	if e == nil {
		return Cell{}
	}
	if region == c.config.Self {
		return e.own
	}
	return e.of(region)
}

// Send returns the message that is due to a region.
func (c *Counts) Send(to int, now time.Duration) *Message {
	l := &c.links[to]
	m := &Message{Header: Header{From: c.config.Self, Incarnation: c.config.Incarnation}}
	l.write(&m.Header, now, c.config.Resend)
	m.Position = c.journal.since(m.Base, c.journal.position, MaxBatch, func(e *entry) {
		m.Counts = append(m.Counts, Count{Key: e.key, Tier: e.tier, Start: e.start, Width: e.width, Cell: e.own})
	})
	m.Partial = m.Position < c.journal.position
	l.wrote(m.Position, now)
	return m
}

// Receive merges a message at the time wall, in Unix microseconds by this region's clock,
// and returns what others have counted in addition. It skips counters of windows that no
// longer matter, or that begin further in the future than clocks may differ.
func (c *Counts) Receive(m *Message, wall int64, now time.Duration) []Gain {
	if m.From < 0 || m.From >= len(c.links) || m.From == c.config.Self {
		return nil
	}
	if !c.links[m.From].read(&m.Header, c.config.Incarnation, now) {
		return nil
	}
	var gains []Gain
	for i := range m.Counts {
		if n := &m.Counts[i]; n.matters(wall) {
			if units := c.receive(m.From, n); units != 0 {
				gains = append(gains, Gain{n.Key, n.Start, units})
			}
		} else {
			c.refused++
		}
	}
	return gains
}

func (n *Count) matters(wall int64) bool {
	if n.Width <= 0 || n.Width > limiter.MaxWindow.Microseconds() || n.Count < 0 || n.Count > maxCount {
		return false
	}
	skew := MaxSkew.Microseconds()
	return n.Start <= wall+skew && n.Start+2*n.Width+skew > wall
}

func (c *Counts) receive(from int, n *Count) (gained int64) {
	s := slot{n.Key, n.Start}
	if c.entries[s] == nil && len(c.entries) >= c.config.MaxKeys {
		c.refused++
		return 0
	}
	e := c.entry(s, n.Width)
	if e.own.Incarnation == 0 {
		e.tier = n.Tier
	}
	for i := range e.heard {
		h := &e.heard[i]
		if h.region != from {
			continue
		}
		was := h.cell
		h.cell = c.merge(was, n.Cell)
		e.sum += h.cell.Count - was.Count
		if h.cell.Incarnation != was.Incarnation {
			return h.cell.Count
		}
		return h.cell.Count - was.Count
	}
	e.heard = append(e.heard, heard{from, n.Cell})
	e.sum += n.Count
	return n.Count
}

func (e *entry) of(region int) Cell {
	for _, h := range e.heard {
		if h.region == region {
			return h.cell
		}
	}
	return Cell{}
}

func (c *Counts) entry(s slot, width int64) *entry {
	e := c.entries[s]
	if e == nil {
		e = &entry{slot: s, width: width}
		e.journaled.value = e
		c.entries[s] = e
	}
	return e
}

// Sweep forgets windows that no longer matter at the time wall.
func (c *Counts) Sweep(wall int64) {
	for s, e := range c.entries {
		if s.start+2*e.width+MaxSkew.Microseconds() <= wall {
			c.journal.remove(&e.journaled)
			delete(c.entries, s)
		}
	}
}

// Lag returns how old this region's knowledge of another may be, or false if it has none.
// It needs no common clock: it is the time since this region sent the message that the
// other's last one answered, provided nothing in between is missing.
func (c *Counts) Lag(region int, now time.Duration) (time.Duration, bool) {
	return c.links[region].lag(now)
}

// Keys returns how many counters are kept, how many of them must reach other regions, and
// how many of the others' were refused.
func (c *Counts) Keys() (kept, travel int, refused int64) {
	return len(c.entries), c.journal.size, c.refused
}
