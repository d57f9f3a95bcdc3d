package region

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// site is a PoP of one edge node, as Consul sees it, that can be killed and started.
type site struct {
	consul.Registration
	ready    *atomic.Bool
	changed  chan struct{}
	addr     string
	listener net.Listener

	mu   sync.Mutex
	meta map[string]string
}

func newSite(t testing.TB, c *consul.Client, pop string) *site {
	t.Helper()
	return newNode(t, c, pop+"-1", pop)
}

func newNode(t testing.TB, c *consul.Client, id, pop string) *site {
	t.Helper()
	admin, ready := testenv.Readiness(t)
	s := &site{ready: ready, changed: make(chan struct{}, 1), meta: map[string]string{}}
	s.start(t)
	host, port, err := net.SplitHostPort(s.addr)
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	s.Registration = consul.Registration{
		ID: id, Address: host, Port: number, Admin: admin, Region: "eu-west", PoP: pop, CheckURL: "http://" + admin + "/readyz",
		CheckTimeout: 30 * time.Second, // on a busy machine
	}
	run(t, func(ctx context.Context) {
		c.Register(ctx, s.Registration, func() map[string]string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return maps.Clone(s.meta)
		}, s.changed, nil)
	})
	return s
}

// set changes the meta.
func (s *site) set(name, value string) {
	s.mu.Lock()
	s.meta[name] = value
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *site) start(t testing.TB) {
	t.Helper()
	if s.addr == "" {
		// Not a port from the kernel: another program could get it before the next start.
		s.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(testenv.FreePorts(t, 1)[0]))
	}
	l, err := net.Listen("tcp", s.addr)
	require.NoError(t, err)
	s.listener, s.addr = l, l.Addr().String()
	t.Cleanup(func() { _ = l.Close() })
	s.ready.Store(true)
}

func (s *site) kill() {
	_ = s.listener.Close()
	s.ready.Store(false)
}

// following is a follower that runs until the end of the test.
type following struct {
	*Follower
	mu    sync.Mutex
	views []*View
}

func followAll(t testing.TB, regions ...FollowedRegion) *following {
	t.Helper()
	return followWith(t, FollowConfig{Regions: regions})
}

func followWith(t testing.TB, c FollowConfig) *following {
	t.Helper()
	f := &following{Follower: NewFollower(c)}
	run(t, func(ctx context.Context) {
		f.Run(ctx, func(v *View) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.views = append(f.views, v)
		})
	})
	return f
}

// within waits for a view that is promised within that time. Only the long form requires it:
// otherwise other work may slow the machine.
func (f *following) within(t testing.TB, most time.Duration, what string, ok func(*View) bool) {
	t.Helper()
	start := time.Now()
	require.Eventually(t, func() bool { return ok(f.View()) }, patience, 10*time.Millisecond, "%s: %s", what, describe(f.View()))
	took := time.Since(start)
	t.Logf("%s after %s", what, took.Round(10*time.Millisecond))
	if os.Getenv("WEIR_SOAK") != "" {
		require.LessOrEqual(t, took, most, what)
	}
}

func describe(v *View) string {
	return fmt.Sprintf("%+v %+v", v.PoPs, v.Regions)
}

// mark discards the views so far; never then fails if a later one satisfies ok.
func (f *following) mark() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.views = nil
}

func (f *following) always(t testing.TB, what string, ok func(*View) bool) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.views {
		require.True(t, ok(v), "%s: %s", what, describe(v))
	}
}

func healthyIs(pop string, want bool) func(*View) bool {
	return func(v *View) bool { return v.Topology != nil && v.PoPs[pop].Healthy == want }
}

const twoSites = `
zone: edge.example.com
regions:
  - {name: eu, pops: [{name: ams1, addresses: [192.0.2.1]}, {name: ams2, addresses: [192.0.2.2]}]}
  - {name: us, pops: [{name: nyc1, addresses: [192.0.2.3]}]}
`

