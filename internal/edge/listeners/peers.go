package listeners

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Peers are the other nodes, as this one calls and answers them. The handler of a topic must be
// registered with Server before the node runs.
type Peers struct {
	Directory  *peer.Directory
	Links      *peer.Links
	Server     *peer.Server
	Advertised string // where others reach this node, once it listens

	config *config.Config
	log    *slog.Logger

	mu     sync.Mutex
	states map[string]*documents.Condition // of regions whose nodes Consul knows
}

// peer is the listener for other nodes.
func (s *Set) peer(c *Config, m *metrics) (*listener, error) {
	if err := c.CheckPeer(c.Certificates.Peer); err != nil {
		return nil, err
	}
	p := &Peers{Directory: peer.NewDirectory(c.PeerNode(), c.Peer.ConfiguredRegions()), config: c.Config, log: c.Log, states: map[string]*documents.Condition{}}
	counts := newPeerMetrics(c.Registry, p.Directory)
	config := peer.Config{
		Self: c.PeerNode(), Directory: p.Directory, Certificates: c.Certificates.Peer, Log: c.Log,
		Observe: counts.observe, Refused: counts.refused.Inc, Panicked: c.Panics.Inc,
	}
	if c.Certificates.Peer != nil {
		config.Failed = m.handshakes("peer")
	}
	p.Links, p.Server = peer.NewLinks(config), peer.NewServer(config)
	s.Peers = p
	return &listener{
		name: "peer", answers: "messages of other nodes", address: c.Listen.Peer.Address, certificates: c.Certificates.Peer,
		opened: p.opened, serve: p.Server.Serve, drain: within(p.Server.Drain),
	}, nil
}

// opened finds where others reach this node.
func (p *Peers) opened(addr net.Addr) error {
	listen := p.config.Listen.Peer
	host, port, err := config.Advertised(listen.Advertise, addr.String())
	if err != nil {
		return err
	}
	if listen.Advertise == "" { // keep a name as a name
		if name, _, err := net.SplitHostPort(listen.Address); err == nil {
			host = name
		}
	}
	p.Advertised = net.JoinHostPort(host, port)
	p.log.Info("serving other nodes", "peer", addr.String())
	return nil
}

// Close ends the connections to other nodes.
func (p *Peers) Close() {
	if p != nil {
		p.Links.Close()
	}
}

// Meta adds the address at which others reach this node to its registration.
func (p *Peers) Meta(meta map[string]string) {
	if p != nil {
		meta[consul.MetaPeer] = p.Advertised
	}
}

// Follow updates the directory from Consul until ctx ends. TakeNodes sets the nodes of this
// region.
func (p *Peers) Follow(ctx context.Context, client *consul.Client) {
	topology := region.FollowConfig{Regions: []region.FollowedRegion{{Name: p.config.Node.Region, Consul: client}}, RequireSigned: p.config.Documents.RequireSigned}
	if p.config.Verify() != nil {
		topology.Verify = p.config.Documents.Keys
	}
	fault := documents.NewCondition(p.log, "the topology cannot be read; keeping the last known regions", "the topology can be read again", nil)
	f := &peer.Follower{
		Directory: p.Directory, Consul: client, Datacenters: map[string]string{},
		Topology: func(ctx context.Context, each func([]string)) {
			region.FollowTopology(ctx, topology, func(t *region.Topology, err error) {
				if fault.Note(err); t != nil {
					each(t.Names())
				}
			})
		},
		State: func(name string, err error) { p.state(name).Note(err) },
	}
	for _, r := range p.config.Peer.Regions {
		f.Datacenters[r.Name] = r.Datacenter
	}
	f.Run(ctx)
}

func (p *Peers) state(name string) *documents.Condition {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.states[name] == nil {
		log := p.log.With("peer_region", name)
		p.states[name] = documents.NewCondition(log, "the nodes of another region cannot be listed; keeping the last known ones; join the Consuls of both over the WAN, or list them in peer.regions",
			"the nodes of another region can be listed again", nil)
	}
	return p.states[name]
}

// TakeNodes takes the nodes of this region from its catalog.
func (p *Peers) TakeNodes(all []consul.Node, prefix string) {
	if p != nil {
		p.Directory.SetNodes(p.config.Node.Region, peer.Reachable(all, p.config.Node.Region, prefix))
	}
}
