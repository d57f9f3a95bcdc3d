package edge

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

const topRules = `rules:
  - {id: per-client, match: {paths: ["/a*"]}, key: [client_ip], limit: 1, window: 1h}
  - {id: per-key, match: {paths: ["/b"]}, key: ["header:X-Api-Key"], limit: 1, window: 1h}
  - {id: whole-path, match: {paths: ["/c*"]}, key: [path], limit: 1, window: 1h, mode: shadow}
`

// topOf asks whom the node refuses most.
func (n *node) topOf(headers ...string) (v adminapi.Top, text string) {
	n.t.Helper()
	a := n.operate("GET", adminapi.PathTop, headers...)
	require.Equal(n.t, http.StatusOK, a.status, a.body)
	require.NoError(n.t, json.Unmarshal([]byte(a.body), &v))
	return v, a.body
}

// Whoever may read the admin side learns whom each rule refuses most, without secrets and without
// what clients could write there; of a rule in shadow mode, whom it would refuse.
func TestTop(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("a secret of many bytes\n"), 0o600))
	n := start(t, setup{rules: topRules, config: func(c *config.Config) {
		c.Listen.AdminTokenFile, c.TrustedProxies = file, []string{"127.0.0.1"}
	}})
	const token = "Authorization: Bearer a secret of many bytes"
	found := map[string]adminapi.TopRule{}
	eventually(t, "each rule has refused", func() bool {
		n.get("/a", "X-Forwarded-For: 203.0.113.7")
		n.get("/b", "X-Forwarded-For: 203.0.113.8", "X-Api-Key: hunter2")
		require.Equal(t, 200, n.get("/c%3Cimg%20src=x%20onerror=run()%3E", "X-Forwarded-For: 2001:db8::7").status)
		top, text := n.topOf(token)
		require.NotContains(t, text, "hunter2")
		require.NotContains(t, text, "<")
		require.Equal(t, "test-node", top.Node)
		require.Empty(t, top.Suspects)
		clear(found)
		for _, r := range top.Rules {
			found[r.Rule] = r
		}
		return len(found) == 3
	})
	for rule, want := range map[string][]string{
		"per-client": {"enforce", "203.0.113.7", "203.0.113.7"}, "per-key": {"enforce", "203.0.113.8", "header:X-Api-Key=" + rules.HashOf("header:X-Api-Key", "hunter2")},
		"whole-path": {"shadow", "2001:db8::7", "path=/c%3Cimg%20src%3Dx%20onerror%3Drun%28%29%3E"},
	} {
		r := found[rule]
		require.Equal(t, want[0], r.Mode)
		require.Len(t, r.Clients, 1, rule)
		c := r.Clients[0]
		require.Equal(t, want[1:], append([]string{c.Client.String()}, c.Key...))
		require.Equal(t, []uint64{r.Refused, r.Refused}, []uint64{c.Refused, c.AtMost})
	}
	require.Equal(t, http.StatusUnauthorized, n.operate("GET", adminapi.PathTop).status)
	for query, saying := range map[string]string{"?mots=1": "mots: unknown", "?most=33": "most: must be a number from 1 to 32", "?most=x": "most: must be"} {
		a := n.operate("GET", adminapi.PathTop+query, token)
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Contains(t, a.body, saying)
	}
}

// New rules keep the counts of those that count by the same key in the same mode.
func TestTopOfNewRules(t *testing.T) {
	n := start(t, setup{rules: "rules: [{id: same, key: [client_ip], limit: 1, window: 1h}, {id: mode, key: [client_ip], limit: 1, window: 1h}, {id: key, key: [client_ip], limit: 1, window: 1h}]"})
	require.Equal(t, []int{200, 429}, []int{n.get("/").status, n.get("/").status})
	now := time.Now()
	names := func(now time.Time) (list []string) {
		for _, r := range n.rules.Running().Top(now, 1) {
			require.Equal(t, []string{"127.0.0.1"}, r.Clients[0].Key)
			list = append(list, r.Rule)
		}
		return list
	}
	require.Equal(t, []string{"same", "mode", "key"}, names(now))
	require.Empty(t, names(now.Add(time.Hour)), "who is limited now")
	version := n.rules.State().Version()
	n.replaceRules("rules: [{id: new, key: [client_ip], limit: 1, window: 1h}, {id: key, key: [host], limit: 1, window: 1h}, {id: mode, key: [client_ip], limit: 1, window: 1h, mode: shadow}, {id: same, key: [client_ip], limit: 9, window: 1h}]")
	n.reload <- syscall.SIGHUP
	eventually(t, "the document is active", func() bool { return n.rules.State().Version() != version })
	require.Equal(t, []string{"same"}, names(now))
}

// Clients above the mildest tier are listed, also in shadow mode, by what the policy identifies them by.
func TestSuspects(t *testing.T) {
	n, _ := guessing(t, quick+"subject: [\"header:X-Api-Key\"]\n", "")
	var list []adminapi.Suspect
	eventually(t, "both are suspicious", func() bool {
		n.get("/login", "X-Forwarded-For: 192.0.2.1", "X-Api-Key: hunter2")
		n.get("/login", "X-Forwarded-For: 192.0.2.2")
		n.get("/", "X-Forwarded-For: 192.0.2.3")
		top, text := n.topOf()
		require.NotContains(t, text, "hunter2")
		require.Equal(t, "shadow", top.PolicyMode)
		list = top.Suspects
		return len(list) == 2 && list[0].Tier == "blocked" && list[1].Tier == "blocked"
	})
	if list[0].Client.String() != "192.0.2.1" {
		list[0], list[1] = list[1], list[0]
	}
	require.Equal(t, []string{"header:X-Api-Key=" + rules.HashOf("header:X-Api-Key", "hunter2")}, list[0].Key)
	require.Equal(t, []string{"192.0.2.2"}, list[1].Key)
	for _, s := range list {
		require.Equal(t, []any{3, "failures"}, []any{s.Level, s.Signals[0].Signal})
		require.NotZero(t, s.Score)
		require.NotEmpty(t, s.RefusedFor)
		require.NotZero(t, s.Requests)
	}
}
