package spillsim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/shedder"
)

const (
	// usualTTL is how long clients keep an answer unless the scenario says otherwise.
	usualTTL = 20 * time.Second
	// networks is how many client networks a PoP has. Their demand has a heavy tail.
	networks = 1000
	// workers serve at each origin, so that its capacity is workers / the mean service time.
	workers = 100
	// travel is how long a registration takes to reach the routers.
	travel = 300 * time.Millisecond
	// detect is how long a lost region stays in DNS.
	detect = 5 * time.Second
	// yieldsAfter is how long a router hears nothing before it answers SERVFAIL: until its facts
	// are old, and it has asked the others (internal/router).
	yieldsAfter = 65 * time.Second
	parts       = 5 // of a shedder's interval, in which origins move
)

// scenario is what happens. Times are since the change begins.
type scenario struct {
	name     string
	capacity []float64 // of each PoP, requests per second
	stated   bool      // the topology states them
	demand   func(pop int, t time.Duration) float64
	lost     func(pop int, t time.Duration) bool // nil: never
	change   time.Duration                       // when it is over
	ttl      time.Duration                       // 0: usualTTL
	tail     float64                             // the nth network's demand is as n^-tail; 0: 0.6
	length   time.Duration                       // from then on; 0: 10 minutes
	// deaf is when the second router stops hearing; restarts is when it starts again and knows
	// nothing. 0: never.
	deaf, restarts time.Duration
	hears          time.Duration // when the deaf one hears again; 0: never
	alone          bool          // routers do not know where others answer, so none yields
	seeds          uint64        // how many the short form judges; 0: 1
	allowances
}

// allowances are what may be beyond the bounds: % of networks that move in the worst minute;
// as fractions of demand, what is shed at first, later, and because of others' clients.
type allowances struct{ moves, shed, late, pushed float64 }

// warmUp is how long the world runs before the change.
const warmUp = 2 * time.Minute

// network is one client network, which asks DNS again whenever its answer expires.
type network struct {
	client netip.Prefix
	home   int
	weight float64 // of its PoP's demand
	at     int     // the PoP that it uses
	asks   time.Duration
}

// pop is one site: a shedder and the origin behind it.
type pop struct {
	shedder     *shedder.Shedder
	capacity    float64
	held        []shedder.Permit
	published   consul.Load
	publishedAt time.Duration
	arriving    float64 // requests per second sent here now
	own         float64 // what the PoP's own clients ask for, wherever they are sent
	shed        int
}

// router sends a network to a PoP.
type router interface {
	hear(w *world, t time.Duration)
	pick(w *world, n *network) int
}

// world is one run.
type world struct {
	scenario
	rng      *rand.Rand
	epoch    time.Time
	topology *region.Topology
	pops     []*pop
	networks []*network
	due      []*network // in the order in which they ask; next is the index of the next
	next     int
	flow     [][]float64 // of each PoP's own demand, the part that goes to each PoP
	routers  []router
	heard    []heardLoad
	record   *region.Spill // what routers have in common
	result   result
}

// heardLoad is a registration on its way.
type heardLoad struct {
	pop  int
	load consul.Load
	at   time.Duration // when routers have it
}

// result is what a run measured. Rates are in requests per second over the time.
type result struct {
	demand              float64 // mean, of all
	shedEarly, shedLate float64 // in the first 5 TTLs after the change, and after
	movesLate           float64 // % of all networks per minute, after
	worstMinute         float64 // the most in a minute after
	pushedLate          float64 // shed at PoPs whose own clients would fit, after
	moves               []int   // by second
	trace               []string
}

