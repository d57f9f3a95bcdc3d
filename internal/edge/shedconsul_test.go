package edge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// publishSettings writes shedder settings as publish writes rules, and makes sure that
// there are rules.
func publishSettings(t *testing.T, c *testenv.Consul) *publisher {
	t.Helper()
	p := publish(t, c)
	p.apply(ruleA)
	client, err := consul.Open(p.config())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	p.Documents = client.Documents("shedder").Temporary()
	return p
}

func TestFollowingShedderSettings(t *testing.T) {
	consul := testenv.StartConsul(t, testenv.ConsulOptions{})
	for name, f := range map[string]func(*testing.T, *publisher){
		"changes": settingsChange, "temporary": settingsReturn, "temporary first": settingsReturnToConfigured, "cache": settingsAreCached,
		"refused": settingsAreRefused, "pointer is lost": settingsPointerIsLost, "missing and corrupt": settingsAreMissing, "admin on top": adminIsOnTop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, publishSettings(t, consul))
		})
	}
}

// settingsView returns what /v1/shedder shows.
func (n *node) settingsView() adminapi.Shedder {
	n.t.Helper()
	a := n.operate("GET", "/v1/shedder?brief")
	require.Equal(n.t, 200, a.status, a.body)
	var v adminapi.Shedder
	require.NoError(n.t, json.Unmarshal([]byte(a.body), &v))
	return v
}

func (n *node) sheds(what string, ok func(adminapi.Shedder) bool) adminapi.Shedder {
	n.t.Helper()
	var v adminapi.Shedder
	eventually(n.t, what, func() bool { v = n.settingsView(); return ok(v) })
	return v
}

func (n *node) shedsBy(version, source string) adminapi.Shedder {
	n.t.Helper()
	return n.sheds("it sheds by "+version+" of "+source, func(v adminapi.Shedder) bool { return v.Version == version && v.Source == source })
}

func (p *publisher) temporarily(document string, then *consul.Pointer, lasts time.Duration) string {
	p.t.Helper()
	to := p.put(document)
	ends := time.Now().Add(lasts)
	to.ExpiresAt = &ends
	if then != nil {
		to.Successor = &consul.Named{Version: then.Version, SHA256: then.SHA256}
	}
	p.point(to)
	return to.Version
}

const (
	settingsA = calm + "rotate: 2m\n"
	settingsB = calm + "rotate: 3m\n"
)

func settingsChange(t *testing.T, p *publisher) {
	n := start(t, p.setup(func(c *config.Config) { c.Shedder.Document = nil }))
	v := n.shedsBy("built-in", "builtin")
	require.Nil(t, v.Pointer)
	eventually(t, "Consul answers", func() bool { return n.settingsView().Consul.OK })
	require.Nil(t, n.settingsView().Refused, "nothing was published that could be refused")
	require.Equal(t, "built-in", n.meta()["shedder_version"])

	first := p.apply(settingsA)
	v = n.shedsBy(first, "consul")
	require.Equal(t, first, v.Pointer.Version)
	require.Nil(t, v.ExpiresAt)
	require.Equal(t, first, n.meta()["shedder_version"])
	require.Equal(t, time.Minute*2, n.upstreams.Groups[0].Shedder.Status().Settings.Rotate)
	require.Equal(t, first, n.upstreams.Groups[0].Shedder.Status().Settings.Version)
	require.EqualValues(t, 1, n.metric(`weir_shedder_info{version="`+first+`",source="consul",enabled="true"}`))
	_, known := n.series(`weir_shedder_info{version="built-in",source="builtin",enabled="true"}`)
	require.False(t, known)
	require.Len(t, n.logs.lines(t, "shedder settings active"), 2)
	status, _ := n.readyz()
	require.Equal(t, 200, status)
}

func settingsReturn(t *testing.T, p *publisher) {
	permanent := p.put(settingsA)
	p.point(permanent)
	n := start(t, p.setup())
	n.shedsBy(permanent.Version, "consul")
	temporary := p.temporarily(settingsB, &permanent, time.Hour)
	v := n.shedsBy(temporary, "consul")
	require.Equal(t, permanent.Version, v.Then)
	require.WithinDuration(t, time.Now().Add(time.Hour), *v.ExpiresAt, patience)
	p.temporarily(settingsB, &permanent, 3*time.Second) // an earlier end: a slow machine may see only that
	n.sheds("it ends earlier", func(now adminapi.Shedder) bool { return now.ExpiresAt == nil || now.ExpiresAt.Before(*v.ExpiresAt) })
	p.remove(p.CurrentKey()) // even if everything else is gone
	p.remove(p.prefix + "/shedder/versions/" + permanent.Version)
	v = n.shedsBy(permanent.Version, "consul")
	require.Nil(t, v.ExpiresAt)
	cached, err := documents.ReadCache(n.config.Shedder.Cache, n.config.CacheOwner())
	require.NoError(t, err)
	require.Equal(t, permanent.Version, cached.Pointer.Version)
}

func settingsReturnToConfigured(t *testing.T, p *publisher) {
	temporary := p.temporarily(settingsB, nil, time.Hour)
	n := start(t, p.setup())
	configured := n.config.Shedder.Document.Version
	v := n.shedsBy(temporary, "consul")
	require.Equal(t, configured, v.Then)
	p.temporarily(settingsB, nil, time.Second)
	n.shedsBy(configured, "config")
	_, err := os.Stat(n.config.Shedder.Cache)
	require.ErrorIs(t, err, os.ErrNotExist, "temporary settings are not kept")
	// One already over when it is seen.
	then := p.put(settingsA)
	p.temporarily(settingsB, &then, -time.Second)
	n.shedsBy(then.Version, "consul")
}

