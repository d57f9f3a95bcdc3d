package router

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// What a router's file says about its moves counts, unless others have recorded theirs since it
// stopped.
func TestLookTakesTheNewerMoves(t *testing.T) {
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c, err := consul.Open(consul.Config{Addr: server.Addr()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	key, routers := newKey(t)
	text := `{"zone": "edge.example.com", ` + routers + `, "regions": [{"name": "r", "pops": [{"name": "p", "addresses": ["203.0.113.1"]}]}]}`
	topology, err := region.ParseTopology([]byte(text))
	require.NoError(t, err)
	publish(t, c, topology)
	file := filepath.Join(t.TempDir(), "state")
	config := &Config{Regions: []region.FollowedRegion{{Name: "r", Consul: c}}, State: file}
	f := func(recorded, saved time.Duration, want string) {
		t.Helper()
		now := time.Now()
		server.Set(t, "weir/spill", signedRecord(t, key, "edge.example.com", now.UnixMilli(), &region.Spill{At: now.Add(-recorded), By: "gone", Gifts: map[string]region.Gift{"p": {Own: 1}}}))
		data, err := encodeState(&region.SavedState{
			Topology: []byte(text), Spill: &region.Spill{At: now.Add(-saved)},
			Regions: map[string]region.SavedRegion{"r": {Source: c.String() + " " + c.Prefix(), Heard: now}},
		})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, data, 0o600))
		v, err := ReadView(t.Context(), config, testenv.Patience)
		require.NoError(t, err)
		require.Equal(t, want == "record", v.Spill.By == "gone")
	}
	f(2*time.Minute, 5*time.Second, "file")
	f(10*time.Second, heardEvery+saveEvery, "file") // of a running router
	f(10*time.Second, 10*time.Minute, "record")
}