func newWorld(s scenario, seed uint64, routers ...func(*world) router) *world {
	s.ttl, s.tail, s.length = cmp.Or(s.ttl, usualTTL), cmp.Or(s.tail, 0.6), cmp.Or(s.length, 10*time.Minute)
	w := &world{scenario: s, rng: rand.New(rand.NewPCG(seed, 1)), epoch: time.Unix(1_700_000_000, 0), topology: &region.Topology{Zone: "edge.example.com"}}
	for p, c := range s.capacity {
		w.pops = append(w.pops, &pop{capacity: c})
		w.pops[p].start()
		site := region.PoP{
			Name: fmt.Sprintf("pop%d", p), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(p)})},
			Clients:  []netip.Prefix{netip.PrefixFrom(address(p, 0), 14)},
			Location: &region.Location{Lat: 30 * math.Sin(float64(p)*1.7), Lon: float64(p) * 360 / float64(max(len(s.capacity), 8))},
		}
		if s.stated {
			site.Capacity = &c
		}
		w.topology.Regions = append(w.topology.Regions, region.TopologyRegion{Name: fmt.Sprintf("r%d", p), PoPs: []region.PoP{site}})
		sum := 0.0
		for n := range networks {
			net := &network{
				client: netip.PrefixFrom(address(p, n), 24), home: p, at: p,
				weight: 1 / math.Pow(float64(n+1), s.tail), asks: time.Duration(w.rng.Int64N(int64(s.ttl))),
			}
			sum += net.weight
			w.networks = append(w.networks, net)
		}
		for _, n := range w.networks[p*networks:] {
			n.weight /= sum
		}
		w.flow = append(w.flow, make([]float64, len(s.capacity)))
		w.flow[p][p] = 1
	}
	w.due = slices.Clone(w.networks)
	slices.SortStableFunc(w.due, func(a, b *network) int { return cmp.Compare(a.asks, b.asks) })
	for _, r := range routers {
		w.routers = append(w.routers, r(w))
	}
	return w
}

// start replaces a PoP's edges with new ones, which have measured nothing.
func (p *pop) start() {
	settings := shedder.Defaults()
	settings.Signals = map[string]shedder.Knees{shedder.SignalInFlight: {Low: 0, High: 800}}
	sh, err := shedder.New("origin", settings)
	if err != nil {
		panic(err)
	}
	p.shedder, p.published, p.publishedAt = sh, consul.Load{}, -time.Hour
}

// address returns the first address of a PoP's nth network.
func address(pop, nth int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(pop+16)<<18|uint32(nth)<<8)
	return netip.AddrFrom4(b)
}

// run simulates the world until its scenario ends.
func (w *world) run() result {
	end := warmUp + w.change + w.length
	seconds := int(end / time.Second)
	w.result.moves = make([]int, seconds+1)
	shed := make([]float64, seconds+1)
	pushed := make([]float64, seconds+1)
	for t := time.Duration(0); t < end; t += shedder.Interval {
		second := int(t / time.Second)
		w.resolve(t)
		before := make([]int, len(w.pops))
		for i, p := range w.pops {
			if before[i] = p.shed; w.dead(i, t-shedder.Interval) && !w.dead(i, t) {
				p.start()
			}
			w.serve(p, w.dead(i, t))
		}
		for i, p := range w.pops {
			p.shedder.Tick(w.epoch.Add(t), nil)
			n := float64(p.shed - before[i])
			shed[second] += n
			if p.own <= p.capacity && !w.dead(i, t) {
				pushed[second] += n
			}
			if t%time.Second == 0 {
				w.publish(i, t)
			}
		}
		if t%time.Second == 0 {
			for _, r := range w.routers {
				r.hear(w, t)
			}
			w.note(t)
		}
	}
	w.summarize(shed, pushed)
	return w.result
}

func (w *world) dead(p int, t time.Duration) bool {
	return w.lost != nil && t >= warmUp && w.lost(p, t-warmUp)
}

// rate returns the demand of a PoP's own clients.
func (w *world) rate(p int, t time.Duration) float64 { return w.demand(p, t-warmUp) }

// settling is how long a change may take: 5 TTLs, and with a short TTL the time in which
// figures are published a few times.
func (w *world) settling() time.Duration { return max(5*w.ttl, 100*time.Second) }

// resolve answers the networks whose answers have expired, and adds up what arrives at each PoP.
func (w *world) resolve(t time.Duration) {
	for ; w.due[w.next].asks <= t; w.next = (w.next + 1) % len(w.due) {
		n := w.due[w.next]
		n.asks += w.ttl
		if at := w.router(t).pick(w, n); at != n.at {
			w.result.moves[t/time.Second]++
			w.flow[n.home][n.at] -= n.weight
			w.flow[n.home][at] += n.weight
			n.at = at
		}
	}
	for _, p := range w.pops {
		p.arriving = 0
	}
	for i, p := range w.pops {
		p.own = w.rate(i, t)
		for k, part := range w.flow[i] {
			w.pops[k].arriving += max(part, 0) * p.own
		}
	}
}

