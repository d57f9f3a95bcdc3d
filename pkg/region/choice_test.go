package region

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// europe has two equals in Amsterdam, one PoP near them, one of last resort, and one
// across the ocean whose location is not given.
const europe = `
zone: edge.example.com
regions:
  - name: eu-west
    pops:
      - {name: ams1, addresses: [192.0.2.1], location: {lat: 52.37, lon: 4.90}, weight: 3, clients: [203.0.113.0/24, 10.0.0.0/8]}
      - {name: ams2, addresses: [192.0.2.2], location: {lat: 52.30, lon: 4.94}, clients: [203.0.113.128/25]}
  - name: eu-central
    pops:
      - {name: fra1, addresses: [192.0.2.3, "2001:db8::3"], location: {lat: 50.11, lon: 8.68}, clients: ["2001:db8:f::/48", 10.0.0.0/8]}
      - {name: ber1, addresses: [192.0.2.4], location: {lat: 52.52, lon: 13.40}, weight: 0}
  - name: us-east
    pops: [{name: nyc1, addresses: [192.0.2.5]}]
`

// places is a Locator of a few networks.
type places map[netip.Prefix]Location

func (p places) Locate(a netip.Addr) (Location, netip.Prefix, bool) {
	for n, at := range p {
		if n.Contains(a) {
			return at, n, true
		}
	}
	return Location{}, netip.PrefixFrom(a, 12).Masked(), false
}

var (
	utrecht   = Location{52.09, 5.12}
	frankfurt = Location{50.0, 8.6}
)

// allUp returns healthy PoPs, for a test to change.
func allUp(topology *Topology) map[string]PoPState {
	states := map[string]PoPState{}
	for _, r := range topology.Regions {
		for _, p := range r.PoPs {
			states[p.Name] = PoPState{Healthy: true, Known: true, Nodes: 2, Passing: 2}
		}
	}
	return states
}

func steps(a Answer) string {
	lines := make([]string, len(a.Reason))
	for i, s := range a.Reason {
		lines[i] = string(s)
	}
	return strings.Join(lines, "\n")
}

