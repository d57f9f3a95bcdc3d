package edge

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Nodes of two regions find each other: the topology says which regions there are, the catalog
// of each datacenter who is in it. What they know outlives Consul.
func TestNodesFindEachOther(t *testing.T) {
	names := []string{"eu-west", "us-east"}
	servers := testenv.StartConsuls(t, testenv.ConsulOptions{}, names...)
	authority := testenv.NewAuthority(t)
	topology := &region.Topology{Zone: "edge.example", Steering: region.SteeringFirst}
	for i, name := range names {
		topology.Regions = append(topology.Regions, region.TopologyRegion{Name: name, PoPs: []region.PoP{{Name: name + "-1", Addresses: []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})}}}})
	}
	var nodes []*node
	for i, name := range names {
		id, cache := name+"-a", filepath.Join(t.TempDir(), "rules.json")
		client, err := consul.Open(consul.Config{Addr: servers[i].Addr()})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		s := setup{config: func(c *config.Config) {
			peerNode(name, id, authority.Issue(time.Hour, "spiffe://weir/"+name+"/"+id))(c)
			c.Node.PoP, c.Rules = name+"-1", config.Rules{Source: config.FromConsul, Cache: cache}
			c.Consul = config.Consul{Config: consul.Config{Addr: servers[i].Addr()}, Register: true}
		}}
		s.change = func(e *Edge) { e.listeners.Peers.Server.Handle("echo", answerPeer) }
		nodes = append(nodes, start(t, s))
		require.Empty(t, nodes[i].listeners.Peers.Directory.Regions(), "no topology yet")
		text, err := json.Marshal(topology)
		require.NoError(t, err)
		docs := client.Documents(region.TopologyKind)
		_, err = docs.Put(t.Context(), text)
		require.NoError(t, err)
		published, err := docs.Activate(t.Context(), consul.Change{Pointer: consul.NewPointer(text, "ana", time.Now())}, 0)
		require.NoError(t, err)
		require.True(t, published)
	}
	eu, us := nodes[0], nodes[1]
	eventually(t, "each knows the other", func() bool {
		return len(eu.listeners.Peers.Directory.Nodes("us-east")) == 1 && len(us.listeners.Peers.Directory.Nodes("eu-west")) == 1
	})
	require.Equal(t, names, eu.listeners.Peers.Directory.Regions())
	to, ok := eu.listeners.Peers.Directory.Owner("us-east", "key")
	require.True(t, ok)
	require.Equal(t, us.listeners.Peers.Advertised, to.Addr)
	reply, err := eu.listeners.Peers.Links.Call(t.Context(), to, "echo", []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, "eu-west says hello", string(reply))

	servers[1].Kill()
	eventually(t, "the other region's Consul is gone", func() bool {
		return len(eu.logs.lines(t, "the nodes of another region cannot be listed; keeping the last known ones; join the Consuls of both over the WAN, or list them in peer.regions")) == 1
	})
	_, err = eu.listeners.Peers.Links.Call(t.Context(), to, "echo", []byte("hello"))
	require.NoError(t, err)
	require.Len(t, eu.listeners.Peers.Directory.Nodes("us-east"), 1)
}
