package edge

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/shedding"
)

// send sends a body to the admin side.
func (n *node) send(method, path, body string) answer {
	n.t.Helper()
	req, err := http.NewRequest(method, "http://"+n.admin+path, strings.NewReader(body))
	require.NoError(n.t, err)
	resp, err := n.client.Do(req)
	require.NoError(n.t, err)
	return read(n.t, resp)
}

func TestShedderEndpoint(t *testing.T) {
	n := start(t, setup{config: func(c *config.Config) {
		c.Shedder.Document = settings(t, calm+"candidates: {stricter: {start: 0.5, target: 0.4}}\nupstreams: {nowhere: {law: cap}}\n")
	}})
	require.Len(t, n.logs.lines(t, "shedder settings name an upstream group that this node does not have"), 1)
	eventually(t, "signals are measured", func() bool { return n.metric(`weir_shed_signal_up{signal="inflight",upstream="default"}`) == 1 })
	a := n.operate("GET", "/v1/shedder")
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &v))
	require.Equal(t, "test-node", v["node"])
	require.Equal(t, "config", v["source"])
	require.Equal(t, shedding.ShadowBias, v["shadow_bias"])
	require.NotContains(t, v, "expires_at")
	again, err := json.Marshal(v["document"])
	require.NoError(t, err)
	d, err := shedding.Parse(again)
	require.NoError(t, err, "what is shown can be sent back")
	d.Version = n.config.Shedder.Document.Version
	require.Equal(t, n.config.Shedder.Document, d)
	upstream := v["upstreams"].([]any)[0].(map[string]any)
	require.Equal(t, "default", upstream["name"])
	require.Len(t, upstream["classes"], 4)
	require.Equal(t, "stricter", upstream["candidates"].([]any)[0].(map[string]any)["name"])
	require.Zero(t, n.metric(`weir_shadow_shed_total{candidate="stricter",class="read",upstream="default"}`))
	_, known := n.series(`weir_shadow_shed_total{candidate="stricter",class="read",upstream="default"}`)
	require.True(t, known)

	// Temporarily: the candidate is gone, and its series with it. The lines that
	// dashboards draw are those of the active settings.
	require.InDelta(t, 0.8, n.metric(`weir_shed_threshold{threshold="start",upstream="default"}`), 0)
	const others = "signals: {inflight: {low: 2, high: 9}, cpu: off, sched_latency: off, upstream_wait: off}\nstart: 0.6\ntarget: 0.5\n" +
		"enabled: false\nclasses: [{name: all, max_in_flight: 5}]\ndefault_class: all\n"
	a = n.send("PUT", "/v1/shedder?for=1h", others)
	require.Equal(t, 200, a.status, a.body)
	for series, want := range map[string]float64{
		`weir_shed_threshold{threshold="start",upstream="default"}`:               0.6,
		`weir_shed_threshold{threshold="target",upstream="default"}`:              0.5,
		`weir_shed_signal_knee{knee="low",signal="inflight",upstream="default"}`:  2,
		`weir_shed_signal_knee{knee="high",signal="inflight",upstream="default"}`: 9,
		`weir_inflight_max{class="all",upstream="default"}`:                       5,
	} {
		require.InDelta(t, want, n.metric(series), 0, series)
	}
	view := n.settingsView()
	require.Equal(t, "admin", view.Source)
	require.Equal(t, n.config.Shedder.Document.Version, view.Then)
	require.WithinDuration(t, time.Now().Add(time.Hour), *view.ExpiresAt, patience)
	for _, series := range []string{`weir_shadow_shed_total{candidate="stricter",class="read",upstream="default"}`, `weir_shed_total{class="read",reason="cap",upstream="default"}`, `weir_inflight{class="read",upstream="default"}`} {
		_, known = n.series(series)
		require.False(t, known, series)
	}
	a = n.send("PUT", "/v1/shedder?for=1s", others)
	require.Equal(t, 200, a.status, a.body)
	n.shedsBy(n.config.Shedder.Document.Version, "config")
	_, known = n.series(`weir_shed_total{class="read",reason="cap",upstream="default"}`)
	require.True(t, known)
	require.Equal(t, 200, n.get("/").status)
}

