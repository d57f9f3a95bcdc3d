package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// running is a router until it is stopped.
type running struct {
	t     *testing.T
	log   lines
	admin string
	stop  func()
}

func launch(t *testing.T, state string, regions []region.FollowedRegion, key ...*sign.Key) *running {
	t.Helper()
	return launchAt(t, netip.MustParseAddrPort("127.0.0.1:0"), state, regions, key...)
}

func launchAt(t *testing.T, at netip.AddrPort, state string, regions []region.FollowedRegion, key ...*sign.Key) *running {
	t.Helper()
	r := &running{t: t, admin: fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0])}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, &Config{
			Regions: regions, Listen: []netip.AddrPort{at}, TTL: time.Second, Metrics: r.admin,
			State: state, Log: slog.New(slog.NewTextHandler(&r.log, nil)), Key: append(key, nil)[0],
		})
	}()
	r.stop = sync.OnceFunc(func() { cancel(); require.NoError(t, <-ended) })
	t.Cleanup(r.stop)
	return r
}

func (r *running) logs(text string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return strings.Contains(r.log.String(), text) }, testenv.Patience, 10*time.Millisecond, "%q in:\n%s", text, &r.log)
}

func (r *running) dig(name string, options ...string) string {
	r.t.Helper()
	r.logs("msg=answering")
	port := regexp.MustCompile(`listen=127\.0\.0\.1:(\d+)`).FindStringSubmatch(r.log.String())[1]
	out, err := exec.Command("dig", append(options, "@127.0.0.1", "-p", port, "+short", "+tries=1", fmt.Sprintf("+time=%d", testenv.Patience/time.Second), name, "A")...).CombinedOutput()
	require.NoError(r.t, err, "%s", out)
	return strings.Join(strings.Fields(string(out)), " ")
}

// remarks waits until /readyz answers like this.
func (r *running) remarks(pattern string) {
	r.t.Helper()
	answer := ""
	require.Eventually(r.t, func() bool { answer = r.get("/readyz"); return regexp.MustCompile(pattern).MatchString(answer) }, testenv.Patience, 20*time.Millisecond, "%s in:\n%s", pattern, &answer)
}

func (r *running) get(path string) string {
	r.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: testenv.Patience}
	resp, err := client.Get("http://" + r.admin + path)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return strconv.Itoa(resp.StatusCode) + " " + string(text)
}

// register registers the first edge of a PoP.
func register(t *testing.T, c *consul.Client, in, pop string) {
	t.Helper()
	registerNode(t, c, in, pop, pop+"-1", nil)
}

// registerNode registers an edge of a PoP that publishes its load, if it is not nil.
func registerNode(t *testing.T, c *consul.Client, in, pop, id string, load *consul.Load) {
	t.Helper()
	edge := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	at := netip.MustParseAddrPort(strings.TrimPrefix(edge.URL, "http://"))
	ctx, cancel := context.WithCancel(context.Background())
	var registered sync.WaitGroup
	registered.Go(func() {
		c.Register(ctx, consul.Registration{
			ID: id, Address: at.Addr().String(), Port: int(at.Port()), Admin: at.String(), Region: in, PoP: pop, CheckURL: edge.URL,
			CheckTimeout: 30 * time.Second, // on a busy machine
		}, func() map[string]string {
			meta := map[string]string{}
			if load != nil {
				load.Put(meta)
			}
			return meta
		}, nil, nil)
	})
	t.Cleanup(func() { cancel(); registered.Wait(); edge.Close() })
}

func publish(t *testing.T, c *consul.Client, topology *region.Topology) {
	t.Helper()
	text, err := json.Marshal(topology)
	require.NoError(t, err)
	docs := c.Documents(region.TopologyKind)
	_, err = docs.Put(t.Context(), text)
	require.NoError(t, err)
	done, err := docs.Activate(t.Context(), consul.Change{Pointer: consul.NewPointer(text, "ana", time.Now())}, 0)
	require.NoError(t, err)
	require.True(t, done)
}

