package edge

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
)

// peerNode is the configuration of a node with a peer listener.
func peerNode(region, id string, files testenv.TLSFiles, regions ...config.PeerRegion) func(*config.Config) {
	return func(c *config.Config) {
		c.Node.Region, c.Node.ID, c.Peer.Regions = region, id, regions
		c.Listen.Peer = &config.PeerListen{
			Address: "127.0.0.1:0",
			TLS:     &config.PeerTLS{Pair: certs.Pair{CertFile: files.CertFile, KeyFile: files.KeyFile}, CAFile: files.CAFile},
		}
	}
}

func answerPeer(_ context.Context, from peer.Node, body []byte) ([]byte, error) {
	return append([]byte(from.Region+" says "), body...), nil
}

// Two nodes that the configuration names to each other exchange a message, each counts it,
// and SIGTERM lets calls in progress finish.
func TestNodesExchangeMessages(t *testing.T) {
	authority := testenv.NewAuthority(t)
	started, release := make(chan struct{}), make(chan struct{})
	us := start(t, setup{
		config: peerNode("us-east", "us-1", authority.Issue(time.Hour, "spiffe://weir/us-east/us-1"), config.PeerRegion{Name: "eu-west", Nodes: []config.PeerNode{{ID: "eu-1", Address: "127.0.0.1:1"}}}, config.PeerRegion{Name: "us-east"}),
		change: func(e *Edge) {
			e.config.Shutdown.Timeout = patience
			e.listeners.Peers.Server.Handle("echo", answerPeer)
			e.listeners.Peers.Server.Handle("slow", func(ctx context.Context, from peer.Node, body []byte) ([]byte, error) {
				close(started)
				<-release
				return answerPeer(ctx, from, body)
			})
		},
	})
	eu := start(t, setup{config: peerNode("eu-west", "eu-1", authority.Issue(time.Hour, "spiffe://weir/eu-west"), config.PeerRegion{Name: "eu-west"}, config.PeerRegion{Name: "us-east", Nodes: []config.PeerNode{{ID: "us-1", Address: us.listeners.Peers.Advertised}}})})

	require.Equal(t, []string{"eu-west", "us-east"}, eu.listeners.Peers.Directory.Regions())
	to, ok := eu.listeners.Peers.Directory.Owner("us-east", "a key")
	require.True(t, ok)
	own, ok := eu.listeners.Peers.Directory.Owner("eu-west", "a key")
	require.True(t, ok)
	require.True(t, eu.listeners.Peers.Directory.IsSelf(own))
	reply, err := eu.listeners.Peers.Links.Call(t.Context(), to, "echo", []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, "eu-west says hello", string(reply))
	eventually(t, "both have counted it, and nothing else: no rule is shared by regions", func() bool {
		return eu.metric(`weir_peer_messages_total{peer="us-east",direction="out",result="ok"}`) == 1 && us.metric(`weir_peer_messages_total{peer="eu-west",direction="in",result="ok"}`) == 1
	})
	require.Equal(t, float64(5), eu.metric(`weir_peer_bytes_total{peer="us-east",direction="out"}`))
	require.Equal(t, float64(18), eu.metric(`weir_peer_bytes_total{peer="us-east",direction="in"}`))
	require.Equal(t, float64(1), eu.metric(`weir_peer_round_trip_seconds{peer="us-east"}`))

	answered := make(chan error, 1)
	go func() {
		_, err := eu.listeners.Peers.Links.Call(context.Background(), to, "slow", nil)
		answered <- err
	}()
	<-started
	stopped := make(chan struct{})
	go func() { us.stop(); close(stopped) }()
	eventually(t, "it drains", func() bool { return us.draining.Load() })
	close(release)
	require.NoError(t, <-answered)
	<-stopped
	for range 3 {
		_, err = eu.listeners.Peers.Links.Call(t.Context(), to, "echo", nil)
		require.ErrorIs(t, err, peer.ErrUnreachable)
	}
	eventually(t, "it is unreachable", func() bool {
		_, _ = eu.listeners.Peers.Links.Call(t.Context(), to, "echo", nil)
		return eu.metric("weir_peer_nodes_down") == 1
	})
	eventually(t, "the log says so", func() bool { return len(eu.logs.lines(t, "a peer does not answer")) == 1 })
}

// A node whose certificate others would refuse does not start, and -check says why.
func TestCertificatesThatOthersWouldRefuse(t *testing.T) {
	authority := testenv.NewAuthority(t)
	for name, c := range map[string]struct {
		files testenv.TLSFiles
		want  string
	}{
		"no name":          {authority.Issue(time.Hour), "the certificate names no node"},
		"another region":   {authority.Issue(time.Hour, "spiffe://weir/us-east/eu-1"), "the certificate is that of us-east/eu-1, but this node is eu-west/eu-1"},
		"another node":     {authority.Issue(time.Hour, "eu-2.eu-west.peer.weir"), "the certificate is that of eu-west/eu-2"},
		"two regions":      {authority.Issue(time.Hour, "spiffe://weir/eu-west", "spiffe://weir/us-east"), "names both"},
		"expired":          {authority.Issue(-time.Hour, "spiffe://weir/eu-west/eu-1"), "expired"},
		"another's domain": {authority.Issue(time.Hour, "spiffe://example/eu-west/eu-1"), "names no node"},
	} {
		node := config.Defaults()
		node.Upstreams = []config.Upstream{{URL: "http://127.0.0.1:9000"}}
		node.Store.Kind, node.Rules.File = "memory", "config/sample-rules.yaml"
		peerNode("eu-west", "eu-1", c.files, config.PeerRegion{Name: "eu-west"})(&node)
		require.NoError(t, node.Validate(), name)
		_, err := config.Check(&node)
		require.ErrorContains(t, err, "listen.peer.tls: "+c.files.CertFile, name)
		require.ErrorContains(t, err, c.want, name)
	}
}
