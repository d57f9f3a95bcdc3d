package region

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const twoRegions = `
zone: Edge.Example.com.
regions:
  - name: eu-west
    pops:
      - name: ams1
        addresses: ["203.0.113.10", "2001:db8::10"]
        location: {lat: 52.37, lon: 4.90}
        weight: 2
        clients: ["198.51.100.0/24", "2001:db8:1::/48"]
      - {name: fra1, addresses: ["203.0.113.20"], location: {lat: 50.11, lon: 8.68}, weight: 0}
  - name: us-east
    pops: [{name: nyc1, addresses: ["203.0.113.30"]}]
`

func mustParse(t testing.TB, text string) *Topology {
	t.Helper()
	topology, err := ParseTopology([]byte(text))
	require.NoError(t, err)
	return topology
}

func TestParseTopology(t *testing.T) {
	two, none := 2, 0
	want := &Topology{Zone: "edge.example.com", Regions: []TopologyRegion{
		{Name: "eu-west", PoPs: []PoP{
			{
				Name: "ams1", Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8::10")},
				Location: &Location{52.37, 4.90}, Weight: &two,
				Clients: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:1::/48")},
			},
			{Name: "fra1", Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.20")}, Location: &Location{50.11, 8.68}, Weight: &none},
		}},
		{Name: "us-east", PoPs: []PoP{{Name: "nyc1", Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.30")}}}},
	}}
	got := mustParse(t, twoRegions)
	require.Equal(t, want, got)
	require.NoError(t, got.Validate())

	text, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, `{"zone": "edge.example.com", "regions": [
		{"name": "eu-west", "pops": [
			{"name": "ams1", "addresses": ["203.0.113.10", "2001:db8::10"], "location": {"lat": 52.37, "lon": 4.9}, "weight": 2, "clients": ["198.51.100.0/24", "2001:db8:1::/48"]},
			{"name": "fra1", "addresses": ["203.0.113.20"], "location": {"lat": 50.11, "lon": 8.68}, "weight": 0}]},
		{"name": "us-east", "pops": [{"name": "nyc1", "addresses": ["203.0.113.30"]}]}]}`, string(text))
	require.Equal(t, want, mustParse(t, string(text)), "JSON is accepted too")
}

func TestParseTopologyRefuses(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		topology, err := ParseTopology([]byte(text))
		require.Error(t, err)
		require.Nil(t, topology)
		require.Equal(t, strings.Join(want, "\n"), err.Error())
	}
	contains := func(text, want string) {
		t.Helper()
		_, err := ParseTopology([]byte(text))
		require.ErrorContains(t, err, want)
	}
	f("", "document: is empty; name the zone and at least one region")
	f("{}", `zone: must be a domain name of at most 180 characters such as edge.example.com (got "")`, "regions: must name at least one, with its pops")
	f("zone: a.b\nregions: [{name: x, pops: []}]\n---\n{}", "document: contains a second YAML document in line 4; remove what follows --- or ...")
	contains("zone: a\nregion: []", "region: unknown field; did you mean regions?")
	contains("zone: a\nregions: [{name: x, pops: [{adresses: []}]}]", "regions[0].pops[0].adresses: unknown field; did you mean addresses?")
	contains("zone: a\nzone: b", "zone: is written twice; keep one")
	contains("zone: [", "document: is not valid YAML by line 1: did not find expected node content; give the value that is missing, or close the bracket above")
	pop := func(fields string) string {
		return "zone: a\nregions: [{name: eu, pops: [{name: p, addresses: [192.0.2.1], " + fields + "}]}]"
	}
	f(pop("weight: -1"), "regions[0].pops[0].weight: must be between 0 and 1000 (got -1)")
	f(pop("capacity: 0"), "regions[0].pops[0].capacity: must be 1 to 1000000000 requests per second, or left out (got 0)")
	f(pop("location: {lat: 91, lon: .nan}"),
		"regions[0].pops[0].location.lon: must be a number such as 0.8 (got .nan)", "regions[0].pops[0].location.lat: must be between -90 and 90 (got 91)")
	f(pop("location: {lat: 1}"), "regions[0].pops[0].location.lon: is required; add it, or remove location")
	f(pop("clients: [10.0.0.1/8, 10/8, '::ffff:10.0.0.0/104']"),
		`regions[0].pops[0].clients[1]: must be a network such as 198.51.100.0/24 (got "10/8")`,
		"regions[0].pops[0].clients[0]: has bits beyond its length; write 10.0.0.0/8 (got 10.0.0.1/8)",
		"regions[0].pops[0].clients[2]: must be written as an IPv4 network (got ::ffff:10.0.0.0/104)")
	f(`{zone: a_-.b, regions: [{name: EU, pops: []}, {name: a, pops: [
		{name: a, addresses: [x, 0.0.0.0, 224.0.0.1, 'fe80::1%eth0', 192.0.2.1, '::ffff:192.0.2.1']}, {name: a}, {name: -a-, addresses: [192.0.2.2]}]}, {name: a, pops: [{name: b, addresses: [192.0.2.2]}]}]}`,
		`zone: must be a domain name of at most 180 characters such as edge.example.com (got "a_-.b")`,
		`regions[0].name: must be 1 to 64 lower-case letters, digits or - (got "EU")`,
		"regions[0].pops: must name at least one; add it or remove the region",
		`regions[1].pops[0].addresses[0]: must be an IP address such as 203.0.113.10 (got "x")`,
		"regions[1].pops[0].addresses[1]: must be one that clients can reach (got 0.0.0.0)",
		"regions[1].pops[0].addresses[2]: must be one that clients can reach (got 224.0.0.1)",
		"regions[1].pops[0].addresses[3]: must be one that clients can reach (got fe80::1%eth0)",
		"regions[1].pops[0].addresses[5]: 192.0.2.1 is already at regions[1].pops[0].addresses[4]; remove one of them",
		"regions[1].pops[1].name: a is already the name at regions[1].pops[0].name; give each its own",
		"regions[1].pops[1].addresses: must name at least one that clients can reach",
		`regions[1].pops[2].name: must fit into a domain name: at most 63 characters, no - at either end (got "-a-")`,
		"regions[2].name: a is already the name at regions[1].name; give each its own",
		"regions[2].pops[0].addresses[0]: 192.0.2.2 is already at regions[1].pops[2].addresses[0]; remove one of them")

	var many strings.Builder
	many.WriteString("zone: a\nregions: [{name: r, pops: [")
	for i := range 257 {
		fmt.Fprintf(&many, "{name: p%d, addresses: [10.0.%d.%d, 10.1.%d.%d, 10.2.%d.%d, 10.3.%d.%d]},", i, i/256, i%256, i/256, i%256, i/256, i%256, i/256, i%256)
	}
	f(many.String()+"]}]", "regions: have 257 pops; the maximum is 256; merge some", "regions: have 1028 addresses; the maximum is 1000; remove some")
	f(strings.Repeat(" ", consul.MaxDocument+1), "document: is larger than 2097152 bytes (got 2097153); shorten it")

	require.ErrorContains(t, (&Topology{Zone: "a", Regions: []TopologyRegion{{Name: "r", PoPs: []PoP{{Name: "p", Addresses: make([]netip.Addr, 1), Clients: make([]netip.Prefix, 1)}}}}}).Validate(),
		"regions[0].pops[0].addresses[0]: must be an IP address\nregions[0].pops[0].clients[0]: must be a network")
}

func TestTopologyInConsul(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c, ctx := open(t, consul.Config{Addr: server.Addr()}), t.Context()
	got, index, err := PublishedTopology(ctx, c)
	require.NoError(t, err)
	require.Nil(t, got)
	require.Zero(t, index)
	topology := mustParse(t, twoRegions)
	version := publish(t, c, topology)
	got, index, err = PublishedTopology(ctx, c)
	require.NoError(t, err)
	require.NotZero(t, index)
	require.Equal(t, topology, got)

	later := []byte(`{"zone": "a", "later": 1, "steering": "later", "records": [{"name": "x", "type": "SRV", "values": ["0 0 1 a.b"]}, {"name": "y", "type": "TXT", "values": ["z"], "later": 1}], "regions": [{"name": "r", "later": 2, "pops": [{"name": "p", "addresses": ["192.0.2.1"], "later": {}}]}]}`)
	activate(t, c, later)
	got, _, err = PublishedTopology(ctx, c)
	require.NoError(t, err, "a newer version may add fields")
	require.Equal(t, []Record{{Name: "y", Type: TypeTXT, Values: []string{"z"}}}, got.Records)
	require.Equal(t, "p", got.Regions[0].PoPs[0].Name)
	unreadable := func(want string) {
		t.Helper()
		_, index, err := PublishedTopology(ctx, c)
		require.ErrorContains(t, err, "consul "+server.Addr()+": weir/topology/"+want)
		require.NotZero(t, index)
	}
	activate(t, c, []byte("zone: ["))
	unreadable("current: document: is not valid YAML by line 1")
	publish(t, c, topology)
	server.Set(t, "weir/topology/versions/"+version, []byte("{}"))
	unreadable("versions/" + version + ": the stored document is corrupt")
	server.Remove(t, "weir/topology/versions/"+version)
	unreadable("versions/" + version + ": the version is missing")
	server.Set(t, "weir/topology/current", []byte("zone: ["))
	unreadable("current: is not a JSON object with version and sha256")

	t.Run("drain", func(t *testing.T) {
		drains, index, err := PublishedDrains(ctx, c)
		require.NoError(t, err)
		require.Zero(t, index)
		require.Equal(t, &Drains{}, drains)
		at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
		d := Drain{Who: "ana", Why: "kernel update", Since: at, At: at}
		drain(t, c, "ams1", &Drain{Who: "bob", Why: "x", Since: at, At: at}, time.Time{})
		drain(t, c, "ams1", &d, time.Time{})
		drains, _, err = PublishedDrains(ctx, c)
		require.NoError(t, err)
		require.Equal(t, &Drains{Begun: map[string]Drain{"ams1": d}}, drains)
		require.JSONEq(t, `{"begun": {"ams1": {"who": "ana", "why": "kernel update", "since": "2026-03-01T10:00:00Z", "at": "2026-03-01T10:00:00Z"}}}`, string(drains.Document()))
		drain(t, c, "ams1", nil, at)
		drains, _, err = PublishedDrains(ctx, c)
		require.NoError(t, err)
		require.Equal(t, &Drains{Ended: map[string]time.Time{"ams1": at}}, drains)
		changes, _, err := c.Documents(DrainsKind).History(ctx, 0)
		require.NoError(t, err)
		require.Len(t, changes, 3)

		f := func(document, want string) {
			t.Helper()
			_, err := ParseDrains([]byte(document))
			require.ErrorContains(t, err, want)
		}
		f(`yes`, "is not a JSON object with begun and ended: ")
		f(`{"begun": {"AMS": {"who": "a", "why": "b", "since": "2026-03-01T10:00:00Z", "at": "2026-03-01T10:00:00Z"}}}`, "begun: AMS: must be 1 to 64 lower-case letters")
		f(`{"begun": {"ams1": {"why": "a\nb"}}}`, "begun: ams1: who: must be 1 to 500 bytes in one line (got \"\")\nwhy: must be 1 to 500 bytes in one line (got \"a\\nb\")\nsince: and at must be times")

		// A drain would forget what cannot be read.
		good, _, err := c.Documents(DrainsKind).Current(ctx)
		require.NoError(t, err)
		lost := func(saying string, at func()) {
			t.Helper()
			at()
			_, _, err := PublishedDrains(ctx, c)
			require.ErrorContains(t, err, saying)
			done, err := ChangeDrains(ctx, c, consul.Change{Pointer: consul.Pointer{AppliedBy: "ana", AppliedAt: time.Now().UTC()}}, func(now *Drains) *Drains { return now.With("ams1", &d, time.Time{}) })
			require.ErrorContains(t, err, saying)
			require.False(t, done)
		}
		lost("weir/drain/versions/"+good.Version+": the version is missing", func() { server.Remove(t, "weir/drain/versions/"+good.Version) })
		lost("weir/drain/current: is not a JSON object", func() { server.Set(t, "weir/drain/current", []byte("yes")) })
		require.Equal(t, "yes", string(server.Stored(t, "weir/drain/current")))
		lost("weir/drain/current: the pointer is gone, although changes were recorded", func() { server.Remove(t, "weir/drain/current") })
		entry, err := c.Get(ctx, "weir/drain/current")
		require.NoError(t, err)
		require.Nil(t, entry)
	})
}

// drain drains a PoP in one region or, without a drain, ends those that were recorded by until.
func drain(t testing.TB, c *consul.Client, pop string, d *Drain, until time.Time) {
	t.Helper()
	done, err := ChangeDrains(t.Context(), c, consul.Change{Pointer: consul.Pointer{AppliedBy: "ana", AppliedAt: time.Now().UTC()}},
		func(now *Drains) *Drains { return now.With(pop, d, until) })
	require.NoError(t, err)
	require.True(t, done)
}

// What is brought back counts in all regions, whatever one that was away holds; and so does what
// is not.
func TestDrainsBack(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	kernel := Drain{Who: "ana", Why: "kernel", Since: at(-10), At: at(-10)}
	none := &Drains{}
	drained := none.With("ams1", &kernel, time.Time{}).With("iad1", &kernel, time.Time{})
	ended := drained.With("ams1", nil, at(-10))
	f := func(is, before, away *Drains, want *Drain) {
		t.Helper()
		all := []Drains{*is.Back(before, now), *away}
		oldest := Oldest("ams1", all, Ended("ams1", all))
		if want == nil {
			require.Nil(t, oldest)
			return
		}
		require.NotNil(t, oldest)
		require.Equal(t, []any{want.Who, want.Why, want.Since}, []any{oldest.Who, oldest.Why, oldest.Since})
	}
	f(drained, none, drained, nil)
	f(ended, drained, ended, &kernel)
	f(ended, drained, drained, &kernel)
	f(none.With("ams1", nil, at(60)), drained, none, &kernel) // by a clock that is ahead
	f(none.With("ams1", &Drain{Who: "bob", Why: "disk", Since: at(60), At: at(60)}, time.Time{}), none, none, nil)
	f(ended, drained, none.With("ams1", &kernel, time.Time{}).Back(none, now), &kernel) // at the same moment
	require.Equal(t, kernel, ended.Back(drained, now).Begun["iad1"], "which did not change")
	require.Equal(t, drained, drained.Back(drained, now))
}

// A router asks again for a topology that it could not read.
func TestFollowerWaitsForADocument(t *testing.T) {
	t.Parallel()
	c := open(t, consul.Config{Addr: testenv.StartConsul(t, testenv.ConsulOptions{}).Addr()})
	publish(t, c, mustParse(t, twoSites))
	f := followAll(t, FollowedRegion{"eu", c})
	f.within(t, patience, "read", func(v *View) bool { return v.Topology != nil })
	next := []byte(strings.Replace(twoSites, "edge.example.com", "next.example.com", 1))
	docs := c.Documents(TopologyKind)
	_, index, err := docs.Current(t.Context())
	require.NoError(t, err)
	done, err := docs.Activate(t.Context(), consul.Change{Pointer: consul.NewPointer(next, "ana", time.Now())}, index)
	require.NoError(t, err)
	require.True(t, done)
	f.within(t, patience, "missing", func(v *View) bool { return v.Regions["eu"].Err != nil })
	require.ErrorIs(t, f.View().Regions["eu"].Err, consul.ErrMissing)
	require.Equal(t, "edge.example.com", f.View().Topology.Zone)
	_, err = docs.Put(t.Context(), next)
	require.NoError(t, err)
	f.within(t, patience, "there", func(v *View) bool { return v.Topology.Zone == "next.example.com" && v.Regions["eu"].Err == nil })
}