func TestChoose(t *testing.T) {
	topology := mustParse(t, europe)
	geo := places{netip.MustParsePrefix("198.51.100.0/24"): utrecht, netip.MustParsePrefix("198.51.96.0/22"): frankfurt}
	down := func(names ...string) func(map[string]PoPState) {
		return func(s map[string]PoPState) {
			for _, n := range names {
				s[n] = PoPState{Known: true, Nodes: 2}
			}
		}
	}
	drain := func(names ...string) func(map[string]PoPState) {
		return func(s map[string]PoPState) {
			for _, n := range names {
				p := s[n]
				p.Drained = &Drain{Who: "ann", Why: "kernel update"}
				s[n] = p
			}
		}
	}
	both := func(fs ...func(map[string]PoPState)) func(map[string]PoPState) {
		return func(s map[string]PoPState) {
			for _, f := range fs {
				f(s)
			}
		}
	}
	nothing := func(map[string]PoPState) {}
	f := func(name, client string, geo Locator, change func(map[string]PoPState), scope int, want, why string) {
		t.Run(name, func(t *testing.T) {
			states := allUp(topology)
			change(states)
			a := NewView(topology, states, geo).Choose(Query{Client: netip.MustParsePrefix(client), Random: 3, Explain: true})
			require.Equal(t, want, strings.Join(a.PoPs, " "), steps(a))
			require.Equal(t, strings.ReplaceAll(strings.TrimSpace(why), "\t", ""), steps(a))
			require.Equal(t, scope, a.Scope)
		})
	}
	f("network", "203.0.113.7/32", nil, nothing, 25, "ams1 ams2 fra1 nyc1 ber1", "client 203.0.113.7 matches 203.0.113.0/24 of ams1\nanswer: ams1")
	f("longest network", "203.0.113.200/32", nil, nothing, 25, "ams2 ams1 fra1 nyc1 ber1",
		"client 203.0.113.200 matches 203.0.113.0/24 of ams1\nclient 203.0.113.200 matches 203.0.113.128/25 of ams2\nanswer: ams2")
	f("a subnet that is wider", "203.0.113.0/24", nil, nothing, 25, "ams1 ams2 fra1 nyc1 ber1", "client 203.0.113.0/24 matches 203.0.113.0/24 of ams1\nanswer: ams1")
	f("network of IPv6", "2001:db8:f:1::/56", nil, nothing, 48, "fra1 ams1 ams2 nyc1 ber1", "client 2001:db8:f::/56 matches 2001:db8:f::/48 of fra1\nanswer: fra1")
	f("equals by network", "10.1.0.0/16", nil, nothing, 16, "ams1 fra1 ams2 nyc1 ber1",
		"client 10.1.0.0/16 matches 10.0.0.0/8 of ams1\nclient 10.1.0.0/16 matches 10.0.0.0/8 of fra1\nams1 is chosen at random among equals, by weight\nanswer: ams1")
	f("as configured", "192.0.2.77/32", nil, nothing, 24, "ams1 ams2 fra1 nyc1 ber1", "ams1 is chosen at random among equals, by weight\nanswer: ams1")
	f("distance", "198.51.96.9/32", geo, nothing, 22, "fra1 ams1 ams2 nyc1 ber1",
		"client 198.51.96.9 is at 50.00, 8.60 by the GeoIP database (198.51.96.0/22)\nfra1 is 13 km away\nams2 is 361 km away\nams1 is 369 km away\nber1 is 436 km away\nanswer: fra1")
	f("unknown place", "100.0.0.1/32", geo, nothing, 24, "ams1 ams2 fra1 nyc1 ber1",
		"the GeoIP database has no location for 100.0.0.1: using the configured order\nams1 is chosen at random among equals, by weight\nanswer: ams1")
	f("down and drained", "203.0.113.7/32", nil, both(down("ams2"), drain("ams1")), 25, "fra1 nyc1 ber1",
		"client 203.0.113.7 matches 203.0.113.0/24 of ams1\nams1 is drained by ann: kernel update\nams2 is down: 0 of 2 nodes pass\nanswer: fra1")
	// The clients of a PoP that is out are near it, so the nearest to it gets them.
	f("next to one that is out", "2001:db8:f:1::/56", nil, down("fra1"), 56, "ams1 ams2 nyc1 ber1",
		"client 2001:db8:f::/56 matches 2001:db8:f::/48 of fra1\nfra1 is down: 0 of 2 nodes pass\nams1 is chosen at random among equals, by weight\nanswer: ams1")
	f("weight 0 comes last", "203.0.113.7/32", nil, both(down("ams1", "ams2", "nyc1"), drain("fra1")), 25, "ber1",
		"client 203.0.113.7 matches 203.0.113.0/24 of ams1\nams1 is down: 0 of 2 nodes pass\nams2 is down: 0 of 2 nodes pass\nfra1 is drained by ann: kernel update\nnyc1 is down: 0 of 2 nodes pass\nanswer: ber1")
	f("drained before down", "203.0.113.7/32", nil, both(down("ams1", "ams2", "nyc1", "ber1"), drain("fra1", "ams1")), 25, "fra1",
		"client 203.0.113.7 matches 203.0.113.0/24 of ams1\nall healthy PoPs are drained: answering as if they were not\nams1 is down: 0 of 2 nodes pass\n"+
			"ams2 is down: 0 of 2 nodes pass\nnyc1 is down: 0 of 2 nodes pass\nber1 is down: 0 of 2 nodes pass\nanswer: fra1")
	f("fail open", "203.0.113.7/32", nil, down("ams1", "ams2", "fra1", "ber1", "nyc1"), 25, "ams1 ams2 fra1 nyc1 ber1",
		"client 203.0.113.7 matches 203.0.113.0/24 of ams1\nno PoP is healthy: answering with all")
	f("never reported", "192.0.2.77/32", nil, func(s map[string]PoPState) { clear(s); s["nyc1"] = PoPState{Healthy: true} }, 5, "nyc1",
		"ams1 is skipped: its region has not reported yet\nams2 is skipped: its region has not reported yet\nfra1 is skipped: its region has not reported yet\nber1 is skipped: its region has not reported yet\nanswer: nyc1")

	all := NewView(topology, nil, nil).Choose(Query{})
	require.True(t, all.FailOpen)
	require.Len(t, all.Addresses, 6)
	in := NewView(topology, allUp(topology), nil).Choose(Query{Client: netip.MustParsePrefix("203.0.113.7/32"), Region: "eu-central"})
	require.Equal(t, []string{"fra1", "ber1"}, in.PoPs)
	require.Equal(t, topology.Regions[1].PoPs[0].Addresses, in.Addresses)
	require.Empty(t, in.Reason, "only if asked for")
	six := Query{Client: netip.MustParsePrefix("203.0.113.7/32"), Family: 6, Explain: true}
	in = NewView(topology, allUp(topology), nil).Choose(six)
	require.Equal(t, []string{"fra1"}, in.PoPs, "a client that needs IPv6 goes where there is an address")
	require.Contains(t, steps(in), "ams1 has no IPv6 address")
	states := allUp(topology)
	states["fra1"] = PoPState{}
	require.Equal(t, "ams1", NewView(topology, states, nil).Choose(six).PoPs[0], "no candidate has one")
	six.Family = 4
	require.Len(t, NewView(topology, states, nil).Choose(six).PoPs, 4)
	require.Empty(t, NewView(topology, nil, nil).Choose(Query{Region: "mars"}).PoPs)
	require.Empty(t, NewView(nil, nil, nil).Choose(Query{}).PoPs)
}

