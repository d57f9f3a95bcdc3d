package config

import (
	"fmt"
	"net"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// PeerListen says where other nodes reach this one, and by what they know each other.
type PeerListen struct {
	Address   string   `yaml:"address"`   // host:port where other nodes reach this one
	Advertise string   `yaml:"advertise"` // where they reach it, if not at address: host or host:port; required if that is every address
	TLS       *PeerTLS `yaml:"tls"`       // how nodes prove which they are; required unless insecure
	Insecure  bool     `yaml:"insecure"`  // no TLS: any process of this machine can be any node; address must be a loopback address
}

// PeerTLS names the certificate that a node shows to others, both as a server and as a
// client, and the authorities of theirs.
type PeerTLS struct {
	certs.Pair `yaml:",inline"`
	CAFile     string `yaml:"ca_file"` // authorities of the other nodes' certificates
}

// Peer says who the other nodes are.
type Peer struct {
	// Regions are all regions in the topology's order, this node's included; required unless
	// rules.source is consul.
	Regions []PeerRegion `yaml:"regions"`
}

type PeerRegion struct {
	Name       string     `yaml:"name"`       // as in the topology
	Datacenter string     `yaml:"datacenter"` // of its nodes in Consul; absent: as the region
	Nodes      []PeerNode `yaml:"nodes"`      // absent: those in Consul
}

type PeerNode struct {
	ID      string `yaml:"id"`      // its node.id
	Address string `yaml:"address"` // host:port where this node reaches it
}

func (c *Config) validatePeer(f *faults) {
	p := c.Listen.Peer
	if p == nil {
		if len(c.Peer.Regions) > 0 {
			f.add("peer.regions", "is only for listen.peer; remove it")
		}
		return
	}
	f.address("listen.peer.address", p.Address)
	if c.FollowsConsul() {
		c.validateAdvertised(f, "listen.peer.advertise", p.Advertise, "listen.peer.address", p.Address)
	} else {
		f.list.Take("node.region", consul.CheckName(c.Node.Region))
		if p.Advertise != "" {
			f.add("listen.peer.advertise", "is only for rules.source consul; remove it")
		}
	}
	if err := consul.CheckNodeID(c.Node.ID); err != nil && !(c.FollowsConsul() && c.Consul.Register) {
		f.add("node.id", "%v", err)
	}
	host, _, err := net.SplitHostPort(p.Address)
	switch {
	case p.TLS != nil && p.Insecure:
		f.add("listen.peer.insecure", "must be false with listen.peer.tls; remove one of them")
	case p.TLS != nil:
		f.list.Take("listen.peer.tls", p.TLS.Validate())
		if p.TLS.CAFile == "" {
			f.add("listen.peer.tls.ca_file", "is required: it holds the authorities of the other nodes' certificates")
		}
		f.file("listen.peer.tls.ca_file", p.TLS.CAFile)
	case !p.Insecure:
		f.add("listen.peer.tls", "is required: nodes must know each other; to try it on one machine, set listen.peer.insecure: true")
	case err == nil && outside(host):
		f.add("listen.peer.insecure", "is for this machine only, but %s can be reached from outside; set listen.peer.tls", p.Address)
	}
	c.validatePeerRegions(f)
}

func (c *Config) validatePeerRegions(f *faults) {
	list := c.Peer.Regions
	if len(list) == 0 {
		if !c.FollowsConsul() {
			f.add("peer.regions", "is required with listen.peer unless rules.source is consul: list all regions, this node's included, and their nodes")
		}
		return
	}
	names, own := map[string]int{}, false
	for i, r := range list {
		at := field.Index("peer.regions", i)
		if err := consul.CheckName(r.Name); err != nil {
			f.add(at+".name", "%v", err)
		} else if first, twice := names[r.Name]; twice {
			f.add(at+".name", "%s is already the name of %s; list each region once", r.Name, field.Index("peer.regions", first))
		} else {
			names[r.Name] = i
		}
		own = own || r.Name == c.Node.Region
		if r.Datacenter != "" {
			f.list.Take(at, (&consul.Config{Datacenter: r.Datacenter}).Validate())
			if len(r.Nodes) > 0 || !c.FollowsConsul() {
				f.add(at+".datacenter", "is for regions whose nodes Consul knows; remove it, or nodes")
			}
		}
		if len(r.Nodes) == 0 && !c.FollowsConsul() && r.Name != c.Node.Region {
			f.add(at+".nodes", "must list at least one node, as in [{id: us-1, address: \"10.2.0.5:8444\"}]")
		}
		c.validatePeerNodes(f, at, &r)
	}
	if !own {
		f.add("peer.regions", "must list all regions, this node's included: %q is missing", c.Node.Region)
	}
}

func (c *Config) validatePeerNodes(f *faults, at string, r *PeerRegion) {
	ids := map[string]bool{}
	for j, n := range r.Nodes {
		at := field.Index(at+".nodes", j)
		if err := consul.CheckNodeID(n.ID); err != nil {
			f.add(at+".id", "%v", err)
		} else if ids[n.ID] {
			f.add(at+".id", "%s is in the list twice; give each node its own", n.ID)
		}
		ids[n.ID] = true
		f.address(at+".address", n.Address)
	}
	if len(ids) > 0 && r.Name == c.Node.Region && !ids[c.Node.ID] {
		f.add(at+".nodes", "must list this node too: %q is missing", c.Node.ID)
	}
}

// ConfiguredRegions returns the regions of the configuration.
func (p *Peer) ConfiguredRegions() (list []peer.Region) {
	for _, r := range p.Regions {
		own := peer.Region{Name: r.Name}
		for _, n := range r.Nodes {
			own.Nodes = append(own.Nodes, peer.Node{Region: r.Name, ID: n.ID, Addr: n.Address})
		}
		list = append(list, own)
	}
	return list
}

// CheckPeer reports why other nodes would not accept this one's certificate.
func (c *Config) CheckPeer(s *certs.Server) error {
	if s == nil {
		return nil
	}
	if err := peer.CheckCertificate(s, c.PeerNode()); err != nil {
		return fmt.Errorf("listen.peer.tls: %s: %w", c.Listen.Peer.TLS.CertFile, err)
	}
	return nil
}

func (c *Config) PeerNode() peer.Node { return peer.Node{Region: c.Node.Region, ID: c.Node.ID} }
