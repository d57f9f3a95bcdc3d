package peer

import (
	"net/netip"
	"sync"
)

// Bounds of a listener.
const (
	maxConnections = 4096
	maxOfPeer      = 16 // connections of one certificate's identity from one address
)

// gate counts the connections of each peer.
type gate struct {
	mu    sync.Mutex
	peers map[string]int // by identity and address
}

// enter counts a connection of a peer until leave is called. It reports false if there are too many.
func (g *gate) enter(peer string, from netip.Addr) (leave func(), ok bool) {
	key := peer + " " + from.String()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.peers[key] >= maxOfPeer {
		return nil, false
	}
	g.peers[key]++
	return func() { g.leave(key) }, true
}

func (g *gate) leave(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.peers[key]--; g.peers[key] == 0 {
		delete(g.peers, key)
	}
}

// room tracks the memory that messages in progress may take, in total and per region, and
// how many messages a node may have in progress.
type room struct {
	mu     sync.Mutex
	all    int
	region map[string]int
	node   map[string]int
}

// Bounds of the messages in progress.
const (
	maxRoom       = 64 << 20
	maxRegionRoom = maxRoom / 2
	maxOfNode     = 8
)

func newRoom() *room { return &room{region: map[string]int{}, node: map[string]int{}} }

// begin counts a node's message; it reports false if there are too many.
func (r *room) begin(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node[node] >= maxOfNode {
		return false
	}
	r.node[node]++
	return true
}

func (r *room) end(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node[node]--; r.node[node] == 0 {
		delete(r.node, node)
	}
}

// take reserves memory for a region's message; it reports false if there is none.
func (r *room) take(region string, bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all+bytes > maxRoom || r.region[region]+bytes > maxRegionRoom {
		return false
	}
	r.all += bytes
	r.region[region] += bytes
	return true
}

func (r *room) give(region string, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all -= bytes
	if r.region[region] -= bytes; r.region[region] == 0 {
		delete(r.region, region)
	}
}
