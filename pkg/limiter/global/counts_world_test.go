package global

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// countsWorld is a plain model of regions that share limits by Counts: it knows every admitted
// request and checks each against the regions' promises.
type countsWorld struct {
	net     *network[*Message]
	random  *rand.Rand
	limit   *limiter.Limit
	regions []*countsRegion
	faults  []string
	buckets map[string]*modelBucket // of all regions together
	over    float64                 // the largest excess over the limit
	bound   float64                 // and the bound at that time
	passed  int64
}

type countsRegion struct {
	*Counts
	skew    time.Duration
	rate    float64 // requests per second and key
	next    time.Duration
	levels  map[string]*modelBucket
	history map[slot][]moment // of its own counters
	lost    map[slot]int64    // counted before a restart
	born    time.Duration     // of the incarnation
	late    map[late]int64    // what arrived after it mattered
}

type late struct {
	slot
	from int
}

type moment struct {
	at    time.Duration
	count int64 // of this incarnation
}

type modelBucket struct {
	level float64
	at    time.Duration
}

func (b *modelBucket) drain(rate float64, now time.Duration) float64 {
	b.level = max(0, b.level-rate*(now-b.at).Seconds())
	b.at = now
	return b.level
}

var countsLimits = []string{
	"r fixed_window limit=%d window=%s",
	"r sliding_window limit=%d window=%s",
	"r token_bucket limit=%d window=%s burst=%[1]d",
	"r leaky_bucket limit=%d window=%s burst=%[1]d",
}

func newCountsWorld(seed uint64, regions int) *countsWorld {
	random := rand.New(rand.NewPCG(seed, 16))
	w := &countsWorld{random: random, net: newNetwork[*Message](random, regions), buckets: map[string]*modelBucket{}}
	n := []int64{1, 10, 100, 1000, 6000}[random.IntN(5)] + random.Int64N(10)
	line := fmt.Sprintf(countsLimits[random.IntN(len(countsLimits))], n, []string{"1s", "5s", "10s"}[random.IntN(3)])
	l, err := storetest.ParseLimit(strings.Fields(line))
	if err != nil {
		panic(err)
	}
	w.limit = l
	total := float64(n) / l.Window.Seconds() * []float64{0.5, 1, 3, 10}[random.IntN(4)]
	for i := range regions {
		r := &countsRegion{levels: map[string]*modelBucket{}, history: map[slot][]moment{}, lost: map[slot]int64{}, late: map[late]int64{}}
		r.Counts = NewCounts(Config{Self: i, Regions: regions, Incarnation: 1})
		r.rate = total / float64(regions) * 2 * random.Float64()
		r.next = w.net.now + time.Duration(random.Int64N(int64(Period)))
		w.regions = append(w.regions, r)
	}
	return w
}

func (w *countsWorld) wall(r *countsRegion) int64 {
	return storetest.Epoch + (w.net.now + r.skew).Microseconds()
}

// run advances the world, with random disturbances unless calm.
func (w *countsWorld) run(length time.Duration, calm bool) {
	for end := w.net.now + length; w.net.now < end && len(w.faults) == 0; {
		w.net.step(w.deliver)
		for _, r := range w.regions {
			for _, key := range []string{"a", "b"} {
				for n := w.poisson(r.rate * tick.Seconds()); n > 0; n-- {
					w.ask(r, key, 1+w.random.Int64N(2))
				}
			}
			if w.net.now >= r.next {
				r.next += Period
				w.exchange(r)
			}
		}
		if !calm && w.random.IntN(200) == 0 {
			w.disturb()
		}
	}
}

func (w *countsWorld) poisson(mean float64) (n int) {
	for limit, p := math.Exp(-mean), w.random.Float64(); p > limit; p *= w.random.Float64() {
		n++
	}
	return n
}

