package shedding

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/shedder"
)

// Each file in testdata/bad begins with its expected error, as comments.
func TestBadDocuments(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var want []string
			var rest strings.Builder
			for line := range strings.Lines(string(data)) {
				if text, isComment := strings.CutPrefix(line, "# "); isComment {
					want = append(want, strings.TrimSuffix(text, "\n"))
				} else {
					rest.WriteString(line)
				}
			}
			_, err = Parse([]byte(rest.String()))
			require.EqualError(t, err, strings.Join(want, "\n"))
			require.Len(t, field.All(err), len(want))
		})
	}
}

func TestDefaultsAreTheShedders(t *testing.T) {
	s, err := Defaults().Settings("default")
	require.NoError(t, err)
	want := shedder.Defaults()
	require.Equal(t, want, s)
	empty, err := Parse([]byte("{}"))
	require.NoError(t, err)
	empty.Version = VersionBuiltIn
	require.Equal(t, Defaults(), empty)
}

const full = `
enabled: false
law: integrator
start: 0.9
target: 0.5
patience: 5s
rotate: 2m
user: ["cookie:session", client_ip]
retry_after: {min: 2s, max: 4s}
reason_header: true
signals:
  inflight: {high: 100}
  cpu: off
  sched_latency: ~
  queue: {low: 10, high: 1e3}
  app_wait: {low: 10ms, high: 1m30s}
classes:
  - {name: paid, max_in_flight: 20, match: [{headers: {X-Plan: paid}}, {paths: ["/pay/*"]}]}
  - {name: free, max_in_flight: 1e1}
  - {name: bots, max_in_flight: 5, match: [{headers: {X-Bot: "1"}}]}
default_class: free
upstreams:
  search: {signals: {inflight: {high: 50}, queue: off, cpu: {low: 0.5, high: 0.9}}, max_in_flight: {bots: 1}}
candidates:
  stricter: {law: pi, start: 0.6, target: 0.4, patience: 1s, signals: {inflight: {low: 5}}, max_in_flight: {paid: 15}}
`

func TestOverrides(t *testing.T) {
	d, err := Parse([]byte(full))
	require.NoError(t, err)
	require.Equal(t, consul.NewPointer([]byte(full), "", time.Time{}).Version, d.Version)
	live := shedder.Settings{
		Version: d.Version, Law: "integrator", Start: 0.9, Target: 0.5, Patience: 5 * time.Second, Rotate: 2 * time.Minute,
		Signals: map[string]shedder.Knees{"inflight": {High: 100}, "upstream_wait": {Low: 0.5, High: 5}, "queue": {Low: 10, High: 1000}, "app_wait": {Low: 0.01, High: 90}},
		Classes: []shedder.Class{{Name: "paid", MaxInFlight: 20}, {Name: "free", MaxInFlight: 10}, {Name: "bots", MaxInFlight: 5}},
	}
	candidate := live
	candidate.Law, candidate.Start, candidate.Target, candidate.Patience = "pi", 0.6, 0.4, time.Second
	candidate.Signals = map[string]shedder.Knees{"inflight": {Low: 5, High: 100}, "upstream_wait": {Low: 0.5, High: 5}, "queue": {Low: 10, High: 1000}, "app_wait": {Low: 0.01, High: 90}}
	candidate.Classes = []shedder.Class{{Name: "paid", MaxInFlight: 15}, {Name: "free", MaxInFlight: 10}, {Name: "bots", MaxInFlight: 5}}
	live.Candidates = []shedder.Candidate{{Name: "stricter", Settings: candidate}}
	got, err := d.Settings("default")
	require.NoError(t, err)
	require.Equal(t, live, got)

	got, err = d.Settings("search")
	require.NoError(t, err)
	require.Equal(t, map[string]shedder.Knees{"inflight": {High: 50}, "upstream_wait": {Low: 0.5, High: 5}, "app_wait": {Low: 0.01, High: 90}, "cpu": {Low: 0.5, High: 0.9}}, got.Signals)
	require.EqualValues(t, 1, got.Classes[2].MaxInFlight)
	onTop := got.Candidates[0].Settings
	require.Equal(t, shedder.Knees{Low: 5, High: 50}, onTop.Signals["inflight"], "a candidate builds on the group's settings")
	require.EqualValues(t, 15, onTop.Classes[0].MaxInFlight)
	require.EqualValues(t, 1, onTop.Classes[2].MaxInFlight)
	require.EqualValues(t, 20, d.Classes[0].MaxInFlight, "the document is unchanged")
}

// A rendered document parses to the same document.
func TestRendering(t *testing.T) {
	for _, text := range []string{"{}", full} {
		d, err := Parse([]byte(text))
		require.NoError(t, err)
		requireSame(t, d)
	}
}