func TestFollower(t *testing.T) {
	t.Parallel()
	servers := testenv.StartConsuls(t, testenv.ConsulOptions{}, "eu-dc", "us-dc")
	eu, us := open(t, consul.Config{Addr: servers[0].Addr()}), open(t, consul.Config{Addr: servers[1].Addr()})
	front := testenv.Forward(t, servers[1].Addr())
	f := followAll(t, FollowedRegion{"eu", eu}, FollowedRegion{"us", open(t, consul.Config{Addr: front.Addr})})
	require.Nil(t, f.View().Topology)

	topology := mustParse(t, twoSites)
	for _, c := range []*consul.Client{eu, us} {
		publish(t, c, topology)
	}
	ams1, nyc1 := newSite(t, eu, "ams1"), newSite(t, us, "nyc1")
	f.within(t, patience, "all up", func(v *View) bool { return healthyIs("ams1", true)(v) && healthyIs("nyc1", true)(v) })
	require.Equal(t, topology, f.View().Topology)
	require.False(t, f.View().PoPs["ams2"].Healthy)
	require.True(t, f.View().Regions["us"].Known)

	// A PoP fails and recovers.
	ams1.kill()
	f.within(t, 5*time.Second, "out", healthyIs("ams1", false))
	ams1.start(t)
	f.within(t, 10*time.Second, "back", healthyIs("ams1", true))

	ams1.set("demand", "1300")
	ams1.set("capacity", "1000")
	f.within(t, patience, "is asked for too much", func(v *View) bool {
		s := v.PoPs["ams1"]
		return s.Demand == 1300 && s.Capacity == 1000
	})

	// A drain in any region counts.
	d := Drain{Who: "ann", Why: "kernel update", Since: epoch, At: epoch}
	drain(t, us, "ams1", &d, time.Time{})
	f.within(t, patience, "drained", func(v *View) bool { return v.PoPs["ams1"].Drained != nil })
	require.Equal(t, d, *f.View().PoPs["ams1"].Drained)
	require.True(t, f.View().PoPs["ams1"].Healthy)
	drain(t, us, "ams1", nil, epoch)
	f.within(t, patience, "undrained", func(v *View) bool { return v.PoPs["ams1"].Drained == nil })

	// A deleted or corrupted topology stays active.
	servers[0].Set(t, "weir/topology/current", []byte("zone: ["))
	servers[1].Remove(t, "weir/topology/current")
	f.within(t, patience, "corrupted", func(v *View) bool { return v.Regions["eu"].Err != nil })
	require.ErrorContains(t, f.View().Regions["eu"].Err, "weir/topology/current: is not a JSON object with version and sha256")
	require.Equal(t, topology, f.View().Topology)
	require.True(t, f.View().PoPs["ams1"].Healthy)

	// The route from here to a region's Consul is cut: another region's Consul reports.
	f.mark()
	front.To("")
	f.within(t, 5*time.Second, "via another region", func(v *View) bool { return v.Regions["us"].Via == "eu" })
	require.True(t, f.View().Regions["us"].Known)
	require.Error(t, f.View().Regions["us"].Err)
	f.always(t, "healthy throughout", healthyIs("nyc1", true))
	nyc1.kill()
	f.within(t, 6*time.Second, "down, via another region", healthyIs("nyc1", false))
	nyc1.start(t)
	f.within(t, 11*time.Second, "up, via another region", healthyIs("nyc1", true))
	front.To(servers[1].Addr())
	f.within(t, patience, "directly again", func(v *View) bool { return v.Regions["us"].Via == "" && v.Regions["us"].Err == nil })
}