func settingsAreCached(t *testing.T, p *publisher) {
	version := p.apply(settingsA)
	s := p.setup()
	n := start(t, s)
	n.shedsBy(version, "consul")
	eventually(t, "it is on disk", func() bool { _, err := os.Stat(n.config.Shedder.Cache); return err == nil })
	require.Equal(t, filepath.Dir(n.config.Rules.Cache), filepath.Dir(n.config.Shedder.Cache))
	n.stop()
	confirmed := start(t, s)
	confirmed.shedsBy(version, "consul")
	require.Len(t, confirmed.logs.lines(t, "shedder settings active"), 1, "confirmed cached settings do not start again")
	confirmed.stop()
	down := func(c *config.Config) { c.Consul.Addr = "127.0.0.1:1" }
	change := s.config
	s.config = func(c *config.Config) { change(c); down(c) }
	again := start(t, s)
	v := again.shedsBy(version, "cache")
	require.False(t, v.Consul.OK)
	require.Empty(t, again.logs.lines(t, "cached shedder settings not used"))
	again.stop()

	require.NoError(t, os.WriteFile(n.config.Shedder.Cache, []byte("{}"), 0o600))
	damaged := start(t, s)
	damaged.shedsBy(damaged.config.Shedder.Document.Version, "config")
	require.Len(t, damaged.logs.lines(t, "cached shedder settings not used"), 1)
	require.EqualValues(t, 1, damaged.metric("weir_shedder_cache_errors_total"))
}

// refusesSettings waits for a refusal, and checks that nothing else changed.
func (n *node) refusesSettings(version, text string) {
	n.t.Helper()
	before := n.settingsView()
	v := n.sheds("it refuses "+version+" with "+text, func(v adminapi.Shedder) bool {
		return v.Refused != nil && v.Refused.Version == version && strings.Contains(strings.Join(v.Refused.Errors, "\n"), text)
	})
	require.Equal(n.t, before.Version, v.Version)
	require.Equal(n.t, before.Since, v.Since)
	require.Contains(n.t, n.meta()["shedder_refused"], v.Refused.Errors[0])
}

func settingsAreRefused(t *testing.T, p *publisher) {
	good := p.apply(settingsA)
	n := start(t, p.setup())
	n.shedsBy(good, "consul")
	bad := p.apply("start: 2\nlaw: pid\n")
	n.refusesSettings(bad, `law: must be pi`)
	require.Greater(t, len(n.settingsView().Refused.Errors), 1)
	require.EqualValues(t, 1, n.metric("weir_shedder_rejected_total"))
	require.Zero(t, n.metric("weir_rules_rejected_total"))
	_, state := n.readyz()
	require.Contains(t, state["shedder_refused"], bad)
	p.apply(settingsA)
	n.sheds("no refusal", func(v adminapi.Shedder) bool { return v.Refused == nil })
	// A bad temporary one leaves what follows it active.
	then := p.put(settingsB)
	worse := p.temporarily("law: none", &then, time.Hour)
	n.sheds("it refuses it", func(v adminapi.Shedder) bool { return v.Refused != nil && v.Refused.Version == worse })
	n.shedsBy(then.Version, "consul")
}

func settingsPointerIsLost(t *testing.T, p *publisher) {
	good := p.apply(settingsA)
	n := start(t, p.setup())
	n.shedsBy(good, "consul")
	p.remove(p.CurrentKey())
	n.refusesSettings("", "is missing; apply the document again")
	p.write(p.CurrentKey(), "")
	n.refusesSettings("", "is empty")
	p.write(p.CurrentKey(), "{}")
	n.refusesSettings("", "sha256")
	n.shedsBy(p.apply(settingsB), "consul")
}

func settingsAreMissing(t *testing.T, p *publisher) {
	good := p.apply(settingsA)
	n := start(t, p.setup())
	n.shedsBy(good, "consul")
	missing := consul.NewPointer([]byte(settingsB), "test", time.Now())
	p.point(missing)
	n.refusesSettings(missing.Version, "the version is missing;")
	key := p.prefix + "/shedder/versions/" + missing.Version
	p.write(key, "something else")
	n.refusesSettings(missing.Version, "is corrupt")
	p.write(key, settingsB)
	n.shedsBy(missing.Version, "consul")
}

func adminIsOnTop(t *testing.T, p *publisher) {
	first := p.apply(settingsA)
	n := start(t, p.setup())
	n.shedsBy(first, "consul")
	a := n.send("PUT", "/v1/shedder?for=1h", calm+"enabled: false\n")
	require.Equal(t, 200, a.status, a.body)
	v := n.settingsView()
	require.Equal(t, "admin", v.Source)
	require.Equal(t, first, v.Then)
	second := p.apply(settingsB)
	v = n.sheds("the new pointer", func(v adminapi.Shedder) bool { return v.Then == second })
	require.Equal(t, "admin", v.Source, "stays active")
	require.Equal(t, 200, n.operate("DELETE", "/v1/shedder").status)
	n.shedsBy(second, "consul")
}