func (w *countsWorld) disturb() {
	r := w.regions[w.random.IntN(len(w.regions))]
	switch w.random.IntN(4) {
	case 0:
		w.net.cut[r.config.Self] = w.net.now + time.Duration(w.random.Int64N(int64(4*time.Second)))
	case 1: // its store has lost everything
		for s, list := range r.history {
			r.lost[s] += list[len(list)-1].count
		}
		clear(r.history)
		r.born = w.net.now
		r.restart(r.config.Incarnation + 1)
	default: // a client moves
		r.rate, w.regions[0].rate = w.regions[0].rate, r.rate
	}
}

// restart begins a later incarnation of this region's counters, as a new owner does. Counts
// heard from other regions stay.
func (c *Counts) restart(incarnation int64) {
	c.config.Incarnation = incarnation
	for _, e := range c.entries {
		e.own, e.sent, e.pace = Cell{}, Cell{}, pace{}
		c.journal.remove(&e.journaled)
	}
	for i := range c.links {
		c.links[i].sent, c.links[i].acked = 0, 0
	}
}

// alone reports whether a region has heard from no other for 5 s.
func (w *countsWorld) alone(r *countsRegion) bool {
	for i := range w.regions {
		if lag, known := r.Lag(i, w.net.now); i != r.config.Self && known && lag <= 5*time.Second {
			return false
		}
	}
	return true
}

func (w *countsWorld) exchange(r *countsRegion) {
	for to := range w.regions {
		if to != r.config.Self {
			w.net.send(r.config.Self, to, r.Send(to, w.net.now))
		}
	}
	r.Sweep(w.wall(r))
}

func (w *countsWorld) deliver(to int, m *Message) {
	r := w.regions[to]
	for i := range m.Counts {
		if n := &m.Counts[i]; !n.matters(w.wall(r)) {
			at := late{slot{n.Key, n.Start}, m.From}
			r.late[at] = max(r.late[at], n.Count)
		}
	}
	for _, g := range r.Receive(m, w.wall(r), w.net.now) {
		if b := r.levels[g.Key]; b != nil {
			b.drain(float64(w.limit.Limit)/w.limit.Window.Seconds(), w.net.now)
			b.level += float64(max(0, g.Units))
		} else {
			r.levels[g.Key] = &modelBucket{float64(max(0, g.Units)), w.net.now}
		}
	}
}

// ask sends a request to a region, which decides by what it knows.
func (w *countsWorld) ask(r *countsRegion, key string, cost int64) {
	l, now, wall := w.limit, w.net.now, w.wall(r)
	width := Width(l)
	s := slot{key, wall - wall%width}
	earlier := slot{key, s.start - width}
	own := func(r *countsRegion, s slot) int64 { return r.Known(r.config.Self, s.key, s.start).Count }
	known := func(s slot) float64 { return float64(own(r, s) + r.Others(s.key, s.start)) }
	faded := 1 - float64(wall%width)/float64(width)
	perSecond := float64(l.Limit) / l.Window.Seconds()
	capacity := float64(whole(l))

	used := known(s)
	switch l.Algorithm {
	case limiter.SlidingWindow:
		used += known(earlier) * faded
	case limiter.TokenBucket, limiter.LeakyBucket:
		if r.levels[key] == nil {
			r.levels[key] = &modelBucket{at: now}
		}
		used = r.levels[key].drain(perSecond, now)
	}
	w.checkKnowledge(r, s)
	if used+float64(cost) > capacity {
		return
	}
	w.passed += cost
	if b := r.levels[key]; b != nil {
		b.level += float64(cost)
	}
	count := own(r, s) + cost
	r.Observe(l, key, s.start, count, now)
	r.history[s] = append(r.history[s], moment{now, count})

	all := func(s slot) (sum float64) {
		for _, o := range w.regions {
			sum += float64(own(o, s) + o.lost[s])
		}
		return sum
	}
	total, drained := all(s), perSecond
	kept := float64(Share(l, len(w.regions)) * int64(len(w.regions)-1))
	promise := kept + float64(r.lost[s]+r.lost[earlier])
	switch l.Algorithm {
	case limiter.SlidingWindow:
		total, promise = total+all(earlier)*faded, promise+kept
	case limiter.TokenBucket, limiter.LeakyBucket:
		if w.buckets[key] == nil {
			w.buckets[key] = &modelBucket{at: now}
		}
		drained += kept / (float64(width) / 1e6) // the shares apply in each window
		b := w.buckets[key]
		b.drain(drained, now)
		b.level += float64(cost)
		total, promise = b.level, promise+kept
	}
	if w.buckets[key] != nil {
		promise += w.unheardOf(r, key)
	} else {
		promise += w.unheard(r, s) + w.unheard(r, earlier)
	}
	if over := total - capacity; over > w.over {
		w.over, w.bound = over, promise
	}
	if total-capacity > promise+1e-6 {
		w.fault("%s: %.1f passed of %.0f, promised %.1f over", l.Algorithm, total, capacity, promise)
	}
}