// Without GeoIP, the clients of a drained PoP go to the nearest PoP, not to the first region: where
// locations are unknown, to one of the same region.
func TestClientsOfADrainedPoPStayNear(t *testing.T) {
	f := func(topology, want string) {
		t.Helper()
		v := mustParse(t, topology)
		states := allUp(v)
		s := states["iad1"]
		s.Drained = &Drain{Who: "ann", Why: "kernel update"}
		states["iad1"] = s
		a := NewView(v, states, nil).Choose(Query{Client: netip.MustParsePrefix("203.0.113.7/32"), Explain: true})
		require.Equal(t, want, strings.Join(a.PoPs, " "), steps(a))
	}
	f(`{zone: a, regions: [{name: eu, pops: [{name: ams1, addresses: [192.0.2.1], location: {lat: 52.37, lon: 4.90}}]},
		{name: us, pops: [{name: iad1, addresses: [192.0.2.2], location: {lat: 38.95, lon: -77.45}, clients: [203.0.113.0/24]}, {name: sjc1, addresses: [192.0.2.3], location: {lat: 37.34, lon: -121.89}}]},
		{name: ca, pops: [{name: yyz1, addresses: [192.0.2.4], location: {lat: 43.68, lon: -79.63}}]}]}`, "yyz1 sjc1 ams1")
	f(`{zone: a, regions: [{name: eu, pops: [{name: ams1, addresses: [192.0.2.1]}]},
		{name: us, pops: [{name: iad1, addresses: [192.0.2.2], clients: [203.0.113.0/24]}, {name: nyc1, addresses: [192.0.2.3]}]},
		{name: ca, pops: [{name: yyz1, addresses: [192.0.2.4]}]}]}`, "nyc1 ams1 yyz1")
}

func TestChooseByWeight(t *testing.T) {
	topology := mustParse(t, europe)
	v := NewView(topology, allUp(topology), nil)
	first := map[string]int{}
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 20_000
	for range n {
		first[v.Choose(Query{Client: netip.MustParsePrefix("192.0.2.77/32"), Random: rng.Uint64()}).PoPs[0]]++
	}
	require.InDelta(t, 0.75, float64(first["ams1"])/n, 0.02)
	require.InDelta(t, 0.25, float64(first["ams2"])/n, 0.02)

	first = map[string]int{}
	for i := range n {
		client := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(i >> 8), byte(i), 0}), 24)
		a := v.Choose(Query{Client: client, Random: StickyRandom(client)})
		require.GreaterOrEqual(t, a.Scope, 24)
		first[a.PoPs[0]]++
	}
	require.InDelta(t, 0.75, float64(first["ams1"])/n, 0.02)
}