// router returns the one that answers a resolver: after a SERVFAIL the resolver asks the next. A
// router yields only to one that hears, so if none does, each answers.
func (w *world) router(t time.Duration) router {
	first := w.rng.IntN(len(w.routers))
	for i := range w.routers {
		r := w.routers[(first+i)%len(w.routers)]
		if s, real := r.(*spilling); !real || w.alone || t-s.last < yieldsAfter {
			return r
		}
	}
	return w.routers[first]
}

// serve simulates a PoP and its origin for one interval.
func (w *world) serve(p *pop, dead bool) {
	dt := shedder.Interval.Seconds() / parts
	for range parts {
		if dead {
			p.held = p.held[:0]
			return
		}
		for range w.poisson(p.arriving * dt) {
			permit, ok := p.shedder.Admit(w.class(), w.rng.Uint64())
			if !ok {
				p.shed++
				continue
			}
			permit.Sent()
			p.held = append(p.held, permit)
		}
		busy := min(workers, float64(len(p.held)))
		done := min(w.poisson(busy/workers*p.capacity*dt), len(p.held))
		for i := range done {
			p.held[i].Answered()
			p.held[i].Done()
		}
		p.held = p.held[done:]
	}
}

// class draws the class of a request: 10, 20, 50 and 20%.
func (w *world) class() int {
	switch n := w.rng.IntN(10); {
	case n < 1:
		return 0
	case n < 3:
		return 1
	case n < 8:
		return 2
	}
	return 3
}

func (w *world) poisson(mean float64) int {
	if mean > 30 {
		return max(0, int(math.Round(mean+w.rng.NormFloat64()*math.Sqrt(mean))))
	}
	n, none := 0, math.Exp(-mean)
	for p := w.rng.Float64(); p > none; p *= w.rng.Float64() {
		n++
	}
	return n
}

// publish is what a node does every second.
func (w *world) publish(i int, t time.Duration) {
	p, s := w.pops[i], w.pops[i].shedder.Status()
	now := consul.Load{Demand: s.Demand, CapacityAtLeast: s.Capacity}
	if s.Measured {
		now = consul.Load{Demand: s.Demand, Capacity: s.Capacity}
	}
	if !w.dead(i, t) && now.Due(p.published, t-p.publishedAt) {
		p.published, p.publishedAt = now, t
		w.heard = append(w.heard, heardLoad{i, now, t + travel})
	}
}

// note records a line of the trace.
func (w *world) note(t time.Duration) {
	if !*trace || t%(5*time.Second) != 0 {
		return
	}
	line := fmt.Sprintf("%4.0f", (t - warmUp).Seconds())
	for i, p := range w.pops[:min(len(w.pops), 6)] {
		line += fmt.Sprintf(" | %5.0f at %5.0f published %5.0f/%5.0f+%5.0f", w.rate(i, t), p.arriving, p.published.Demand, p.published.Capacity, p.published.CapacityAtLeast)
	}
	w.result.trace = append(w.result.trace, line)
}

// summarize divides what was counted by the time that it took.
func (w *world) summarize(shed, pushed []float64) {
	from, settled, end := int((warmUp+w.change)/time.Second), int((warmUp+w.change+w.settling())/time.Second), len(shed)-1
	r := &w.result
	sum := func(list []float64) (s float64) {
		for _, v := range list {
			s += v
		}
		return s / float64(len(list))
	}
	r.shedEarly, r.shedLate = sum(shed[from:settled]), sum(shed[settled:end])
	r.pushedLate = sum(pushed[settled:end])
	minute := 0
	for t := settled; t < end; t++ {
		minute += r.moves[t]
		if t-60 >= settled {
			minute -= r.moves[t-60]
		}
		r.worstMinute = max(r.worstMinute, 100*float64(minute)/float64(len(w.networks)))
		r.movesLate += float64(r.moves[t])
	}
	r.movesLate *= 100 * 60 / float64(end-settled) / float64(len(w.networks))
	for t := from; t < end; t++ {
		for i := range w.pops {
			r.demand += w.rate(i, time.Duration(t)*time.Second) / float64(end-from)
		}
	}
}
