// Package global keeps limits across regions: what a region knows of the others, what it
// tells them, and what it may admit. It does no I/O, has no clock and takes no lock: its
// caller does.
//
// Counts is for limits that may be exceeded by a printed bound ("eventual"): each region
// has a counter of its own that only grows, for each key and window, and knows the others'
// as it last heard of them. Held is for limits that are never exceeded ("escrow"): which parts
// of which windows a region holds.
package global

import (
	"math"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Period is the pause between the messages of a region to another.
const Period = 100 * time.Millisecond

// MaxBatch is the number of counters in a message. What does not fit follows in the next.
const MaxBatch = 10_000

// maxCount keeps sums exact, whatever a peer says.
const maxCount = 1 << 53

// MaxSkew is how far the clocks of regions may be apart. A counter belongs to the window
// that its region's clock names.
const MaxSkew = 10 * time.Second

// Cell is one region's counter of one key and window. A later incarnation replaces an
// earlier one, even if it has counted less: after a failover, a flush, or a reset, the
// maximum would hide all that is counted until the old count is reached again.
type Cell struct {
	Incarnation int64
	Count       int64
}

// Merge returns the later of two states of a counter. It is commutative, associative and
// idempotent, so a message that is doubled, late or out of order does no harm.
func (c Cell) Merge(o Cell) Cell {
	if o.Incarnation > c.Incarnation || o.Incarnation == c.Incarnation && o.Count > c.Count {
		return o
	}
	return c
}

// Count is a counter on its way to another region. Start and Width are those of the window,
// in Unix microseconds and microseconds.
type Count struct {
	Key string
	// Tier is that of the limit by which the key is counted; "" for the rule's own.
	Tier         string
	Start, Width int64
	Cell
}

// Message is what one region tells another of its own counters.
type Message struct {
	Header
	Counts []Count
}

// Gain is what another region has counted beyond what was known of it. A bucket fills by
// it as it arrives. A new incarnation counts in full: a bucket may then hold a unit twice,
// but misses none.
type Gain struct {
	Key   string
	Start int64
	Units int64
}

// Config says where a region stands. Regions have the same numbers everywhere.
type Config struct {
	Self, Regions int
	// Incarnation is larger than that of any earlier state of this region.
	Incarnation int64
	// Resend is after how long without an answer a message counts as lost; 0 stands for
	// one second.
	Resend time.Duration
	// MaxKeys bounds the counters kept; others' are refused beyond it. 0 stands for a
	// million.
	MaxKeys int
}

func (c *Config) fill() {
	if c.Resend == 0 {
		c.Resend = time.Second
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = 1_000_000
	}
}

// Counts is what one region knows of the counters of all.
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
	width int64
	tier  string
	place record[*entry]
	own   Cell
	told  Cell // as it last entered the journal
	pace  pace
	heard []heard // of regions that count
	sum   int64   // of heard
}

type heard struct {
	region int
	cell   Cell
}

// NewCounts returns a region's state that has heard of nothing.
func NewCounts(c Config) *Counts {
	c.fill()
	return &Counts{config: c, entries: map[slot]*entry{}, links: make([]link, c.Regions), merge: Cell.Merge}
}

// Observe notes that this region has counted so many units of a key in the window that
// begins at start: what its store says, after its requests.
func (c *Counts) Observe(l *limiter.Limit, key string, start, count int64, now time.Duration) {
	e := c.entry(slot{key, start}, Width(l))
	if l.Global != nil {
		e.tier = l.Global.Tier
	}
	if count <= e.own.Count && e.own.Incarnation != 0 {
		return // an answer that was late
	}
	if e.own.Incarnation == 0 {
		e.own.Incarnation = c.config.Incarnation
	}
	e.pace.add(count-e.own.Count, now)
	e.own.Count = count
	if c.travels(l, e, now) {
		e.told = e.own
		c.journal.touch(&e.place)
	}
}

// Reset begins this region's counter again, and tells the others at once.
func (c *Counts) Reset(key string, start int64) {
	e := c.entries[slot{key, start}]
	if e == nil || e.own.Incarnation == 0 {
		return
	}
	e.own = Cell{Incarnation: e.own.Incarnation + 1}
	e.told = e.own
	c.journal.touch(&e.place)
}

// Restart begins all counters of this region again, after a failover or a flush of its
// store. What was heard of other regions stays.
func (c *Counts) Restart(incarnation int64) {
	c.config.Incarnation = incarnation
	for _, e := range c.entries {
		e.own, e.told, e.pace = Cell{}, Cell{}, pace{}
		c.journal.remove(&e.place)
	}
	for i := range c.links {
		c.links[i].sent, c.links[i].acked = 0, 0
	}
}

// Superseded reports whether the sender of a message has heard somebody else speak for this
// region in a later incarnation. It hears nothing of this one any more.
func (c *Counts) Superseded(m *Message) bool {
	return m.Heard > c.config.Incarnation && m.Heard < math.MaxInt64/2
}

// Supersede takes a later incarnation, and tells all that this region has told again.
func (c *Counts) Supersede(incarnation int64) {
	c.config.Incarnation = incarnation
	for _, e := range c.entries {
		if e.own.Incarnation == 0 {
			continue
		}
		e.own.Incarnation = incarnation
		if e.told.Incarnation != 0 {
			e.told = e.own
			c.journal.touch(&e.place)
		}
	}
	for i := range c.links {
		c.links[i].sent, c.links[i].acked = 0, 0
	}
}

// Others returns what this region has heard of the others' counts.
func (c *Counts) Others(key string, start int64) int64 {
	if e := c.entries[slot{key, start}]; e != nil {
		return e.sum
	}
	return 0
}

// Known returns what this region knows of a region's counter: its own, or what it heard.
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
// and returns what others have counted in addition. Counters of windows that do not matter
// here any more, or begin later than clocks may be apart, are left out.
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
		e.place.value = e
		c.entries[s] = e
	}
	return e
}

// Sweep forgets windows that no longer matter at the time wall.
func (c *Counts) Sweep(wall int64) {
	for s, e := range c.entries {
		if s.start+2*e.width+MaxSkew.Microseconds() <= wall {
			c.journal.remove(&e.place)
			delete(c.entries, s)
		}
	}
}

// Lag returns how old this region's knowledge of another may be, or false if it has none.
// It needs no common clock: it is the time since this region sent the message that the
// other's last one answered, and nothing is missing in between.
func (c *Counts) Lag(region int, now time.Duration) (time.Duration, bool) {
	return c.links[region].lag(now)
}

// Alone reports whether this region has heard of no other for longer than that time.
func (c *Counts) Alone(now, longer time.Duration) bool {
	for i := range c.links {
		if lag, known := c.Lag(i, now); i != c.config.Self && known && lag <= longer {
			return false
		}
	}
	return len(c.links) > 1
}

// Keys returns how many counters are kept, how many of them matter to other regions, and
// how many of others' were refused.
func (c *Counts) Keys() (kept, travel int, refused int64) {
	return len(c.entries), c.journal.size, c.refused
}