// drawTopology draws a topology, states and a Locator.
func drawTopology(t *rapid.T) (*Topology, map[string]PoPState, Locator) {
	topology := &Topology{Zone: "a"}
	states := map[string]PoPState{}
	network := rapid.Custom(func(t *rapid.T) netip.Prefix {
		if rapid.Bool().Draw(t, "six") {
			b := [16]byte{0x20, 1, rapid.Byte().Draw(t, "a") & 3, rapid.Byte().Draw(t, "b") & 3}
			return netip.PrefixFrom(netip.AddrFrom16(b), rapid.IntRange(0, 40).Draw(t, "bits")).Masked()
		}
		b := [4]byte{10, rapid.Byte().Draw(t, "a") & 3, rapid.Byte().Draw(t, "b") & 3, rapid.Byte().Draw(t, "c")}
		return netip.PrefixFrom(netip.AddrFrom4(b), rapid.IntRange(0, 32).Draw(t, "bits")).Masked()
	})
	n := 0
	for r := range rapid.IntRange(1, 3).Draw(t, "regions") {
		region := TopologyRegion{Name: fmt.Sprint("r", r)}
		for range rapid.IntRange(1, 4).Draw(t, "pops") {
			p := PoP{Name: fmt.Sprint("p", n), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})}}
			n++
			if rapid.Bool().Draw(t, "located") {
				p.Location = &Location{rapid.Float64Range(-90, 90).Draw(t, "lat"), rapid.Float64Range(-180, 180).Draw(t, "lon")}
			}
			if rapid.Bool().Draw(t, "weighted") {
				w := rapid.IntRange(0, 3).Draw(t, "weight")
				p.Weight = &w
			}
			p.Clients = rapid.SliceOfN(network, 0, 3).Draw(t, "clients")
			s := PoPState{Healthy: rapid.Bool().Draw(t, "healthy"), Demand: float64(rapid.IntRange(0, 30).Draw(t, "demand")) * 50, Capacity: float64(rapid.IntRange(0, 20).Draw(t, "capacity")) * 50}
			if rapid.IntRange(0, 3).Draw(t, "drained") == 0 {
				s.Drained = &Drain{}
			}
			states[p.Name] = s
			region.PoPs = append(region.PoPs, p)
		}
		topology.Regions = append(topology.Regions, region)
	}
	var geo Locator
	if rapid.Bool().Draw(t, "geo") {
		// One network for all addresses, so that the location of each does not affect the
		// scope.
		geo = places{netip.MustParsePrefix("0.0.0.0/0"): utrecht}
	}
	return topology, states, geo
}

func drawClient(t *rapid.T) netip.Prefix {
	b := [4]byte{10, rapid.Byte().Draw(t, "a") & 3, rapid.Byte().Draw(t, "b") & 3, rapid.Byte().Draw(t, "c")}
	return netip.PrefixFrom(netip.AddrFrom4(b), rapid.IntRange(0, 32).Draw(t, "source")).Masked()
}

func TestChooseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topology, states, geo := drawTopology(t)
		v := settle(NewView(topology, states, geo))
		q := Query{Client: drawClient(t), Random: rapid.Uint64().Draw(t, "random")}
		a := v.Choose(q)
		q.Explain = true
		again := v.Choose(q)
		require.NotEmpty(t, again.Reason)
		again.Reason = nil
		require.Equal(t, a, again, "the same query gets the same answer, explained or not")

		good := func(name string) bool { return states[name].Healthy && states[name].Drained == nil }
		up := func(name string) bool { return states[name].Healthy }
		names := slices.Sorted(maps.Keys(states))
		in := slices.Sorted(slices.Values(a.PoPs))
		switch {
		case slices.ContainsFunc(names, good):
			require.Equal(t, slices.DeleteFunc(names, func(n string) bool { return !good(n) }), in)
		case slices.ContainsFunc(names, up):
			require.Equal(t, slices.DeleteFunc(names, func(n string) bool { return !up(n) }), in)
		default:
			require.True(t, a.FailOpen)
			require.Equal(t, names, in)
			require.Len(t, a.Addresses, len(names), "all addresses")
		}
		if !a.FailOpen {
			require.Equal(t, v.chooser.pops[slices.Index(v.chooser.all, a.PoPs[0])].Addresses, a.Addresses)
		}
		require.LessOrEqual(t, a.Scope, 32)

		// An unhealthy PoP that recovers takes clients only for itself.
		for _, name := range names {
			s := maps.Clone(states)
			s[name] = PoPState{Healthy: true}
			b := NewView(topology, s, geo).Choose(Query{Client: q.Client, Random: q.Random})
			if !up(name) && !a.FailOpen && !a.Spilled && !b.Spilled && good(a.PoPs[0]) {
				require.Contains(t, []string{a.PoPs[0], name}, b.PoPs[0])
			}
		}
	})
}

