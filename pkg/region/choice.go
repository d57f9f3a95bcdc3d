package region

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"slices"
)

const (
	earthRadius = 6371.0 // km
	// PoPs whose distances differ by less count as equally near: no address database is
	// more precise than a city.
	sameDistance = 50.0 // km
	// A client sticks to a PoP by its network, because its address may change.
	clientBits4, clientBits6 = 24, 56
)

// Locator returns the location of an address and the network that shares it; the network
// is valid even if the location is unknown. It is safe for concurrent use.
type Locator interface {
	Locate(netip.Addr) (at Location, network netip.Prefix, known bool)
}

// Query is the input of a choice.
type Query struct {
	// Client is the client's subnet, or the address of its resolver.
	Client netip.Prefix
	Region string // if not empty, choose only among its PoPs
	// Family is 4 or 6 if the client can use only such addresses: a PoP without one is
	// considered only if no candidate has one. 0 accepts any.
	Family int
	Random uint64 // decides among equals
	// Explain fills Answer.Reason.
	Explain bool
}

// Answer is where to send a client.
type Answer struct {
	// PoPs are the candidates, the chosen one first. If none is healthy, PoPs and
	// Addresses list all of them.
	PoPs      []string
	Addresses []netip.Addr
	// Scope is how many bits of the client's address the answer depends on.
	Scope    int
	Spilled  bool // a PoP that cannot serve all of its clients passed this one to another
	FailOpen bool // no PoP is healthy
	Reason   []Step
}

// Step is one sentence of the explanation of an answer.
type Step string

// chooser is a topology indexed for choosing.
type chooser struct {
	pops     []*PoP // by name, so that their order in the topology decides nothing
	region   []int  // of each PoP
	names    []string
	clients  *clientMap
	geo      Locator
	all      []string   // names of pops, shared by answers
	near     [][]string // of each PoP, the others that may get its clients, the nearest first
	location bool       // some PoP has one
}

