package router

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/region/dns"
	"github.com/weir-edge/weir/pkg/sign"
)

const zone = "edge.example.com"

// station is a router that answers on loopback, with facts that a test chooses.
type station struct {
	*otherRouters
	t        *testing.T
	at       string
	topology *region.Topology
	now      atomic.Pointer[region.View]
}

// named returns the routers of a topology.
func named(list ...string) string { return "routers: [" + strings.Join(list, ", ") + "]" }

func entry(name string, key *sign.Key, at string) string {
	return fmt.Sprintf("{name: %s, key: %q, dns: %q}", name, key.Public(), at)
}

func topologyWith(t *testing.T, routers string) *region.Topology {
	t.Helper()
	topology, err := region.ParseTopology([]byte("{zone: " + zone + ", steering: first, " + routers + `, records: [{name: www, type: CNAME, values: [edge.example.com]}],
		regions: [{name: eu, pops: [{name: ams1, addresses: [203.0.113.1]}]}, {name: us, pops: [{name: iad1, addresses: [203.0.113.2]}]}]}`))
	require.NoError(t, err)
	return topology
}

func newStation(t *testing.T) *station {
	t.Helper()
	key, _ := newKey(t)
	s := &station{t: t, otherRouters: &otherRouters{key: key, log: slog.New(slog.DiscardHandler)}}
	s.view = s.now.Load
	s.now.Store(region.NewView(nil, nil, nil))
	server, err := dns.New(dns.Config{View: s.view, Zone: zone, NS: []dns.NameServer{{Host: "ns.example.net"}}, Proof: s.prove, Yields: s.yields})
	require.NoError(t, err)
	require.NoError(t, server.Listen("127.0.0.1:0"))
	s.at = server.Addrs()[0].String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return s
}

// hears sets the age of the router's facts of each region; 0: it knows them.
func (s *station) hears(eu, us time.Duration) {
	now := time.Now()
	state := func(old time.Duration) region.RegionState {
		return region.RegionState{Known: old == 0, Heard: now.Add(-old)}
	}
	up := region.PoPState{Healthy: true}
	v := region.NewView(s.topology, map[string]region.PoPState{"ams1": up, "iad1": up}, nil)
	v.At, v.Regions = now, map[string]region.RegionState{"eu": state(eu), "us": state(us)}
	s.now.Store(v)
}

func (s *station) look() { s.otherRouters.look(s.t.Context(), zone) }

// looksUntilItYields repeats a look: on a busy machine, a router that is asked may not answer within
// askTimeout.
func (s *station) looksUntilItYields() {
	s.t.Helper()
	require.Eventually(s.t, func() bool { s.look(); return s.yields() }, testenv.Patience, testenv.Patience/1000)
}

// answers returns what a resolver gets: an address, or SERVFAIL.
func (s *station) answers(name string) string {
	s.t.Helper()
	m := new(wire.Msg).SetQuestion(name, wire.TypeA)
	m, _, err := (&wire.Client{Net: "tcp", Timeout: testenv.Patience}).ExchangeContext(s.t.Context(), m, s.at)
	require.NoError(s.t, err)
	if m.Rcode != wire.RcodeSuccess {
		require.Empty(s.t, m.Answer)
		return wire.RcodeToString[m.Rcode]
	}
	return m.Answer[len(m.Answer)-1].(*wire.A).A.String()
}

// A router that hears no region yields to one that hears any, and only to such a one: as long as
// there is none, all answer.
func TestADeafRouterYieldsToOneThatHears(t *testing.T) {
	a, b, c := newStation(t), newStation(t), newStation(t)
	topology := topologyWith(t, named(entry("a", a.key, a.at), entry("b", b.key, b.at), entry("c", c.key, c.at)))
	all := []*station{a, b, c}
	f := func(want ...string) {
		t.Helper()
		for i, s := range all {
			if s.look(); want[i] == "SERVFAIL" {
				s.looksUntilItYields()
			}
		}
		for i, s := range all {
			require.Equal(t, want[i], s.answers("edge.example.com."), i)
			require.Equal(t, want[i], s.answers("www.edge.example.com."), i)
			require.Equal(t, "203.0.113.2", s.answers("iad1.pop.edge.example.com."), i)
		}
	}
	for _, s := range all {
		s.topology = topology
		s.hears(2*time.Minute, 2*time.Minute) // every Consul is gone
	}
	f("203.0.113.1", "203.0.113.1", "203.0.113.1")
	b.hears(30*time.Second, 2*time.Minute)
	f("SERVFAIL", "203.0.113.1", "SERVFAIL")
	require.Equal(t, "b", a.yieldsTo(time.Now()))
	a.hears(2*time.Minute, 0) // another region than b
	require.Equal(t, "203.0.113.1", a.answers("edge.example.com."), "at once")
	f("203.0.113.1", "203.0.113.1", "SERVFAIL")
	for _, s := range all {
		s.hears(2*time.Minute, 2*time.Minute)
	}
	for _, s := range all {
		s.look()
		require.Empty(t, s.yieldsTo(time.Now().Add(provenFor)), "nobody hears any more")
	}
}