// Another order of the PoPs in the topology moves nobody.
func TestOrderOfPoPsMovesNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topology, states, geo := drawTopology(t)
		other := &Topology{Zone: topology.Zone}
		for _, r := range topology.Regions {
			r.PoPs = rapid.Permutation(r.PoPs).Draw(t, "order")
			other.Regions = append(other.Regions, r)
		}
		q := Query{Client: drawClient(t), Random: rapid.Uint64().Draw(t, "random")}
		a, b := settle(NewView(topology, states, geo)), settle(NewView(other, states, geo))
		require.Equal(t, a.Spill, b.Spill)
		require.Equal(t, a.Choose(q), b.Choose(q))
	})
}

// All clients that share as many bits as the scope get the same answer.
func TestScopeHoldsForAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topology, states, geo := drawTopology(t)
		v := settle(NewView(topology, states, geo))
		client := drawClient(t)
		client = netip.PrefixFrom(client.Addr(), 32)
		ask := func(a netip.Addr) Answer {
			p := netip.PrefixFrom(a, 32)
			return v.Choose(Query{Client: p, Random: StickyRandom(p)})
		}
		a := ask(client.Addr())
		b4 := client.Addr().As4()
		other := rapid.Uint32().Draw(t, "other")
		for i := a.Scope; i < 32; i++ {
			b4[i/8] ^= byte(other>>i&1) << (7 - i%8)
		}
		b := ask(netip.AddrFrom4(b4))
		if a.FailOpen {
			require.ElementsMatch(t, a.Addresses, b.Addresses)
			return
		}
		require.Equal(t, a.PoPs[0], b.PoPs[0], "%s/%d and %s", client.Addr(), a.Scope, netip.AddrFrom4(b4))
	})
}

func TestDistance(t *testing.T) {
	f := func(a, b Location, km float64) {
		t.Helper()
		require.InDelta(t, km, distance(a, b), 1+km/200)
		require.InDelta(t, km, distance(b, a), 1+km/200)
	}
	f(Location{52.37, 4.90}, Location{50.11, 8.68}, 365)
	f(Location{40.71, -74.01}, Location{51.51, -0.13}, 5570)
	f(Location{0, 179.5}, Location{0, -179.5}, 111)
	f(Location{90, 0}, Location{-90, 0}, math.Pi*earthRadius)
	f(Location{10, 20}, Location{10, 20}, 0)
}

func TestChooseAllocates(t *testing.T) {
	topology := mustParse(t, europe)
	v := NewView(topology, allUp(topology), places{})
	q := Query{Client: netip.MustParsePrefix("203.0.113.200/32")}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { v.Choose(q) }), 16.0)
}

func BenchmarkChoose(b *testing.B) {
	topology := &Topology{Zone: "a", Regions: []TopologyRegion{{Name: "r"}}}
	for i := range maxPoPs {
		p := PoP{Name: fmt.Sprint("p", i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}, Location: &Location{float64(i % 90), float64(i % 180)}}
		p.Clients = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16)}
		topology.Regions[0].PoPs = append(topology.Regions[0].PoPs, p)
	}
	v := NewView(topology, allUp(topology), places{netip.MustParsePrefix("0.0.0.0/0"): utrecht})
	q := Query{Client: netip.MustParsePrefix("10.7.1.0/24")}
	b.ReportAllocs()
	for b.Loop() {
		v.Choose(q)
	}
}
