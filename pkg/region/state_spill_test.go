package region

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// A router that starts without any state answers like the running one.
func TestFollowersAgree(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: "eu"})
	c := open(t, consul.Config{Addr: server.Addr()})
	_, err := PublishTopology(t.Context(), c, mustParse(t, `
zone: edge.example.com
regions: [{name: eu, pops: [{name: ams1, addresses: [192.0.2.1]}, {name: ams2, addresses: [192.0.2.2]}]}]
`), 0, consul.Fence{})
	require.NoError(t, err)
	figures := func(s *site, demand string) {
		s.set("capacity", "1000")
		s.set("demand", demand)
	}
	// After a spill, figures alone do not show it.
	figures(newSite(t, c, "ams1"), "930")
	figures(newSite(t, c, "ams2"), "770")
	now := time.Now()
	part := Part{Goal: 0.225, Share: 0.225, Noticed: 0.225}
	record, err := json.Marshal(&Spill{By: "senior", At: now, Since: now.Add(-time.Hour), Gifts: map[string]Gift{
		"ams1": {Own: 1200, Parts: map[string]Part{"ams2": part}, Last: Change{At: now.Add(-time.Hour), Own: 1200, Capacity: 1000}},
		"ams2": {Own: 500, Last: Change{At: now.Add(-time.Hour), Own: 500, Capacity: 1000}},
	}})
	require.NoError(t, err)
	server.Set(t, "weir/spill", record)
	f := followAll(t, FollowedRegion{"eu", c})
	f.within(t, patience, "has figures", func(v *View) bool { return v.PoPs["ams1"].Demand == 930 && v.PoPs["ams2"].Demand == 770 })
	f.within(t, patience, "gives as the other does", func(v *View) bool { return v.Spill.Gifts["ams1"].Parts["ams2"].Share > 0.2 })
	require.NoError(t, f.View().SpillErr)

	// A command that looks only once gets the same.
	seen := *f.View()
	seen.Spill = &Spill{}
	recorded := func(since time.Time) *View {
		return NewFollower(FollowConfig{Regions: []FollowedRegion{{"eu", c}}}).Recorded(t.Context(), &seen, since)
	}
	require.Greater(t, recorded(time.Time{}).Spill.Gifts["ams1"].Parts["ams2"].Share, 0.2)
	require.Same(t, &seen, recorded(now.Add(time.Hour)), "what the command knows is newer")

	server.Set(t, "weir/spill", []byte("no"))
	require.Eventually(t, func() bool {
		_, err := readSpill(server.Stored(t, "weir/spill"))
		return err == nil
	}, 2*patience, 50*time.Millisecond, "an unreadable record is overwritten")
}
