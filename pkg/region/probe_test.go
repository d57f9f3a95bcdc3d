package region

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestParseProbe(t *testing.T) {
	f := func(probe, want string) {
		t.Helper()
		_, err := ParseTopology([]byte("probe: " + probe + twoSites))
		if want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, want)
		}
	}
	f("{port: 443, path: /healthz, host: www.example.com, tls: true}", "")
	f("{port: 80}", "")
	f("{}", "probe.port: is required; add the port that clients use")
	f("{port: 0}", "probe.port: must be between 1 and 65535 (got 0)")
	f("{port: 80, path: healthz}", `probe.path: must be a path such as /healthz (got "healthz")`)
	f(`{port: 80, path: "/%zz"}`, `probe.path: must be a path such as /healthz (got "/%zz")`)
	f("{port: 80, path: /, host: a b}", `probe.host: must be a domain name in lower case (got "a b")`)
	f("{port: 80, tls: true}", "probe.path: is missing; without it only a connection is made, so remove host and tls or add the path")
}

func TestSight(t *testing.T) {
	answers, lost, missed, unknown := probeHistory{looked: true}, probeHistory{looked: true, misses: lostAfter}, probeHistory{looked: true, misses: 1}, probeHistory{}
	f := func(want ProbeResult, own probeHistory, others ...probeHistory) {
		t.Helper()
		sights := map[string]probeHistory{"own": own}
		for i, s := range others {
			sights[strconv.Itoa(i)] = s
		}
		require.Equal(t, want, probeResultOf("own", sights))
	}
	f("", unknown)
	f(Answers, answers)
	f(Answers, answers, lost, lost)
	f("", missed, answers)
	f(CutOff, lost)
	f(Lost, lost, answers)
	f(Lost, lost, answers, lost)
	f(CutOff, lost, answers, lost, lost)
	f(CutOff, lost, missed, missed)
}

