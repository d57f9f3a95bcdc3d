package exchange

import (
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// part is this node's knowledge of one partition.
type part struct {
	mu      sync.Mutex
	counts  *global.Counts // nil: nothing
	born    time.Duration
	used    time.Duration // when this node last owned the partition, or was taken for its owner
	regions int
	self    int
	pending map[charge]bool
	excused map[string]int64 // keys that were reset, and until when their sums mean nothing
	losses  map[string]int64 // when nodes found the store to have lost its counts
	// superseded is when another node of this region last spoke for the partition.
	superseded time.Duration
}

// charge is a count to charge to the store.
type charge struct {
	key    string
	start  int64
	region int
}

// keepFor is how long a node keeps a partition that it no longer owns, because other nodes may
// learn of the change later.
const keepFor = 30 * time.Second

// open prepares the partition for a number of regions. It is locked.
func (p *part) open(c *Config, regions, self int) {
	now := c.Clock()
	p.used = now
	if p.counts != nil && p.regions == regions && p.self == self {
		return
	}
	p.counts = global.NewCounts(global.Config{
		Self: self, Regions: regions, MaxKeys: maxKeys / Partitions,
		Incarnation: c.Incarnation + int64(now/time.Microsecond), // later than one that was closed
	})
	p.born, p.regions, p.self = now, regions, self
	p.pending, p.excused, p.losses = map[charge]bool{}, map[string]int64{}, map[string]int64{}
}

// maxKeys bounds a node's counters over all partitions.
const maxKeys = 1_000_000

// heard returns when another region was last heard from.
func (p *part) heard(now time.Duration) (at time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		return 0, false
	}
	for i := range p.regions {
		if lag, known := p.counts.Lag(i, now); i != p.self && known {
			at, ok = max(at, now-lag), true
		}
	}
	return at, ok
}

// observe records a total of this region.
func (p *part) observe(x *Exchange, l *limiter.Limit, key string, start, count int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Observe(l, key, start, count, x.config.Clock())
	p.measure(x, l, key, start)
}

// supersedeEvery bounds how often two nodes that both claim a partition supersede each other.
const supersedeEvery = time.Second

// receive merges another region's message about a partition.
func (p *part) receive(x *Exchange, number int, m *global.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		return
	}
	// Another node owned the partition meanwhile, and began later.
	if now := x.config.Clock(); p.counts.Superseded(m) && x.owns(number) && (p.superseded == 0 || now-p.superseded >= supersedeEvery) {
		p.superseded = now
		p.counts.Supersede(m.Heard + 1)
	}
	for _, g := range p.counts.Receive(m, x.config.Wall(), x.config.Clock()) {
		p.pending[charge{g.Key, g.Start, m.From}] = true
		if h, ok := p.counts.HeardOf(m.From, g.Key, g.Start); ok {
			if l := x.limit(h.Key, h.Tier, h.Width); l != nil {
				p.measure(x, l, g.Key, g.Start)
			}
		}
	}
}

// lost records that a node found the store to have lost its counts. Everything charged must be
// charged again.
func (p *part) lost(node string, losses int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil || losses <= p.losses[node] {
		return
	}
	if len(p.losses) > 10_000 {
		clear(p.losses)
	}
	p.losses[node] = losses
	p.counts.AllHeard(func(h global.Heard) { p.pending[charge{h.Key, h.Start, h.Region}] = true })
}

// sweep drops what no longer matters.
func (p *part) sweep(now time.Duration, wall int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		return
	}
	if now-p.used > keepFor {
		p.counts = nil
		return
	}
	p.counts.Sweep(wall)
	for key, until := range p.excused {
		if until < wall {
			delete(p.excused, key)
		}
	}
}

func (x *Exchange) owns(number int) bool {
	owner, ok := x.config.Directory.Owner(x.config.Region, names[number])
	return ok && x.config.Directory.IsSelf(owner)
}

func (x *Exchange) sweep() {
	for p := range x.parts {
		x.parts[p].sweep(x.config.Clock(), x.config.Wall())
	}
}