// A region loses its Consul, then everything else.
func TestFollowerLosesARegion(t *testing.T) {
	t.Parallel()
	servers := testenv.StartConsuls(t, testenv.ConsulOptions{}, "eu", "us")
	eu, us := open(t, consul.Config{Addr: servers[0].Addr()}), open(t, consul.Config{Addr: servers[1].Addr()})
	publish(t, eu, mustParse(t, twoSites))
	newSite(t, eu, "ams1")
	nyc1 := newSite(t, us, "nyc1")
	f := followAll(t, FollowedRegion{"eu", eu}, FollowedRegion{"us", us})
	f.within(t, patience, "all up", func(v *View) bool { return healthyIs("ams1", true)(v) && healthyIs("nyc1", true)(v) })

	f.mark()
	servers[1].Kill()
	f.within(t, patience, "unknown", func(v *View) bool { return !v.Regions["us"].Known && !v.PoPs["nyc1"].Known })
	checked := time.Now()
	f.within(t, patience, "checked for some seconds", func(v *View) bool { return v.At.Sub(checked) > 5*time.Second })
	servers[1].Start()
	f.within(t, patience, "known again", func(v *View) bool { return v.PoPs["nyc1"].Known && v.Regions["us"].Err == nil })
	checked = time.Now()
	f.within(t, patience, "checked again", func(v *View) bool { return v.At.Sub(checked) > 5*time.Second })
	f.always(t, "neither the loss of Consul alone nor its return affects the PoP", healthyIs("nyc1", true))

	servers[1].Kill()
	nyc1.kill()
	f.within(t, 5*time.Second, "the region is down", healthyIs("nyc1", false))
	require.True(t, f.View().PoPs["ams1"].Healthy)
	nyc1.start(t)
	f.within(t, 10*time.Second, "its edges are up, its Consul is not", healthyIs("nyc1", true))
	servers[1].Start()
	f.within(t, patience, "known again", func(v *View) bool { return v.PoPs["nyc1"].Known })

	// A drain that ends while its region is unreachable does not return with it; the next one
	// does.
	drained := func(is bool) func(*View) bool {
		return func(v *View) bool { return v.Regions["us"].Known && (v.PoPs["ams1"].Drained != nil) == is }
	}
	d := Drain{Who: "ann", Why: "x", Since: epoch, At: epoch}
	drain(t, us, "ams1", &d, time.Time{})
	drain(t, us, "nyc1", &d, time.Time{})
	drain(t, eu, "ams1", &d, time.Time{})
	f.within(t, patience, "drained", drained(true))
	servers[1].Kill()
	f.within(t, patience, "unknown", func(v *View) bool { return !v.Regions["us"].Known })
	drain(t, eu, "ams1", nil, epoch)
	f.within(t, patience, "undrained", func(v *View) bool { return v.PoPs["ams1"].Drained == nil })
	f.mark()
	servers[1].Start()
	f.within(t, patience, "back, with the drain of the other PoP", func(v *View) bool { return drained(false)(v) && v.PoPs["nyc1"].Drained != nil })
	f.always(t, "not drained", func(v *View) bool { return v.PoPs["ams1"].Drained == nil })
	d.At = epoch.Add(time.Millisecond)
	drain(t, us, "ams1", &d, time.Time{})
	f.within(t, patience, "drained again", drained(true))
	drain(t, us, "ams1", nil, d.At)

	// The region hangs: nothing is refused, nothing answers.
	f.mark()
	servers[1].Suspend()
	f.within(t, 10*time.Second, "unknown", func(v *View) bool { return !v.Regions["us"].Known })
	f.always(t, "healthy", healthyIs("nyc1", true))
	nyc1.kill()
	f.within(t, patience, "out", healthyIs("nyc1", false))
	nyc1.start(t)
	servers[1].Resume()
	f.within(t, patience, "back", func(v *View) bool { return v.PoPs["nyc1"].Known && v.PoPs["nyc1"].Healthy })
	require.True(t, f.View().PoPs["ams1"].Healthy)
}

// Neither a lost pointer to drains nor one that cannot be read puts a PoP back.
func TestFollowerKeepsDrains(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c := open(t, consul.Config{Addr: server.Addr()})
	publish(t, c, mustParse(t, twoSites))
	newSite(t, c, "ams1")
	drain(t, c, "ams1", &Drain{Who: "ann", Why: "x", Since: epoch, At: epoch}, time.Time{})
	f := followAll(t, FollowedRegion{"eu", c})
	f.within(t, patience, "drained", func(v *View) bool { return v.PoPs["ams1"].Drained != nil && v.PoPs["ams1"].Healthy })
	f.mark()
	good := server.Stored(t, "weir/drain/current")
	faulty := func(is bool) func(*View) bool {
		return func(v *View) bool { return v.Regions["eu"].Unreadable == is && (v.Regions["eu"].Err != nil) == is }
	}
	server.Remove(t, "weir/drain/current")
	f.within(t, patience, "gone", faulty(true))
	server.Set(t, "weir/drain/current", good)
	f.within(t, patience, "there again", faulty(false))
	server.Set(t, "weir/drain/current", []byte("yes"))
	f.within(t, patience, "unreadable", faulty(true))
	require.True(t, f.View().Regions["eu"].Known)
	f.always(t, "drained", func(v *View) bool { return v.PoPs["ams1"].Drained != nil })
}

