package lab

import (
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/certs"
)

// The edges of two regions accept each other's certificates, which the lab has made, and
// number the regions in the same way, over proxies that keep them apart. Nobody else is answered.
func TestEdgesKnowEachOther(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.up(l.write("two.tfvars", `
		prometheus = false
		redis   = { masters = 3, replicas = 0 }
		round_trips = [{ between = ["eu-west", "us-east"], ms = 50 }]
		regions = {
			eu-west = { number = 1, edges_per_pop = 1, pops = [{ name = "ams1", clients = ["198.51.100.0/24"] }] }
			us-east = { number = 2, edges_per_pop = 1, pops = [{ name = "iad1", clients = ["203.0.113.0/24"] }] }
		}`))
	require.Equal(t, "2 links\n", get(t, "http://"+l.address(0, 54)+":8474"))
	certificates, err := certs.NewServer([]certs.Pair{{CertFile: l.dir + "/eu-west/peer/edge.crt", KeyFile: l.dir + "/eu-west/peer/edge.key"}}, l.dir+"/authority/ca.crt")
	require.NoError(t, err)
	self := peer.Node{Region: "eu-west", ID: "eu-west-ams1-1"}
	require.NoError(t, peer.CheckCertificate(certificates, self))
	links := peer.NewLinks(peer.Config{
		Self: self, Certificates: certificates, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Directory: peer.NewDirectory(self, []peer.Region{{Name: "eu-west"}, {Name: "us-east"}}),
	})
	defer links.Close()
	// By the proxy that leads there.
	to := peer.Node{Region: "us-east", ID: "us-east-iad1-1", Addr: l.address(1, 200) + ":10211"}
	eventually(t, func() bool { // until it has the topology
		_, err := links.Call(t.Context(), to, "none", nil)
		t.Log(err)
		return err != nil && peerSays(err, "no topic none here (404)")
	})
	for _, addr := range []string{to.Addr, l.address(2, 11) + ":8444"} {
		_, err = http.Get("https://" + addr)
		require.Error(t, err)
	}
}

func peerSays(err error, why string) bool {
	failed, ok := err.(*peer.CallError)
	return ok && failed.Kind == peer.ErrRefused && failed.Why == why
}