// The listener decides whether an address answers, and cannot block the prober.
func TestProbeAnswers(t *testing.T) {
	t.Parallel()
	serve := func(tls bool, handle http.HandlerFunc) uint16 {
		s := httptest.NewUnstartedServer(handle)
		if tls {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return netip.MustParseAddrPort(s.Listener.Addr().String()).Port()
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	timeout := patience
	f := func(want bool, p Probe, port uint16) {
		t.Helper()
		p.Port = int(port)
		require.Equal(t, want, p.answers(t.Context(), netip.MustParseAddr("127.0.0.1"), "edge.example.com", timeout))
	}
	web := Probe{Path: "/healthz"}
	f(true, web, serve(false, func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "edge.example.com" || r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	f(true, web, serve(false, status(http.StatusTooManyRequests)))
	f(true, web, serve(false, http.RedirectHandler("http://192.0.2.1/", http.StatusFound).ServeHTTP))
	f(false, web, serve(false, status(http.StatusServiceUnavailable)))
	f(true, Probe{Path: "/", Host: "www.example.com", TLS: true}, serve(true, status(http.StatusOK)))
	f(false, Probe{Path: "/", TLS: true}, serve(false, status(http.StatusOK)))
	f(false, web, serve(false, func(w http.ResponseWriter, r *http.Request) {
		for i := range 1000 {
			w.Header().Set(fmt.Sprint("X-", i), "a header far too long for anybody")
		}
	}))
	f(true, Probe{}, serve(false, status(http.StatusServiceUnavailable)))
	f(false, Probe{}, uint16(testenv.FreePorts(t, 1)[0]))
	timeout = 100 * time.Millisecond
	f(false, web, serve(false, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
}

// Silent addresses, of which a topology may have many, delay no probe of others. Here all answer as
// soon as all are asked.
func TestProbesAllAtOnce(t *testing.T) {
	t.Parallel()
	const count = 400
	l, err := net.Listen("tcp4", "0.0.0.0:0") // for all of 127.0.0.0/8
	require.NoError(t, err)
	var mu sync.Mutex
	open, most := 0, 0
	all := make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		open++
		if most = max(most, open); most == count && open == count {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
		case <-r.Context().Done():
		}
		mu.Lock()
		open--
		mu.Unlock()
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	topology := &Topology{Zone: "edge.example.com", Regions: []TopologyRegion{{Name: "eu", PoPs: []PoP{{Name: "ams1"}}}}}
	topology.Probe = &Probe{Port: l.Addr().(*net.TCPAddr).Port, Path: "/"}
	for i := range count {
		p := &topology.Regions[0].PoPs[0]
		p.Addresses = append(p.Addresses, netip.AddrFrom4([4]byte{127, 2, byte(i >> 8), byte(i)}))
	}
	answered := topology.probe(t.Context(), patience)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]bool{"ams1": true}, answered, "at most %d at once", most)
}

// Probes decide only where no Consul reports, and not at an isolated router.
func TestProbedStates(t *testing.T) {
	facts := fleetFacts{topology: mustParse(t, twoSites), regions: map[string]regionFacts{
		"eu": {listed: true, nodes: []consul.Instance{seen("ams1", "a", true), seen("ams2", "b", true)}},
		"us": {failing: epoch},
	}}
	lost, answers := probeHistory{looked: true, misses: lostAfter}, probeHistory{looked: true}
	var healths map[string]health
	now := epoch
	at := func(ams1, nyc1 probeHistory) map[string]PoPState {
		facts.sights = map[string]probeHistory{"ams1": ams1, "ams2": answers, "nyc1": nyc1}
		var states map[string]PoPState
		states, healths = facts.states(healths, now)
		now = now.Add(riseAfter)
		return states
	}
	require.True(t, at(lost, probeHistory{})["ams1"].Healthy, "its Consul reports it")
	require.True(t, at(answers, answers)["nyc1"].Healthy, "it never reported")
	require.False(t, at(answers, lost)["nyc1"].Healthy)
	at(answers, answers)
	require.True(t, at(answers, answers)["nyc1"].Healthy, "after the hysteresis")
	require.True(t, at(answers, probeHistory{looked: true, misses: 1})["nyc1"].Healthy, "one miss proves nothing")
	facts.sights = map[string]probeHistory{"ams1": lost, "ams2": lost, "nyc1": lost}
	states, _ := facts.states(healths, now)
	require.True(t, states["nyc1"].Healthy, "nothing answers this router")
	require.Equal(t, CutOff, states["nyc1"].ProbeResult)
}

// A probes' decision stays until they, or a Consul, decide otherwise: neither one miss nor
// isolation of the router restores a Consul's earlier report.
func TestProbedStatesStay(t *testing.T) {
	answers, missed, lost := probeHistory{looked: true}, probeHistory{looked: true, misses: 1}, probeHistory{looked: true, misses: lostAfter}
	f := func(passing, healthy bool, own probeHistory) {
		t.Helper()
		eu := regionFacts{listed: true, nodes: []consul.Instance{seen("ams1", "a", passing), seen("ams2", "b", true)}}
		facts := fleetFacts{topology: mustParse(t, twoSites), regions: map[string]regionFacts{"eu": eu, "us": {failing: epoch}}}
		var healths map[string]health
		now := epoch
		at := func(ams1, others probeHistory) bool {
			facts.sights = map[string]probeHistory{"ams1": ams1, "ams2": others, "nyc1": others}
			var states map[string]PoPState
			states, healths = facts.states(healths, now)
			now = now.Add(riseAfter)
			return states["ams1"].Healthy
		}
		require.Equal(t, passing, at(own, answers), "its Consul reports it")
		eu.failing = epoch
		facts.regions["eu"] = eu
		at(own, answers)
		require.Equal(t, healthy, at(own, answers), "its probes say so")
		for range 3 {
			require.Equal(t, healthy, at(missed, answers), "one miss proves nothing")
			require.Equal(t, healthy, at(lost, lost), "this router is cut off")
		}
		eu.failing = time.Time{}
		facts.regions["eu"] = eu
		at(lost, lost)
		require.Equal(t, passing, at(lost, lost), "its Consul says so again")
	}
	f(true, false, lost)
	f(false, true, answers)
}

// A region whose Consul never answered is used as long as its PoP answers, and left out when it
// stops.
func TestFollowerProbes(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	eu := open(t, consul.Config{Addr: server.Addr()})
	nowhere := open(t, consul.Config{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePorts(t, 1)[0]))})
	port := strconv.Itoa(testenv.FreePorts(t, 1)[0])
	listen := func(host string) net.Listener {
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	listen("127.0.0.1")
	there := listen("127.0.0.2")
	publish(t, eu, mustParse(t, fmt.Sprintf(`
zone: edge.example.com
probe: {port: %s}
steering: first
regions:
  - {name: eu, pops: [{name: ams1, addresses: [127.0.0.1]}]}
  - {name: us, pops: [{name: nyc1, addresses: [127.0.0.2]}]}
`, port)))
	newSite(t, eu, "ams1")
	f := followAll(t, FollowedRegion{"eu", eu}, FollowedRegion{"us", nowhere})
	f.within(t, patience, "up by its answers", func(v *View) bool { return healthyIs("nyc1", true)(v) && healthyIs("ams1", true)(v) })
	require.Equal(t, Answers, f.View().PoPs["nyc1"].ProbeResult)
	reasons := fmt.Sprint(f.View().Choose(Query{Region: "us", Explain: true}).Reason)
	require.Contains(t, reasons, "no Consul reports on nyc1 now, but it answers this router's probes")

	require.NoError(t, there.Close())
	f.within(t, patience, "lost", healthyIs("nyc1", false))
	reasons = fmt.Sprint(f.View().Choose(Query{Explain: true}).Reason)
	require.Contains(t, reasons, "nyc1 is down: no Consul reports on nyc1 now, and it does not answer this router, which reaches at least half of the other PoPs")
	listen("127.0.0.2")
	f.within(t, patience, "back", healthyIs("nyc1", true))
	require.Less(t, lostAfter*probeEvery+probeTimeout+healthEvery, 5*time.Second, "the promise of docs/DNS.md")
}
