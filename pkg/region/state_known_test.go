package region

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// Facts that a router restores age from its start at the latest, even if they were written by
// a clock that was ahead.
func TestRestoredFactsAge(t *testing.T) {
	c := open(t, consul.Config{Addr: "127.0.0.1:1"})
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Second, 10 * 365 * 24 * time.Hour} {
		from := FollowedRegion{"eu", c}
		f := NewFollower(FollowConfig{Regions: []FollowedRegion{from}})
		node := telling(10, 100, 0)
		node.PoP, node.Passing = "ams", true
		require.NoError(t, f.Restore(&SavedState{
			Topology: []byte(`{"zone": "edge.example.com", "regions": [{"name": "eu", "pops": [{"name": "ams", "addresses": ["203.0.113.1"]}]}]}`),
			Regions:  map[string]SavedRegion{"eu": {Source: from.source(), Heard: noon.Add(ahead), Nodes: []consul.Instance{node}}},
		}, noon))
		late := noon.Add(2 * staleAfter)
		v, _ := f.look(nil, late)
		require.Equal(t, max(-ahead, 0)+2*staleAfter, v.Regions["eu"].Age(late), "%s ahead", ahead)
		require.True(t, v.PoPs["ams"].Stale, "%s ahead", ahead)
	}
}