// Until requests have queued at the origin, an estimated knee is its upper bound.
func TestAnEstimatedKnee(t *testing.T) {
	n := start(t, setup{})
	a := n.send("PUT", "/v1/shedder?for=10m", "signals: {inflight: {high: {min: 20, max: 500}}}\ncandidates: {free: {signals: {inflight: {high: 700}}}}\n")
	require.Equal(t, 200, a.status, a.body)
	for series, want := range map[string]float64{
		`weir_shed_signal_knee{knee="high",signal="inflight",upstream="default"}`: 500,
		`weir_inflight_max{class="test",upstream="default"}`:                      700,
		`weir_shadow_knee{candidate="free",upstream="default"}`:                   700,
		`weir_shed_auto_knee{upstream="default"}`:                                 0,
		`weir_shed_probes_total{result="measured",upstream="default"}`:            0,
		`weir_shed_total{class="read",reason="probe",upstream="default"}`:         0,
	} {
		got, known := n.series(series)
		require.True(t, known, series)
		require.Equal(t, want, got, series)
	}
	shown := strings.NewReplacer(" ", "", "\n", "").Replace(n.operate("GET", "/v1/shedder").body)
	require.Contains(t, shown, `"inflight":{"low":0,"high":{"min":20,"max":500}}`)
	require.Contains(t, shown, `"estimate":{"high":0,`)
	a = n.send("PUT", "/v1/shedder", "signals: {inflight: {high: {min: 20, max: 5000}}}\n")
	require.Equal(t, 400, a.status)
	require.Contains(t, a.body, "signals.inflight.high.max: must be at most 875")
}

func TestShedderEndpointRefuses(t *testing.T) {
	n := start(t, setup{})
	before := n.settingsView()
	f := func(status int, query, body string, want ...string) {
		t.Helper()
		a := n.send("PUT", "/v1/shedder"+query, body)
		require.Equal(t, status, a.status, a.body)
		for _, text := range want {
			require.Contains(t, a.body, text)
		}
		after := n.settingsView()
		require.Equal(t, before.Version, after.Version)
		require.Equal(t, before.Since, after.Since)
	}
	f(400, "", "start: 2\nlaw: pid", `"errors":["start: must be`, "law: must be pi")
	f(400, "", "", "document: is empty")
	f(400, "", strings.Repeat("[", 60_000), "document: ")
	f(400, "", "a: &a [*a]", "anchors, aliases and merges are not accepted")
	f(400, "", "\xff", "not valid UTF-8")
	f(400, "", "\x1b[31m", "control character")
	f(413, "", "# "+strings.Repeat("x", shedding.MaxBytes), "is larger than 65536 bytes")
	f(400, "?for=soon", "{}", "for: must be between 1s and 24h")
	f(400, "?for=25h", "{}", "for: must be")
	f(400, "?for=-1m", "{}", "for: must be")
	f(400, "?form=15m", "{}", "form: unknown; use for")
	require.Equal(t, http.StatusMethodNotAllowed, n.send("POST", "/v1/shedder", "{}").status)
	require.Empty(t, n.logs.lines(t, "handler panicked"))
}

func TestShedderEndpointWantsTheToken(t *testing.T) {
	n := start(t, setup{config: func(c *config.Config) { c.Listen.AdminTokenFile = "shedadmin_test.go" }})
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		require.Equal(t, 401, n.send(method, "/v1/shedder", "enabled: false").status)
	}
	require.Equal(t, "config", n.shedding.State().Source())
	require.True(t, n.shedding.State().Active.Compiled.Enabled)
}

// Activating settings while requests run harms none of them.
func TestSettingsChangeUnderLoad(t *testing.T) {
	n := start(t, setup{})
	done := make(chan struct{})
	ended := make(chan map[int]int, 4)
	for range 4 {
		go func() {
			got := map[int]int{}
			defer func() { ended <- got }()
			for {
				select {
				case <-done:
					return
				default:
				}
				resp, err := n.client.Get("http://" + n.public + "/")
				if err != nil {
					got[0]++
					continue
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				got[resp.StatusCode]++
			}
		}()
	}
	for i := range 60 {
		body := calm
		if i%2 == 0 {
			body += "classes: [{name: a, max_in_flight: 50}, {name: b, max_in_flight: 40, match: [{methods: [GET]}]}]\ndefault_class: a\n"
		}
		require.Equal(t, 200, n.send("PUT", "/v1/shedder", body).status)
	}
	close(done)
	for range 4 {
		got := <-ended
		require.NotZero(t, got[200])
		require.Len(t, got, 1, got)
	}
	n.idle()
}
