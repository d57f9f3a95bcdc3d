package region

import (
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
	senior, ns1 := newKey(t, "ns1")
	key, ns2 := newKey(t, "ns2")
	topology := mustParse(t, `
zone: edge.example.com
regions: [{name: eu, pops: [{name: ams1, addresses: [192.0.2.1]}, {name: ams2, addresses: [192.0.2.2]}]}]
routers: [{name: ns1, key: "`+ns1.Key+`"}, {name: ns2, key: "`+ns2.Key+`"}]
`)
	_, err := PublishTopology(t.Context(), c, topology, 0, consul.Fence{})
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
	record := &Spill{By: "senior", At: now, Since: now.Add(-time.Hour), Gifts: map[string]Gift{
		"ams1": {Own: 1200, Parts: map[string]Part{"ams2": part}, Last: Change{At: now.Add(-time.Hour), Own: 1200, Capacity: 1000}},
		"ams2": {Own: 500, Last: Change{At: now.Add(-time.Hour), Own: 500, Capacity: 1000}},
	}}
	value, err := NewFollower(FollowConfig{Key: senior}).signSpill(&View{Topology: topology, Spill: record}, now)
	require.NoError(t, err)
	server.Set(t, "weir/spill", value)
	f := followWith(t, FollowConfig{Regions: []FollowedRegion{{"eu", c}}, Key: key})
	f.within(t, patience, "has figures", func(v *View) bool { return v.PoPs["ams1"].Demand == 930 && v.PoPs["ams2"].Demand == 770 })
	f.within(t, patience, "gives as the other does", func(v *View) bool { return v.Spill.Gifts["ams1"].Parts["ams2"].Given() > 0.2 })
	require.NoError(t, f.View().SpillErr)

	// A command that looks only once gets the same.
	seen := *f.View()
	seen.Spill = &Spill{}
	recorded := func(since time.Time) *View {
		return NewFollower(FollowConfig{Regions: []FollowedRegion{{"eu", c}}}).Recorded(t.Context(), &seen, since)
	}
	require.Greater(t, recorded(time.Time{}).Spill.Gifts["ams1"].Parts["ams2"].Given(), 0.2)
	require.Same(t, &seen, recorded(now.Add(time.Hour)), "what the command knows is newer")

	server.Set(t, "weir/spill", []byte("no"))
	require.Eventually(t, func() bool {
		s, err := f.readSpill(topology, server.Stored(t, "weir/spill"), time.Now())
		return err == nil && s != nil
	}, 2*patience, 50*time.Millisecond, "an unreadable record is overwritten")
	f.within(t, patience, "counts it", func(v *View) bool { return v.Refused > 0 })
}