// An estimated knee is bounded by the one that it replaces.
func TestAuto(t *testing.T) {
	f := func(document, group string, from, to float64) *Document {
		t.Helper()
		d, err := Parse([]byte(document))
		require.NoError(t, err)
		s, err := d.Settings(group)
		require.NoError(t, err)
		require.Equal(t, from, s.AutoFrom)
		require.Equal(t, shedder.Knees{High: to}, s.Signals["inflight"])
		requireSame(t, d)
		return d
	}
	f(`signals: {inflight: {high: auto}}`, "", 10, 800)
	f(`signals: {inflight: {high: {min: 30, max: 400}}}`, "", 30, 400)
	f(`signals: {inflight: {high: {max: 5}}}`, "", 5, 5)
	f(`upstreams: {a: {signals: {inflight: {high: auto}}}}`, "b", 0, 800)
	f(`upstreams: {a: {signals: {inflight: {high: auto}}}}`, "a", 10, 800)
	f(`{signals: {inflight: {high: 80}}, upstreams: {a: {signals: {inflight: {high: auto}}}}}`, "a", 10, 80)
	f(`{signals: {inflight: {high: auto}}, upstreams: {a: {signals: {inflight: {high: 50}}}}}`, "a", 0, 50)
	f(`{signals: {inflight: {high: auto}}, upstreams: {a: {signals: {cpu: {high: 1}}}}}`, "a", 10, 800)

	d := f(`candidates: {learned: {signals: {inflight: {high: {min: 20}}}}}`, "", 0, 800)
	s, err := d.Settings("")
	require.NoError(t, err)
	require.Equal(t, 20.0, s.Candidates[0].Settings.AutoFrom)
}

func requireSame(t testing.TB, d *Document) {
	t.Helper()
	asYAML, err := d.YAML()
	require.NoError(t, err)
	asJSON, err := json.Marshal(d)
	require.NoError(t, err)
	indented, err := json.MarshalIndent(d, "", "\t")
	require.NoError(t, err)
	for _, data := range [][]byte{asYAML, asJSON, indented} {
		again, err := Parse(data)
		require.NoError(t, err, string(data))
		again.Version = d.Version
		require.Equal(t, d, again, string(data))
	}
}

func TestSlashesAndTabsOfJSON(t *testing.T) {
	d, err := Parse([]byte("{\t\"classes\": [{\"name\":\"a\",\"max_in_flight\":1,\"match\":[{\"headers\":{\"X\":\"\\\"\\\\\\/:,\"}}]},\t{\"name\":\"b\",\"max_in_flight\":1}],\"default_class\":\"b\"}"))
	require.NoError(t, err)
	require.Equal(t, `"\/:,`, d.Classes[0].Match[0].Headers["X"])
}

// request implements rules.Request.
type request struct {
	method  string
	headers map[string][]string
	trusted bool
}

func (r *request) Client() netip.Addr { return netip.MustParseAddr("192.0.2.1") }
func (r *request) Host() []byte       { return []byte("localhost") }
func (r *request) Path() []byte       { return []byte("/x") }
func (r *request) Method() []byte     { return []byte(r.method) }
func (r *request) Tier() []byte       { return nil }
func (r *request) Risk() string       { return "" }
func (r *request) Trusted() bool      { return r.trusted }

func (r *request) Header(name string) ([]byte, int) {
	if v := r.headers[name]; len(v) > 0 {
		return []byte(v[0]), len(v)
	}
	return nil, 0
}

func (r *request) Cookie(string) ([]byte, int) { return nil, 0 }
func (r *request) Query(string) ([]byte, int)  { return nil, 0 }

func TestClasses(t *testing.T) {
	d := Defaults()
	m, err := d.Matcher()
	require.NoError(t, err)
	var match rules.Match
	f := func(want, method string, trusted bool, class ...string) {
		t.Helper()
		r := &request{method: method, trusted: trusted, headers: map[string][]string{"X-Weir-Class": class}}
		require.NoError(t, new(rules.Set).Match(r, 0, &match))
		require.Equal(t, want, d.Classes[m.Class(r, &match)].Name)
	}
	f("read", "GET", false)
	f("write", "POST", false)
	f("write", "delete", false)
	f("read", "GET", false, "critical") // a client cannot raise its class
	f("critical", "GET", true, "critical")
	f("critical", "POST", true, "critical")
	f("test", "GET", false, "test") // but it may lower it
	f("test", "POST", false, "test")
	f("test", "GET", true, "critical", "test") // or undo what a proxy added
	f("test", "GET", true, "test", "critical")
	f("test", "POST", true, "critical", "critical") // it is unknown which value counts
	f("read", "GET", true, "Critical")
	f("read", "GET", true, "write")
}
