package global

import (
	"math/bits"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Rights is for limits that are never exceeded ("escrow"). A limit is divided among the
// regions as rights: a region's rights are the units that it may admit in each window, or
// for a bucket its part of the flow and of the burst. Rights only move: a region takes from
// its own what it gives to another, before the other hears of it. So whatever is lost, late
// or cut, those of all regions together are at most the limit.
//
// Rights live for an epoch, a number of whole windows; then each region has its first part
// again. So nothing needs to be remembered for ever, and the part of a region that is gone
// can be taken over without asking what it gave to whom.
type Rights struct {
	config  RightsConfig
	entries map[part]*right
	journal journal[*right]
	links   []link
	terms   terms
	merged  []bool // peers that have told all since the last restart
	// peerLost is when those had last lost all.
	peerLost []int64
	lostAt   int64 // the wall clock at the last restart
	// completeAt is when all had told; 0: not yet.
	completeAt int64
	short      map[*right]struct{}
	asks       []Ask
	wall       int64 // the latest time seen: it does not run backwards
	credit     func(was, is Grant, window int64) (share, now int64)
}

// RightsConfig says where a region stands.
type RightsConfig struct {
	Config
	// Heirs names the region that takes over each region's part; -1 for none. Nil names the
	// next region of the topology.
	Heirs []int
	// Limit returns the limit of a key, nil if no rule has it.
	Limit func(key string) *limiter.Limit
	// Term, Epoch and Skew are for tests; 0 stands for the constants.
	Term, Epoch, Skew time.Duration
}

func (c *RightsConfig) fill() {
	c.Config.fill()
	if c.Heirs == nil {
		for i := range c.Regions {
			c.Heirs = append(c.Heirs, (i+1)%c.Regions)
		}
	}
	if c.Term == 0 {
		c.Term = Term
	}
	if c.Epoch == 0 {
		c.Epoch = Epoch
	}
	if c.Skew == 0 {
		c.Skew = MaxSkew
	}
}

// Grant is all that one region has given to another of one key in one epoch. It only
// grows, and the largest is the latest.
type Grant struct {
	// Share is how many units of the limit have moved.
	Share int64
	// From is the window in which the giver gave last, and Now how much of what it gave in
	// that window may be spent in it. What was given in earlier windows may be spent whole,
	// and so may all in later ones.
	From, Now int64
}

type part struct {
	key   string
	epoch int64 // its start, in Unix microseconds
}

// right is what this region holds of one key in one epoch.
type right struct {
	part
	limit *limiter.Limit
	place record[*right]
	peers []account

	active bool
	base   int64 // the region's own part and what it inherited
	// What it holds: base and what it got, without what it gave. Less than 0 for as long as
	// a restart is not over, if not all is known that it got.
	share  int64
	avail  int64 // what it may spend now, in units / scale
	window int64 // fixed_window: the start of the window that avail is for
	at     int64 // buckets: the time that avail is as of
	before int64 // buckets: the share that it had in the epoch before
	later  Grant // got for a window that has not begun here

	pace  pace
	asked time.Duration // when it last asked for more
}

// account is what passed between this region and another.
type account struct {
	region   int
	out, in  Grant
	demand   int64 // of the other, in units a window, when it last asked
	demandAt time.Duration
}

// NewRights returns the state of a region that has just started, and therefore spends
// nothing until it has heard of all others, or the next epoch.
func NewRights(c RightsConfig, wall int64, now time.Duration) *Rights {
	c.fill()
	r := &Rights{config: c, terms: newTerms(&c), credit: credit}
	r.forget(wall, now)
	return r
}

func (r *Rights) forget(wall int64, now time.Duration) {
	r.wall = max(r.wall, wall)
	r.lostAt, r.completeAt = r.wall, 0
	r.entries, r.journal, r.short, r.asks = map[part]*right{}, journal[*right]{}, map[*right]struct{}{}, nil
	r.links, r.merged = make([]link, r.config.Regions), make([]bool, r.config.Regions)
	r.peerLost = make([]int64, r.config.Regions)
	for i := range r.links {
		// What earlier incarnations sent must not arrive now.
		r.links[i].incarnation = r.terms.peers[i].latest
		r.terms.peers[i].valid, r.terms.peers[i].heardAt = false, now
	}
}

// Restart is for a store that has lost what it knew, after a failover or a flush. What the
// region spent in the present window is lost, too, so it spends nothing in that one, and
// before all others have told what they got and gave, or the next epoch.
func (r *Rights) Restart(incarnation, wall int64, now time.Duration) {
	r.config.Incarnation = max(incarnation, r.config.Incarnation+1)
	r.forget(wall, now)
}

// epochOf returns the start of the epoch that has that time.
func (r *Rights) epochOf(l *limiter.Limit, wall int64) int64 {
	return wall - wall%r.epochLength(l)
}

func (r *Rights) epochLength(l *limiter.Limit) int64 { return epochLength(l, r.config.Epoch) }

// epochLength is a number of whole windows: of drains, for a bucket.
func epochLength(l *limiter.Limit, least time.Duration) int64 {
	width := max(Width(l), l.Window.Microseconds())
	return (least.Microseconds() + width - 1) / width * width
}

// entitled returns what a region holds in an epoch before anything moves.
func (r *Rights) entitled(l *limiter.Limit, p part) (units int64) {
	for i := range r.config.Regions {
		if i == r.config.Self && r.terms.owns(p.epoch) || i != r.config.Self && r.terms.inherits(i, p.epoch) {
			units += Part(l, p.key, i, r.config.Regions)
		}
	}
	return units
}

// complete reports whether all that happened in an epoch is known here.
func (r *Rights) complete(epoch int64) bool {
	if epoch > r.lostAt+r.config.Skew.Microseconds() {
		return true
	}
	for i, ok := range r.merged {
		// What two have lost, nobody tells.
		if i != r.config.Self && (!ok || epoch <= r.peerLost[i]+r.config.Skew.Microseconds()) {
			return false
		}
	}
	return true
}

// Take spends so many units if this region holds them.
func (r *Rights) Take(l *limiter.Limit, key string, cost, wall int64, now time.Duration) bool {
	e := r.use(l, key, wall)
	e.pace.every = halfSecond
	e.pace.add(cost, now)
	ok := false
	if r.terms.good(now, r.wall) && r.complete(e.epoch) {
		if units := cost * scale(l); e.avail >= units {
			e.avail -= units
			ok = true
		}
	}
	if _, rest := r.demand(e, now); !ok || e.avail/scale(l) < rest {
		r.short[e] = struct{}{}
	}
	return ok
}

// use returns the entry of the present epoch, as it is now.
func (r *Rights) use(l *limiter.Limit, key string, wall int64) *right {
	r.wall = max(r.wall, wall)
	e := r.entry(l, part{key, r.epochOf(l, r.wall)})
	if !e.active {
		r.activate(e)
	}
	if base := r.entitled(l, e.part); base != e.base {
		// Only what was held before counts in this window.
		e.share += base - e.base
		e.base = base
		e.avail = min(e.avail, r.capacity(e))
	}
	r.roll(e)
	return e
}

func (r *Rights) entry(l *limiter.Limit, p part) *right {
	e := r.entries[p]
	if e == nil {
		e = &right{part: p, limit: l}
		e.place.value = e
		r.entries[p] = e
	}
	return e
}

// activate begins an epoch of a key: with the first part, and what others have given
// already by clocks that are ahead.
func (r *Rights) activate(e *right) {
	e.active = true
	e.base = r.entitled(e.limit, e.part)
	e.share = e.base
	for i := range e.peers {
		e.share -= e.peers[i].out.Share // before a restart
	}
	if last := r.entries[part{e.key, e.epoch - r.epochLength(e.limit)}]; last != nil {
		e.pace = last.pace // demand does not begin again
	}
	if isBucket(e.limit) {
		r.fill(e)
	} else if e.window = r.windowOf(e.limit); !r.spentUnknown(e) {
		e.avail = e.share
	}
	for i := range e.peers {
		r.receive(e, Grant{}, e.peers[i].in)
	}
	e.avail = min(e.avail, r.capacity(e))
}

// windowOf returns the start of the present window; for a bucket it is always 0.
func (r *Rights) windowOf(l *limiter.Limit) int64 {
	if isBucket(l) {
		return 0
	}
	return r.wall - r.wall%l.Window.Microseconds()
}

// roll brings what may be spent up to date.
func (r *Rights) roll(e *right) {
	if isBucket(e.limit) {
		r.refill(e)
		return
	}
	w := r.windowOf(e.limit)
	if w == e.window {
		return
	}
	e.window, e.avail = w, max(0, e.share)
	if r.spentUnknown(e) {
		e.avail = 0
	}
	if g := e.later; g.Share > 0 && g.From <= w {
		e.later = Grant{}
		e.share += g.Share
		if g.From < w {
			e.avail = max(0, e.share)
		} else {
			e.avail += g.Now
		}
	}
}

// credit returns what a newer grant adds: to the share, and to what may be spent in the
// receiver's window. It may not be spent before the giver's window has begun here.
func credit(was, is Grant, window int64) (share, now int64) {
	share, now = is.Share-was.Share, is.Now
	if is.From == was.From {
		now -= was.Now
	}
	if is.From < window {
		now = share // that window has ended for the giver, too, as far as it can say
	}
	return share, now
}

// receive adds what a newer grant says to what this region holds.
func (r *Rights) receive(e *right, was, is Grant) {
	if is.Share <= was.Share {
		return
	}
	share, now := r.credit(was, is, e.window)
	if is.From > e.window {
		if e.later.From < is.From {
			now += e.later.Share // that was given in an earlier window
		} else {
			now += e.later.Now
		}
		e.later = Grant{e.later.Share + share, is.From, now}
		return
	}
	e.share += share
	if r.spentUnknown(e) {
		now = 0 // it may have been spent before the restart
	}
	e.avail = min(e.avail+now, r.capacity(e))
}

// spentUnknown reports whether a restart has lost what was spent of what may be spent now.
func (r *Rights) spentUnknown(e *right) bool {
	if isBucket(e.limit) {
		return e.epoch <= r.lostAt
	}
	return e.window <= r.lostAt
}

// give moves rights to another region: share units, of which now may be spent in this
// window (for a bucket: parts of a unit). It reports whether it may.
func (r *Rights) give(e *right, to int, share, now int64) bool {
	if share < 1 || share > e.share || now < 0 || now > e.avail {
		return false
	}
	a := e.account(to)
	if e.window > a.out.From {
		a.out.From, a.out.Now = e.window, 0
	}
	if a.out.Now > never/2 { // sums would not be exact
		return false
	}
	a.out.Share += share
	a.out.Now += now
	e.share -= share
	e.avail -= now
	e.avail = min(e.avail, r.capacity(e))
	r.journal.touch(&e.place)
	return true
}

func (e *right) account(region int) *account {
	for i := range e.peers {
		if e.peers[i].region == region {
			return &e.peers[i]
		}
	}
	e.peers = append(e.peers, account{region: region})
	return &e.peers[len(e.peers)-1]
}

// capacity is the most that a region may have to spend at once.
func (r *Rights) capacity(e *right) int64 {
	if !isBucket(e.limit) {
		return e.share
	}
	return part64(e.limit.Capacity()*scale(e.limit), r.flow(e), e.limit.Limit)
}

// part64 returns whole × of / all, rounded down; of is at most all.
func part64(whole, of, all int64) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(max(0, min(of, all))))
	q, _ := bits.Div64(hi, lo, uint64(all))
	return int64(q)
}