// A router that starts while every Consul is unreachable answers from its predecessor's
// state.
func TestStartsFromWhatItKnew(t *testing.T) {
	consuls := testenv.StartConsuls(t, testenv.ConsulOptions{}, "eu-west", "us-east")
	key, routers := newKey(t)
	topology, err := region.ParseTopology([]byte(`{zone: edge.example.com, steering: first, ` + routers + `, regions: [
		{name: eu-west, pops: [{name: ams1, addresses: [203.0.113.1]}, {name: ams2, addresses: [203.0.113.2], weight: 0}]}, {name: us-east, pops: [{name: iad1, addresses: [203.0.113.3]}]}]}`))
	require.NoError(t, err)
	var regions []region.FollowedRegion
	for i, name := range []string{"eu-west", "us-east"} {
		c, err := consul.Open(consul.Config{Addr: consuls[i].Addr()})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		publish(t, c, topology)
		regions = append(regions, region.FollowedRegion{Name: name, Consul: c})
	}
	register(t, regions[0].Consul, "eu-west", "ams2") // ams1 has no edge
	register(t, regions[1].Consul, "us-east", "iad1")
	drained, err := region.ChangeDrains(t.Context(), regions[1].Consul, consul.Change{Pointer: consul.Pointer{AppliedBy: "ann", AppliedAt: time.Now()}}, func(d *region.Drains) *region.Drains {
		return d.With("iad1", &region.Drain{Who: "ann", Why: "x", Since: time.Now(), At: time.Now()}, time.Time{})
	})
	require.NoError(t, err)
	require.True(t, drained)

	state := filepath.Join(t.TempDir(), "below", "state")
	first := launch(t, state, regions, key)
	first.logs(`msg="pop is up" region=us-east pop=iad1`)
	first.logs(`msg="pop is up" region=eu-west pop=ams2`)
	first.logs(`msg="pop is drained"`)
	require.Equal(t, "203.0.113.2", first.dig("edge.example.com"))
	first.remarks(`^200 ok\n$`)
	require.Contains(t, first.get("/metrics"), `weir_dns_region_facts_age_seconds{region="eu-west"} 0`)
	_, err = consuls[1].Client().KV().Put(&api.KVPair{Key: "weir/topology/current", Value: []byte("{")}, nil)
	require.NoError(t, err)
	first.remarks(`^200 ok\nus-east: consul .*: weir/topology/current: is not a JSON object`)
	require.Equal(t, "203.0.113.2", first.dig("edge.example.com"), "by the one before")
	first.stop()
	require.NotContains(t, first.log.String(), "ignoring the saved state", "there was nothing yet")
	for _, c := range consuls {
		c.Kill()
	}

	second := launch(t, state, regions, key)
	require.Equal(t, "203.0.113.2", second.dig("edge.example.com"), "ams1 is down, iad1 is drained")
	ready := second.get("/readyz")
	require.Regexp(t, `^200 ok\nfacts of eu-west: .*s old\nfacts of us-east: .*s old\n$`, ready)
	require.Regexp(t, `weir_dns_region_facts_age_seconds\{region="eu-west"\} \S*[1-9]`, second.get("/metrics"))
	v, err := ReadView(t.Context(), &Config{Regions: regions, State: state}, 3*time.Second)
	require.NoError(t, err)
	a := v.Choose(region.Query{Explain: true})
	require.Equal(t, "ams2", a.PoPs[0])
	require.Regexp(t, `^the state of eu-west is .*s old: consul `, a.Reason[0])
	consuls[0].Start()
	second.logs(`msg="region is known" region=eu-west`)
	second.remarks(`^200 ok\nfacts of us-east: .*s old\n$`)
	second.stop()
	consuls[0].Kill()

	// A file that is not of this fleet is refused and ignored.
	good, err := os.ReadFile(state)
	require.NoError(t, err)
	refused := func(regions []region.FollowedRegion, data []byte, want string) {
		t.Helper()
		require.NoError(t, os.WriteFile(state, data, 0o600))
		r := launch(t, state, regions)
		r.logs(want)
		r.logs("waiting for a topology")
		r.stop()
		kept, err := os.ReadFile(state)
		require.NoError(t, err)
		require.Equal(t, string(data), string(kept), "there is no state to replace it")
	}
	damaged := []byte(strings.Replace(string(good), "203.0.113.2", "203.0.113.3", 1))
	refused(regions, damaged, "or is damaged")
	refused(regions, good[:len(good)/2], "or is damaged")
	refused(regions, nil, "or is damaged")
	refused(regions, []byte(strings.Replace(string(good), "weir-dns 1", "weir-dns 2", 1)), "or is damaged")
	refused([]region.FollowedRegion{{Name: "eu-west", Consul: regions[1].Consul}}, good, "belongs to another fleet: its eu-west is consul ")
	refused([]region.FollowedRegion{{Name: "sa-east", Consul: regions[1].Consul}}, good, "belongs to another fleet: it has none of the fleet file's regions")
	damaged, err = encodeState(&region.SavedState{Topology: []byte("{}"), Regions: map[string]region.SavedRegion{}})
	require.NoError(t, err)
	refused(regions, damaged, "topology: zone: must be a domain name")
}

// A disk that cannot be written to costs no answer, and is reported once.
func TestStateThatCannotBeSaved(t *testing.T) {
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c, err := consul.Open(consul.Config{Addr: server.Addr()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	topology, err := region.ParseTopology([]byte(`{zone: edge.example.com, regions: [{name: r, pops: [{name: p, addresses: [203.0.113.1]}]}]}`))
	require.NoError(t, err)
	publish(t, c, topology)
	folder := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(folder, nil, 0o600))
	r := launch(t, filepath.Join(folder, "state"), []region.FollowedRegion{{Name: "r", Consul: c}})
	r.logs("the state cannot be saved")
	require.Equal(t, "203.0.113.1", r.dig("edge.example.com"))
	require.Contains(t, r.get("/metrics"), "weir_dns_state_save_failures_total ")
	require.Equal(t, 1, strings.Count(r.log.String(), "cannot be saved"))
}
