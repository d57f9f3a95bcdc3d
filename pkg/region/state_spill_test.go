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
	senior, ns1 := newKey(t, "ns1")
	key, ns2 := newKey(t, "ns2")
	topology := mustParse(t, `
zone: edge.example.com
regions: [{name: eu, pops: [{name: ams1, addresses: [192.0.2.1]}, {name: ams2, addresses: [192.0.2.2]}]}]
routers: [{name: ns1, key: "`+ns1.Key+`"}, {name: ns2, key: "`+ns2.Key+`"}]
`)
	publish(t, c, topology)
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
	value, _, err := NewFollower(FollowConfig{Key: senior}).signSpill(&View{Topology: topology, Spill: record}, now)
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
		s, err := f.readSpill(c, topology, server.Stored(t, "weir/spill"), time.Now())
		return err == nil && s != nil
	}, 2*patience, 50*time.Millisecond, "an unreadable record is overwritten")
	f.within(t, patience, "counts it", func(v *View) bool { return v.Refused > 0 })
}

// A router neither follows a signed record that no router can have, nor takes it, or one of its
// own that it failed to write, for the last of its key.
func TestFollowersPassOverRecords(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{Datacenter: "eu"})
	c := open(t, consul.Config{Addr: server.Addr()})
	key, router := newKey(t, "ns1")
	topology := mustParse(t, row)
	topology.Routers = []Router{router}
	now := time.Now()
	v := NewView(topology, loads(topology, 500, 1000, 500, 1000, 500, 1000), nil)
	v.Spill = giving("b", now, now, 0)
	f := NewFollower(FollowConfig{Key: key})
	finds := func(value []byte) (followed bool, err error) {
		t.Helper()
		server.Set(t, spillKey(c), value)
		entry, err := c.Get(t.Context(), spillKey(c))
		require.NoError(t, err)
		f.adopted, f.agreement = nil, Agreement{}
		err = f.agreeOn(t.Context(), v, c, entry)
		return f.adopted != nil, err
	}
	record := func(sequence int64, share float64) []byte {
		text, err := json.Marshal(recorded{topology.Zone, sequence, *giving("a", now.Add(-time.Hour), now, share)})
		require.NoError(t, err)
		value, err := json.Marshal(signedSpill{text, key.Sign(subject(spillKind, text), nil)})
		require.NoError(t, err)
		return value
	}

	// Another router with the same key writes first.
	server.Set(t, spillKey(c), record(7, 0.3))
	require.NoError(t, f.agreeOn(t.Context(), v, c, nil))
	followed, err := finds(server.Stored(t, spillKey(c)))
	require.NoError(t, err)
	require.True(t, followed)

	gives := v.Spill
	v.Spill = &Spill{By: "b", Since: now} // nothing to write
	followed, err = finds(record(9, -1))
	require.ErrorContains(t, err, "has a share of a1 that is not 0 to 1")
	require.False(t, followed)
	require.Equal(t, 1, f.refused)
	followed, err = finds(record(8, 0.3))
	require.NoError(t, err)
	require.True(t, followed)

	// No older record replaces what it has written.
	v.Spill = gives
	_, err = finds([]byte("no"))
	require.ErrorContains(t, err, "ignored a record")
	require.NotEqual(t, "no", string(server.Stored(t, spillKey(c))))
	_, err = finds(record(10, 0.3))
	require.ErrorContains(t, err, "has signed a later one")
}
