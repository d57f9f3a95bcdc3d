package edge

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// peers are the other nodes, as this one calls and answers them; nil without listen.peer.
// The handler of a topic must be registered with server before the node runs.
type peers struct {
	directory  *peer.Directory
	links      *peer.Links
	server     *peer.Server
	listener   net.Listener // once the node runs
	advertised string       // likewise
	metrics    *peerMetrics
	log        *slog.Logger

	mu     sync.Mutex
	states map[string]*documents.Condition // of regions whose nodes Consul knows
}

// openPeers prepares to call and answer other nodes.
func (e *Edge) openPeers() error {
	c := e.config
	if c.Listen.Peer == nil {
		return nil
	}
	if err := c.CheckPeer(e.files.Peer); err != nil {
		return err
	}
	p := &peers{directory: peer.NewDirectory(c.PeerNode(), c.Peer.Listed()), log: e.log, states: map[string]*documents.Condition{}}
	p.metrics = newPeerMetrics(e.metrics.registry, p.directory)
	config := peer.Config{
		Self: c.PeerNode(), Directory: p.directory, Certificates: e.files.Peer, Log: e.log,
		Observe: p.metrics.observe, Refused: p.metrics.refused.Inc, Panicked: e.metrics.panics.Inc,
	}
	if e.files.Peer != nil {
		config.Failed = e.metrics.handshakes("peer")
	}
	p.links, p.server = peer.NewLinks(config), peer.NewServer(config)
	e.peers = p
	return nil
}

// listen begins to listen, where the node does.
func (p *peers) listen(c *config.Config) (err error) {
	if p == nil {
		return nil
	}
	if p.listener, err = net.Listen("tcp", c.Listen.Peer.Address); err != nil {
		return fmt.Errorf("listen.peer: %w", err)
	}
	host, port, err := config.Advertised(c.Listen.Peer.Advertise, p.listener.Addr().String())
	if err != nil {
		return fmt.Errorf("listen.peer: %w", err)
	}
	if c.Listen.Peer.Advertise == "" { // keep a name as a name
		if name, _, err := net.SplitHostPort(c.Listen.Peer.Address); err == nil {
			host = name
		}
	}
	p.advertised = net.JoinHostPort(host, port)
	return nil
}

// serve answers until drain.
func (p *peers) serve() error {
	if p == nil {
		return nil
	}
	p.log.Info("serving other nodes", "peer", p.listener.Addr().String())
	return p.server.Serve(p.listener)
}

func (p *peers) drain(ctx context.Context) bool { return p == nil || p.server.Drain(ctx) }

func (p *peers) close() {
	if p == nil {
		return
	}
	p.links.Close()
	if p.listener != nil {
		_ = p.listener.Close() // draining before Serve has begun does not close the listener
	}
}

// meta adds the address at which others reach this node.
func (p *peers) meta(meta map[string]string) {
	if p != nil {
		meta[consul.MetaPeer] = p.advertised
	}
}

// followPeers updates the directory from Consul until ctx ends. takeNodes sets the nodes of
// this region.
func (e *Edge) followPeers(wg *sync.WaitGroup, ctx context.Context) {
	p := e.peers
	topology := region.FollowConfig{Regions: []region.FollowedRegion{{Name: e.config.Node.Region, Consul: e.consul}}, RequireSigned: e.config.Documents.RequireSigned}
	if e.config.Verify() != nil {
		topology.Verify = e.config.Documents.Keys
	}
	fault := documents.NewCondition(e.log, "the topology cannot be read; keeping the last known regions", "the topology can be read again", nil)
	f := &peer.Follower{
		Directory: p.directory, Consul: e.consul, Datacenters: map[string]string{},
		Topology: func(ctx context.Context, each func([]string)) {
			region.FollowTopology(ctx, topology, func(t *region.Topology, err error) {
				if fault.Note(err); t != nil {
					each(t.Names())
				}
			})
		},
		State: func(name string, err error) { p.state(e, name).Note(err) },
	}
	for _, r := range e.config.Peer.Regions {
		f.Datacenters[r.Name] = r.Datacenter
	}
	wg.Go(func() { f.Run(ctx) })
}

func (p *peers) state(e *Edge, name string) *documents.Condition {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.states[name] == nil {
		log := e.log.With("peer_region", name)
		p.states[name] = documents.NewCondition(log, "the nodes of another region cannot be listed; keeping the last known ones; join the Consuls of both over the WAN, or list them in peer.regions",
			"the nodes of another region can be listed again", nil)
	}
	return p.states[name]
}

// takeNodes takes the nodes of this region from its catalog.
func (p *peers) takeNodes(all []consul.Node, self string, prefix string) {
	if p != nil {
		p.directory.SetNodes(self, peer.Reachable(all, self, prefix))
	}
}

// drainPeers lets messages in progress finish.
func (e *Edge) drainPeers(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if !e.peers.drain(ctx) {
		e.log.Warn("messages of other nodes cut off")
	}
}
