package edge

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/testenv"
)

// A new machine that starts while Consul is unreachable runs the copy at rules.bootstrap
// as soon as that is good, and Consul's rules once Consul answers.
func TestBootstrapWithoutConsul(t *testing.T) {
	t.Parallel()
	consul := testenv.StartConsul(t, testenv.ConsulOptions{})
	p := publish(t, consul)
	first := p.apply(ruleA)
	asked, document := atomic.Int32{}, atomic.Pointer[string]{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if text := document.Load(); text != nil {
			_, _ = w.Write([]byte(*text))
			return
		}
		http.NotFound(w, nil)
	}))
	t.Cleanup(server.Close)
	s := p.setup()
	follow := s.config
	s.config = func(c *config.Config) {
		follow(c)
		c.Rules.Bootstrap = server.URL + "/rules.yaml?X-Amz-Signature=s3cr3t"
	}
	n := start(t, s)
	n.runs(first)
	eventually(t, "the rules are kept", func() bool { _, err := n.kept(); return err == nil })
	require.Zero(t, asked.Load(), "Consul answers")
	n.stop()
	consul.Kill()

	n = start(t, s)
	require.Equal(t, "cache", n.rulesView().Source)
	n.stop()
	require.Zero(t, asked.Load(), "there is a copy on disk")
	require.NoError(t, os.Remove(n.config.Rules.Cache))

	n = start(t, s)
	fails := func(why string) {
		t.Helper()
		eventually(t, why, func() bool {
			status, state := n.readyz()
			return status == 503 && strings.Contains(state["rules_bootstrap"], why)
		})
	}
	fails("answered 404 Not Found; it must be 200")
	bad, good := badRules, ruleA
	document.Store(&bad)
	fails("rules[0]")
	document.Store(&good)
	v := n.shows("the copy is used", func(v adminapi.Rules) bool { return v.Version == first })
	require.Equal(t, "bootstrap", v.Source)
	require.True(t, v.Stale, "nothing confirms that they are the newest")
	require.Nil(t, v.Pointer)
	require.EqualValues(t, 1, n.metric("weir_rules_bootstrapped"))
	require.Equal(t, 200, n.get("/").status)
	require.Equal(t, 429, n.get("/").status)
	require.NoFileExists(t, n.config.Rules.Cache, "only what Consul published is kept")
	logged := n.logs.lines(t, "rules cannot be bootstrapped; the node retries until consul answers")
	require.Len(t, logged, 1)
	require.NotContains(t, logged[0]["error"], "s3cr3t")

	running, times := n.rules.Running(), asked.Load()
	consul.Start()
	n.shows("Consul confirms them", func(v adminapi.Rules) bool { return v.Source == "consul" && !v.Stale })
	require.Same(t, running, n.rules.Running(), "the same rules go on counting")
	require.Zero(t, n.metric("weir_rules_bootstrapped"))
	n.runs(p.apply(ruleB))
	require.Equal(t, times, asked.Load(), "not asked again")
}