// Consul lost its data: an empty list of nodes does not prove that there are none.
func TestFollowerOutlastsALossOfData(t *testing.T) {
	t.Parallel()
	old, fresh := testenv.StartConsul(t, testenv.ConsulOptions{}), testenv.StartConsul(t, testenv.ConsulOptions{})
	front := testenv.Forward(t, old.Addr())
	c := open(t, consul.Config{Addr: old.Addr()})
	publish(t, c, mustParse(t, twoSites))
	ams1 := newSite(t, c, "ams1")
	f := followAll(t, FollowedRegion{"eu", open(t, consul.Config{Addr: front.Addr})})
	f.within(t, patience, "up", healthyIs("ams1", true))
	f.mark()
	front.To(fresh.Addr())
	f.within(t, patience, "emptied", func(v *View) bool { return !v.PoPs["ams1"].Known && v.Regions["eu"].Err == nil })
	checked := time.Now()
	f.within(t, patience, "checked for some seconds", func(v *View) bool { return v.At.Sub(checked) > 3*time.Second })
	f.always(t, "healthy", healthyIs("ams1", true))
	ams1.kill()
	f.within(t, 5*time.Second, "out", healthyIs("ams1", false))
}

// What another region's Consul reports about a region in doubt, and whether it counts.
func TestDetour(t *testing.T) {
	t.Parallel()
	refuses := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }
	}
	hangs := func(leader http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/status/leader" && leader != nil {
				leader(w, r)
				return
			}
			<-r.Context().Done()
		}
	}
	says := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	for name, row := range map[string]struct {
		handle http.HandlerFunc
		gone   bool
		via    string
	}{
		"it reports":                  {says("[]"), false, "other"},
		"it has no path":              {refuses(500, "No path to datacenter"), true, ""},
		"no leader there":             {refuses(500, "rpc error making call: No cluster leader"), false, ""},
		"it is not allowed":           {refuses(403, "Permission denied"), false, ""},
		"it waits, and answers":       {hangs(says(`"127.0.0.1:8300"`)), true, ""},
		"it waits, and has no leader": {hangs(says(`""`)), false, ""},
		"it cannot be reached":        {hangs(nil), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := FollowedRegion{"away", open(t, consul.Config{Addr: "127.0.0.1:1"})}
			f := NewFollower(FollowConfig{Regions: []FollowedRegion{r, {"other", answers(t, consul.Config{}, row.handle)}}})
			ask := func() *opinion { return f.ask(t.Context(), r, regionFacts{failing: epoch, datacenter: "away"}) }
			if row.gone || row.via != "" { // a busy machine may miss the second for a pulse
				require.Eventually(t, func() bool { o := ask(); return o.gone == row.gone && o.via == row.via }, patience, 10*time.Millisecond)
				return
			}
			o := ask()
			require.False(t, o.gone)
			require.Empty(t, o.via)
		})
	}
}

// An edge that began to pass a moment ago counts as lost with its region: it was reached before
// that.
func TestFollowerLosesANewEdge(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c := open(t, consul.Config{Addr: server.Addr()})
	publish(t, c, mustParse(t, twoSites))
	first := newSite(t, c, "ams1")
	require.Eventually(t, func() bool {
		nodes, err := c.Nodes(t.Context())
		return err == nil && len(nodes) == 1 && nodes[0].Passing
	}, patience, 10*time.Millisecond)
	f := followAll(t, FollowedRegion{"eu", c})
	looks := func() {
		from := time.Now()
		f.within(t, patience, "two looks later", func(v *View) bool { return v.At.Sub(from) > 2*pulseEvery })
	}
	f.within(t, patience, "up", healthyIs("ams1", true))
	looks()
	second := newNode(t, c, "ams1-2", "ams1")
	f.within(t, patience, "both pass", func(v *View) bool { return v.PoPs["ams1"].Passing == 2 })
	looks()
	server.Kill()
	first.kill()
	second.kill()
	f.within(t, 5*time.Second, "out", healthyIs("ams1", false))
}