// Only the router that was asked proves anything, and only for the query at hand.
func TestFalseProofsChangeNothing(t *testing.T) {
	a := newStation(t)
	other, _ := newKey(t)
	third, _ := newKey(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var reply atomic.Pointer[func(name string) string]
	var asked atomic.Int64
	fake := &wire.Server{Listener: l, Handler: wire.HandlerFunc(func(w wire.ResponseWriter, q *wire.Msg) {
		asked.Add(1)
		m := new(wire.Msg).SetReply(q)
		name := q.Question[0].Name
		m.Answer = []wire.RR{&wire.TXT{Hdr: wire.RR_Header{Name: name, Rrtype: wire.TypeTXT, Class: wire.ClassINET}, Txt: []string{(*reply.Load())(name)}}}
		_ = w.WriteMsg(m) // the client may be gone
	})}
	ended := make(chan error, 1)
	go func() { ended <- fake.ActivateAndServe() }()
	t.Cleanup(func() { require.NoError(t, fake.Shutdown()); require.NoError(t, <-ended) })

	by := func(key *sign.Key, name, old string) string {
		return old + " " + base64.StdEncoding.EncodeToString(key.Sign(subjectOf(name, old), nil).Value)
	}
	honest := func(name string) string { return by(other, name, "1s") }
	answers := func(answer func(name string) string) {
		reply.Store(&answer)
		a.proven.Store(nil)
	}
	yields := func(answer func(name string) string) bool {
		answers(answer)
		a.look()
		return a.yields()
	}
	a.topology = topologyWith(t, named(entry("a", a.key, a.at), entry("b", other, l.Addr().String()), entry("c", third, "127.0.0.1:1")))
	a.hears(2*time.Minute, 2*time.Minute)
	answers(honest)
	a.looksUntilItYields()
	var earlier atomic.Pointer[string]
	answers(func(name string) string { proof := honest(name); earlier.Store(&proof); return proof })
	a.looksUntilItYields()
	for what, answer := range map[string]func(string) string{
		"replayed":                func(string) string { return *earlier.Load() },
		"by a router not asked":   func(name string) string { return by(third, name, "1s") },
		"by the router that asks": func(name string) string { return by(a.key, name, "1s") },
		"old":                     func(name string) string { return by(other, name, "1m0s") },
		"of another age":          func(name string) string { return strings.Replace(by(other, name, "61s"), "61s", "1s", 1) },
		"unsigned":                func(string) string { return "1s" },
		"no base64":               func(string) string { return "1s !" },
		"empty":                   func(string) string { return "" },
	} {
		require.False(t, yields(answer), what)
	}
	before := asked.Load()
	a.topology = topologyWith(t, named(entry("a", a.key, l.Addr().String())))
	a.hears(2*time.Minute, 2*time.Minute)
	require.False(t, yields(func(name string) string { return by(a.key, name, "1s") }), "self-proved")
	require.Equal(t, before, asked.Load())
}

// The same with routers as they run: two that reach no Consul answer until a third one is there
// that does.
func TestRoutersYield(t *testing.T) {
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	hears, err := consul.Open(consul.Config{Addr: server.Addr()})
	require.NoError(t, err)
	t.Cleanup(hears.Close)
	ports := testenv.FreePorts(t, 5)
	var keys []*sign.Key
	var routers, at []string
	for i := range 3 {
		key, _ := newKey(t)
		keys, at = append(keys, key), append(at, fmt.Sprintf("127.0.0.1:%d", ports[i]))
		routers = append(routers, entry(fmt.Sprintf("ns%d", i+1), key, at[i]))
	}
	topology := topologyWith(t, named(routers...))
	publish(t, hears, topology)
	text, err := json.Marshal(topology)
	require.NoError(t, err)
	register(t, hears, "eu", "ams1")
	register(t, hears, "us", "iad1")

	var deaf []*running
	for i := range 2 {
		away, err := consul.Open(consul.Config{Addr: fmt.Sprintf("127.0.0.1:%d", ports[3+i])})
		require.NoError(t, err)
		t.Cleanup(away.Close)
		saved := &region.SavedState{Topology: text, Regions: map[string]region.SavedRegion{}}
		var regions []region.FollowedRegion
		for _, name := range []string{"eu", "us"} {
			regions = append(regions, region.FollowedRegion{Name: name, Consul: away})
			saved.Regions[name] = region.SavedRegion{Source: away.String() + " " + away.Prefix(), Heard: time.Now().Add(-2 * time.Minute)}
		}
		data, err := encodeState(saved)
		require.NoError(t, err)
		state := filepath.Join(t.TempDir(), "state")
		require.NoError(t, os.WriteFile(state, data, 0o600))
		deaf = append(deaf, launchAt(t, netip.MustParseAddrPort(at[i]), state, regions, keys[i]))
	}
	for _, r := range deaf {
		require.NotEmpty(t, r.dig(zone))
	}
	both := []region.FollowedRegion{{Name: "eu", Consul: hears}, {Name: "us", Consul: hears}}
	third := launchAt(t, netip.MustParseAddrPort(at[2]), "", both, keys[2])
	third.reports(`weir_dns_pop_up{pop="ams1",region="eu"}`, func(v float64) bool { return v == 1 })
	require.Equal(t, "203.0.113.1", third.dig(zone))
	for _, r := range deaf {
		r.reports("weir_dns_yields", func(v float64) bool { return v == 1 })
		require.Empty(t, r.dig(zone), "SERVFAIL")
		require.Contains(t, r.get("/readyz"), "hears no region, and yields to ns3")
		r.logs("msg=\"yields: SERVFAIL")
	}
	yields, _ := third.gauge("weir_dns_yields")
	require.Zero(t, yields)
}