// unheard returns what other regions admitted during the time for which this one may not have
// heard of them, and what they counted before their stores lost it.
func (w *countsWorld) unheard(r *countsRegion, s slot) (sum float64) {
	for i, o := range w.regions {
		if o == r {
			continue
		}
		list := o.history[s]
		sum += float64(o.lost[s])
		if len(list) == 0 {
			continue
		}
		sum += float64(list[len(list)-1].count)
		if lag, known := r.Lag(i, w.net.now); known && w.net.now-lag >= o.born {
			sum -= float64(o.countAt(s, w.net.now-lag))
		}
	}
	return sum
}

// unheardOf is the same for a bucket, which has no windows: regions whose clocks differ may be
// in any.
func (w *countsWorld) unheardOf(r *countsRegion, key string) (sum float64) {
	for i, o := range w.regions {
		if o == r {
			continue
		}
		since := time.Duration(0)
		if lag, known := r.Lag(i, w.net.now); known && w.net.now-lag >= o.born {
			since = w.net.now - lag
		}
		for s, list := range o.history {
			if s.key == key {
				sum += float64(list[len(list)-1].count - o.countAt(s, since))
			}
		}
		for s, n := range o.lost {
			if s.key == key {
				sum += float64(n)
			}
		}
	}
	for s, n := range r.late {
		if s.key == key {
			sum += float64(n)
		}
	}
	return sum
}

// countAt returns a region's count at a time.
func (r *countsRegion) countAt(s slot, t time.Duration) int64 {
	list := r.history[s]
	i := sort.Search(len(list), func(i int) bool { return list[i].at >= t })
	if i == 0 {
		return 0
	}
	return list[i-1].count
}

// checkKnowledge compares a region's view of the others' counters with the counters.
func (w *countsWorld) checkKnowledge(r *countsRegion, s slot) {
	sum := int64(0)
	for i, o := range w.regions {
		if o == r {
			continue
		}
		heard, is := r.Known(i, s.key, s.start), o.Known(i, s.key, s.start)
		sum += heard.Count
		lag, known := r.Lag(i, w.net.now)
		if heard.Incarnation == is.Incarnation && heard.Count > is.Count {
			w.fault("heard of %d, counted are %d", heard.Count, is.Count)
		}
		if !known || w.net.now-lag < o.born || is.Incarnation == 0 {
			continue
		}
		was := o.countAt(s, w.net.now-lag)
		if least := was - Share(w.limit, len(w.regions)); was > 0 && least > 0 && (heard.Incarnation != is.Incarnation || heard.Count < least) {
			w.fault("knows %d of what was %d, a lag of %s ago", heard.Count, was, lag)
		}
	}
	if sum != r.Others(s.key, s.start) {
		w.fault("the sum %d is not %d", r.Others(s.key, s.start), sum)
	}
}

func (w *countsWorld) fault(format string, args ...any) {
	if len(w.faults) < 5 { // the first few suffice
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}
