package peer

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// Region is a region as the configuration lists it.
type Region struct {
	Name  string
	Nodes []Node // nil if Consul knows them
}

// Directory tracks the regions and their nodes. It never forgets a region's last nodes for
// lack of news. Reading it takes no lock.
type Directory struct {
	self    Node
	current atomic.Pointer[view]

	mu    sync.Mutex // held while changing it
	order []string
	fixed map[string][]Node // from the configuration
	found map[string][]Node // from Consul
	down  map[Node]bool
}

// view is the directory at one instant.
type view struct {
	regions     []string
	fingerprint string
	nodes       map[string][]seat
	all         map[string][]Node
}

// seat is a node's position in the hashing.
type seat struct {
	node Node
	hash uint64
}

// NewDirectory returns a directory that knows the listed regions, in their order, until
// SetRegions changes them. Nodes listed here are permanently those of their region.
func NewDirectory(self Node, regions []Region) *Directory {
	d := &Directory{self: self, fixed: map[string][]Node{}, found: map[string][]Node{}, down: map[Node]bool{}}
	for _, r := range regions {
		d.order = append(d.order, r.Name)
		if len(r.Nodes) > 0 {
			d.fixed[r.Name] = r.Nodes
		}
	}
	d.rebuild()
	return d
}

// IsSelf reports whether a node is this one.
func (d *Directory) IsSelf(n Node) bool { return n.Region == d.self.Region && n.ID == d.self.ID }

// Regions returns all regions in the topology's order, including this node's own: a
// region's number is its index. It is empty while the order is unknown or lacks our region.
// The caller must not change it.
func (d *Directory) Regions() []string { return d.current.Load().regions }

// Nodes returns a region's live nodes by id. The caller must not change them.
func (d *Directory) Nodes(region string) []Node { return d.current.Load().all[region] }

// Owner returns the node of a region that a key belongs to. When a node comes or goes, only
// its keys move. All nodes that know the same live nodes agree.
func (d *Directory) Owner(region, key string) (Node, bool) {
	seats := d.current.Load().nodes[region]
	if len(seats) == 0 {
		return Node{}, false
	}
	sum := xxhash.Sum64String(key)
	best, most := 0, uint64(0)
	for i := range seats {
		if score := mix(sum ^ seats[i].hash); score > most {
			best, most = i, score
		}
	}
	return seats[best].node, true
}

// mix is the finalizer of MurmurHash3: every bit of x changes half of the result's.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

func (d *Directory) fingerprint() string { return d.current.Load().fingerprint }

// SetRegions sets the topology's regions in order. An empty list changes nothing.
func (d *Directory) SetRegions(order []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(order) > 0 && !slices.Equal(order, d.order) {
		d.order = slices.Clone(order)
		d.rebuild()
	}
}

// SetNodes sets a region's nodes that can serve. An empty list changes nothing: it does not
// prove that there are no nodes, and calling a node that is gone is harmless.
func (d *Directory) SetNodes(region string, nodes []Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	nodes = slices.SortedFunc(slices.Values(nodes), byID)
	if len(nodes) > 0 && !slices.Equal(nodes, d.found[region]) {
		d.found[region] = nodes
		d.rebuild()
	}
}

// setDown records whether a node answers.
func (d *Directory) setDown(n Node, down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down[n] == down {
		return
	}
	if d.down[n] = down; !down {
		delete(d.down, n)
	}
	d.rebuild()
}

func byID(a, b Node) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Addr, b.Addr)) }

// rebuild makes the next view.
func (d *Directory) rebuild() {
	v := &view{nodes: map[string][]seat{}, all: map[string][]Node{}}
	if slices.Contains(d.order, d.self.Region) {
		v.regions, v.fingerprint = slices.Clone(d.order), fingerprint(d.order)
	}
	for _, name := range v.regions {
		nodes := d.live(name)
		v.all[name] = nodes
		for _, n := range nodes {
			v.nodes[name] = append(v.nodes[name], seat{n, mix(xxhash.Sum64String(n.Region + "/" + n.ID))})
		}
	}
	d.current.Store(v)
}

// live returns the nodes of a region that answer, or all of them if none does, so that the
// first one to return is noticed.
func (d *Directory) live(region string) []Node {
	nodes := d.fixed[region]
	if nodes == nil {
		nodes = d.found[region]
	}
	if nodes == nil && region == d.self.Region {
		nodes = []Node{d.self}
	}
	up := slices.DeleteFunc(slices.SortedFunc(slices.Values(nodes), byID), func(n Node) bool { return d.down[n] })
	if len(up) == 0 {
		return slices.SortedFunc(slices.Values(nodes), byID)
	}
	return up
}

// knows reports whether a region exists. unknown means that no regions are known yet.
func (d *Directory) knows(region string) (known, unknown bool) {
	v := d.current.Load()
	return slices.Contains(v.regions, region), len(v.regions) == 0
}

// lists reports whether the configuration lists the nodes of a region.
func (d *Directory) lists(region string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fixed[region] != nil
}

// Down returns how many nodes do not answer this one.
func (d *Directory) Down() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.down)
}