func newChooser(t *Topology, geo Locator) *chooser {
	c, region := &chooser{geo: geo}, map[*PoP]int{}
	for i := range t.Regions {
		r := &t.Regions[i]
		c.names = append(c.names, r.Name)
		for j := range r.PoPs {
			c.pops, region[&r.PoPs[j]] = append(c.pops, &r.PoPs[j]), i
		}
	}
	slices.SortFunc(c.pops, func(a, b *PoP) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range c.pops {
		c.region, c.all, c.location = append(c.region, region[p]), append(c.all, p.Name), c.location || p.Location != nil
	}
	c.clients = newClientMap(c.pops)
	c.rankNear()
	return c
}

// candidate is a PoP as ranked for one query.
type candidate struct {
	pop  int
	rank rank
	// lot breaks ties: the smallest comes first.
	lot    float64
	equals bool // another candidate has the same rank
}

// rank orders PoPs: first those whose networks contain the client, the longest network
// first; then by distance, where known; then in the configured order.
type rank struct {
	last  int // 1: weight 0
	group int // 0: by network, 1: by distance, 2: as configured
	by    float64
}

func (a rank) compare(b rank) int {
	return cmp.Or(cmp.Compare(a.last, b.last), cmp.Compare(a.group, b.group), cmp.Compare(a.by, b.by))
}

// choosing is the evaluation of one query.
type choosing struct {
	*chooser
	Query
	states   map[string]PoPState
	portions map[string][]portion
	list     []candidate
	answer   Answer
}

// choose is pure: the same query, topology, states and portions give the same answer.
func (c *chooser) choose(states map[string]PoPState, portions map[string][]portion, q Query) Answer {
	w := &choosing{chooser: c, Query: q, states: states, portions: portions, list: make([]candidate, 0, len(c.pops))}
	w.Client = netip.PrefixFrom(q.Client.Addr().Unmap(), q.Client.Bits())
	if !w.Client.IsValid() {
		w.Client = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	w.Client = w.Client.Masked()
	w.rankAll()
	w.shuffleEquals()
	w.take()
	return w.answer
}

// say records a step if the query asks for an explanation.
func (w *choosing) say(format string, args ...any) {
	if w.Explain {
		w.answer.Reason = append(w.answer.Reason, Step(fmt.Sprintf(format, args...)))
	}
}

func (w *choosing) depends(bits int) { w.answer.Scope = max(w.answer.Scope, bits) }

// rankAll lists the candidates from best to worst.
func (w *choosing) rankAll() {
	for i, p := range w.pops {
		if w.Region == "" || w.names[w.region[i]] == w.Region {
			w.list = append(w.list, candidate{pop: i, rank: rank{last: 1 - min(p.weight(), 1), group: 2, by: float64(w.region[i])}})
		}
	}
	located := w.byDistance()
	if home := w.byNetwork(); home >= 0 && !located {
		w.nextTo(home)
	}
	slices.SortStableFunc(w.list, func(a, b candidate) int { return a.rank.compare(b.rank) })
}

// byDistance reports whether the client's location is known.
func (w *choosing) byDistance() bool {
	if w.geo == nil || !w.location {
		return false
	}
	at, network, known := w.geo.Locate(w.Client.Addr())
	if network.IsValid() {
		w.depends(network.Bits())
	}
	if !known {
		w.say("the GeoIP database has no location for %s: using the configured order", w.client())
		return false
	}
	w.say("client %s is at %.2f, %.2f by the GeoIP database (%s)", w.client(), at.Lat, at.Lon, network)
	for i := range w.list {
		if l := w.pops[w.list[i].pop].Location; l != nil {
			w.list[i].rank.group, w.list[i].rank.by = 1, distance(at, *l)
		}
	}
	w.equalize(func(c *candidate) { w.say("%s is %.0f km away", w.all[c.pop], c.rank.by) })
	return true
}

// nextTo ranks by distance from home, whose clients include this one: they are near it, and the
// nearest PoP replaces it.
func (w *choosing) nextTo(home int) {
	for i := range w.list {
		c := &w.list[i]
		switch at, there := w.pops[home].Location, w.pops[c.pop].Location; {
		case c.rank.group == 0:
		case at != nil && there != nil:
			c.rank.group, c.rank.by = 1, distance(*at, *there)
		case w.region[c.pop] == w.region[home]:
			c.rank.group, c.rank.by = 1, 0
		}
	}
	w.equalize(func(*candidate) {})
}

// equalize gives PoPs that are about equally far the same rank.
func (w *choosing) equalize(each func(*candidate)) {
	slices.SortStableFunc(w.list, func(a, b candidate) int { return a.rank.compare(b.rank) })
	var nearest rank // of a group of equals; all of them get its distance
	for i := range w.list {
		if r := &w.list[i].rank; r.group == 1 {
			each(&w.list[i])
			if nearest.group == 1 && r.last == nearest.last && r.by-nearest.by < sameDistance {
				r.by = nearest.by
			}
			nearest = *r
		}
	}
}

// byNetwork returns the PoP with the longest network, -1 if there is none.
func (w *choosing) byNetwork() (home int) {
	home = -1
	found, scope := w.clients.find(w.Client, nil)
	w.depends(scope)
	for _, o := range found { // the longest comes last, and wins
		for i := range w.list {
			if c := &w.list[i]; slices.Contains(o.pops, c.pop) {
				home, c.rank.group, c.rank.by = c.pop, 0, float64(-o.network.Bits())
				w.say("client %s matches %s of %s", w.client(), o.network, w.pops[c.pop].Name)
			}
		}
	}
	return home
}

// client formats the client for the explanation.
func (w *choosing) client() string {
	if w.Client.IsSingleIP() {
		return w.Client.Addr().String()
	}
	return w.Client.String()
}

// shuffleEquals orders equals at random, each first with a probability in proportion to
// its weight: with u uniform, the smallest -ln(u)/weight wins with that probability.
func (w *choosing) shuffleEquals() {
	for i := range w.list {
		c := &w.list[i]
		c.equals = i > 0 && w.list[i-1].rank == c.rank || i+1 < len(w.list) && w.list[i+1].rank == c.rank
		if c.equals {
			// Drawn by the PoP's name: the clients of others stay where they are when a PoP is
			// drained, added or removed.
			u := uniform(mix(mix(w.Random) ^ ticket(netip.PrefixFrom(netip.IPv6Unspecified(), 0), w.all[c.pop])))
			c.lot = -math.Log(1-u) / float64(max(w.pops[c.pop].weight(), 1))
		}
	}
	slices.SortStableFunc(w.list, func(a, b candidate) int { return cmp.Or(a.rank.compare(b.rank), cmp.Compare(a.lot, b.lot)) })
}

// take fills the answer from the ordered list.
func (w *choosing) take() {
	healthy := func(p *PoP) bool { s := w.states[p.Name]; return s.Healthy && s.Drained == nil }
	if !slices.ContainsFunc(w.list, func(c candidate) bool { return healthy(w.pops[c.pop]) }) {
		healthy = func(p *PoP) bool { return w.states[p.Name].Healthy }
		if !slices.ContainsFunc(w.list, func(c candidate) bool { return healthy(w.pops[c.pop]) }) {
			w.say("no PoP is healthy: answering with all")
			w.answer.FailOpen = true
			w.fill(w.list)
			for _, c := range w.list {
				w.answer.Addresses = append(w.answer.Addresses, w.pops[c.pop].Addresses...)
			}
			return
		}
		w.say("all healthy PoPs are drained: answering as if they were not")
	}
	home := w.list[0]
	kept := w.list[:0]
	for _, c := range w.list {
		p := w.pops[c.pop]
		if healthy(p) {
			kept = append(kept, c)
		} else if w.Explain {
			w.explainLeftOut(p)
		}
	}
	kept = w.ofFamily(kept)
	if home.equals && len(w.portions) > 0 { // another of the equals may give clients away
		w.depends(stickyNetwork(w.Client).Bits())
	}
	if kept[0].equals {
		w.depends(stickyNetwork(w.Client).Bits())
		w.say("%s is chosen at random among equals, by weight", w.pops[kept[0].pop].Name)
	}
	if s := w.states[w.all[kept[0].pop]]; w.Explain && !s.Known && s.ProbeResult != "" {
		w.say("%s", s.explain(w.pops[kept[0].pop]))
	}
	if i := w.spilled(home, kept); i > 0 {
		w.answer.Spilled = true
		chosen := kept[i]
		copy(kept[1:i+1], kept[:i])
		kept[0] = chosen
	}
	w.fill(kept)
	w.answer.Addresses = w.pops[kept[0].pop].Addresses
	w.say("answer: %s", w.answer.PoPs[0])
}

// ofFamily drops PoPs without an address of the family, if any has one.
func (w *choosing) ofFamily(list []candidate) []candidate {
	has := func(c candidate) bool {
		return slices.ContainsFunc(w.pops[c.pop].Addresses, func(a netip.Addr) bool { return a.Is4() == (w.Family == 4) })
	}
	if w.Family == 0 || !slices.ContainsFunc(list, has) {
		return list
	}
	return slices.DeleteFunc(list, func(c candidate) bool {
		if has(c) {
			return false
		}
		w.say("%s has no IPv%d address", w.pops[c.pop].Name, w.Family)
		return true
	})
}

func (w *choosing) fill(list []candidate) {
	w.answer.PoPs = make([]string, len(list))
	for i, c := range list {
		w.answer.PoPs[i] = w.all[c.pop]
	}
}

func (w *choosing) explainLeftOut(p *PoP) {
	switch s := w.states[p.Name]; {
	case s.Healthy:
		w.say("%s is drained by %s: %s", p.Name, s.Drained.Who, s.Drained.Why)
	case !s.Known && s.ProbeResult != "":
		w.say("%s is down: %s", p.Name, s.explain(p))
	case !s.Known && s.Nodes == 0:
		w.say("%s is skipped: its region has not reported yet", p.Name)
	default:
		w.say("%s is down: %d of %d nodes pass", p.Name, s.Passing, s.Nodes)
	}
}

// stickyNetwork returns the part of a client's address that determines its PoP.
func stickyNetwork(client netip.Prefix) netip.Prefix {
	bits := clientBits6
	if client.Addr().Is4() {
		bits = clientBits4
	}
	return netip.PrefixFrom(client.Addr(), min(bits, client.Bits())).Masked()
}

// ticket returns a number specific to a client and a PoP, and the same on every router.
func ticket(client netip.Prefix, pop string) uint64 {
	n := stickyNetwork(client)
	bytes := n.Addr().As16()
	h := fnv.New64a()
	_, _ = h.Write(bytes[:]) // a hash never fails
	_, _ = h.Write([]byte(pop))
	return mix(h.Sum64() ^ uint64(n.Bits()))
}

// StickyRandom returns a Query.Random that keeps a client with one of equals.
func StickyRandom(client netip.Prefix) uint64 { return ticket(client.Masked(), "") }

// mix spreads a number over all bits (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// uniform turns random bits into a number in [0, 1).
func uniform(x uint64) float64 { return float64(x>>11) / (1 << 53) }

// distance returns the great-circle distance in km, by the haversine formula.
func distance(a, b Location) float64 {
	rad := func(degrees float64) float64 { return degrees * math.Pi / 180 }
	square := func(x float64) float64 { return x * x }
	h := square(math.Sin(rad(b.Lat-a.Lat)/2)) + math.Cos(rad(a.Lat))*math.Cos(rad(b.Lat))*square(math.Sin(rad(b.Lon-a.Lon)/2))
	return 2 * earthRadius * math.Asin(math.Sqrt(min(1, h)))
}
