package across

import (
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// part is what this node knows of one partition.
type part struct {
	mu      sync.Mutex
	counts  *global.Counts // nil: nothing
	born    time.Duration
	used    time.Duration // when the partition was last this node's, or somebody took it for that
	regions int
	self    int
	pending map[charge]bool
	excused map[string]int64 // keys that were reset: until when sums say nothing
	losses  map[string]int64 // when nodes found the store to have lost what it held
	// superseded is when another node of this region had spoken for the partition last.
	superseded time.Duration
}

// charge is a count that has to be charged to the store.
type charge struct {
	key    string
	start  int64
	region int
}

// keepFor is how long a partition that is no longer this node's is kept: others may not know
// that yet.
const keepFor = 30 * time.Second

// open prepares the partition for so many regions. It is locked.
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

// maxKeys bounds the counters that a node keeps of all partitions.
const maxKeys = 1_000_000

// heard returns when another region was last heard of.
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

// observe notes a total of this region.
func (p *part) observe(x *Exchange, l *limiter.Limit, key string, start, count int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Observe(l, key, start, count, x.config.Clock())
	p.measure(x, l, key, start)
}

// supersedeEvery bounds how often two nodes that both take themselves for the owner of a
// partition outdo each other.
const supersedeEvery = time.Second

// receive takes in a message of another region about the partition of that number.
func (p *part) receive(x *Exchange, number int, m *global.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		return
	}
	// Another node was the owner meanwhile, and began later.
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

// lost notes that a node has found the store to lack what it held. All that was charged has
// to be charged again.
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

// sweep forgets what no longer matters.
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
