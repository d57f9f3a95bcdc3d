package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// judged answers 401 where passwords are guessed, and 200 otherwise.
func judged(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// publishPolicy activates a behavior policy without regionctl's checks.
func (s *site) publishPolicy(t *testing.T, document []byte) string {
	t.Helper()
	client, err := consul.Open(consul.Config{Addr: s.consul.Addr()})
	require.NoError(t, err)
	defer client.Close()
	documents := client.Documents("policy")
	_, index, err := documents.Current(t.Context())
	require.NoError(t, err)
	_, err = documents.Put(t.Context(), document)
	require.NoError(t, err)
	p := consul.NewPointer(document, "another program", time.Now())
	done, err := documents.Point(t.Context(), p, index)
	require.NoError(t, err)
	require.True(t, done)
	return p.Version
}

// runsPolicy reports whether a node scores clients by this policy version.
func runsPolicy(t *testing.T, n *testenv.EdgeNode, version string) bool {
	for name := range metrics(t, n, "weir_behavior_policy_info") {
		if strings.Contains(name, version) {
			return true
		}
	}
	return false
}

// Two nodes of this release score clients together, alongside a node of the previous release on
// the same Redis. regionctl refuses a policy and names the old node. If another program
// publishes one, the old node admits what it did before, and all three count the same limits.
func TestTwoReleasesJudge(t *testing.T) {
	before := os.Getenv("WEIR_BEFORE")
	if before == "" {
		return
	}
	f := startFleet(t, testenv.ConsulOptions{}, 0, "eu-west")
	s := f.regions[0]
	s.budget = generous
	url, dir, program := judged(t), t.TempDir(), testenv.Program(t, "edge")
	for i, p := range []string{program, program, testenv.ProgramOf(t, before, "edge")} {
		caches := t.TempDir()
		config := s.config(url, i, filepath.Join(caches, "rules.json"), "")
		if p == program {
			config += fmt.Sprintf("policy: {source: consul, cache: %q}\n", filepath.Join(caches, "policy.json"))
		}
		s.nodes = append(s.nodes, testenv.StartEdgeOf(t, p, config))
	}
	old, news := s.nodes[2], s.nodes[:2]
	f.apply("rules: [{id: fixed, match: {paths: [/fixed]}, key: [client_ip], algorithm: fixed_window, limit: 50, window: " + testenv.LongWindow() + "}]")
	for _, n := range s.nodes {
		n.WaitReady()
	}

	file := filepath.Join(dir, "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(passwords), 0o600))
	_, stderr, status := f.regionctl("policy", "apply", file, "--yes")
	require.Equal(t, term.StatusFailed, status)
	require.Contains(t, stderr, "nothing was changed: a behavior policy needs a node that reads schema 1; eu-west-2 in eu-west reads none: update it first")

	version := s.publishPolicy(t, []byte(passwords))
	together(t, news)
	for _, n := range news {
		soon(t, "it judges by the policy", func() bool { return runsPolicy(t, n, version) })
	}
	c := client()
	defer c.CloseIdleConnections()
	const who = "192.0.2.7"
	spread(t, c, s.nodes, who)
	for _, n := range news {
		soon(t, "it refuses the client", func() bool { return tierOf(t, n, who) == "blocked" })
		require.Equal(t, http.StatusTooManyRequests, login(t, c, n, who))
	}
	require.Equal(t, http.StatusUnauthorized, login(t, c, old, who), "the old node judges nobody")

	// All three count together, undisturbed by the exchange.
	awaitRedis(t, s.nodes, "/fixed", victim)
	require.Equal(t, map[int]int{http.StatusOK: limit}, statuses(t, s.nodes, "/fixed", victim, 3, limit))
	require.Equal(t, map[int]int{http.StatusTooManyRequests: 6}, statuses(t, s.nodes, "/fixed", victim, 3, 6))

	// The old node does not apply an operator's block, and regionctl names it.
	_, stderr, status = f.regionctl("clients", "block", "198.51.100.9", "--reason", "a scraper")
	require.Equal(t, term.StatusPartial, status)
	require.Contains(t, stderr, "eu-west-2: of an earlier release")
	blocked, err := get(c, news[0].Public, "/", "198.51.100.9")
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, blocked)

	// Without the old node, regionctl publishes another policy.
	old.Terminate()
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(passwords, "mode: enforce", "mode: shadow", 1)), 0o600))
	soon(t, "Consul has forgotten the old node", func() bool {
		_, stderr, status = f.regionctl("policy", "apply", file, "--yes")
		return status == 0 || !strings.Contains(stderr, "eu-west-2")
	})
	require.Zero(t, status, stderr)
	require.Equal(t, http.StatusUnauthorized, login(t, c, news[0], who), "in shadow mode nobody is refused")
}

// spread makes a client guess at all nodes in turn, so often that two of three see too few.
func spread(t *testing.T, c *fasthttp.Client, nodes []*testenv.EdgeNode, who string) {
	t.Helper()
	for i := range 12 * len(nodes) {
		require.Equal(t, http.StatusUnauthorized, login(t, c, nodes[i%len(nodes)], who), "guess %d", i)
	}
}

// An earlier release's node reads policies, but not all that this release can write. regionctl
// refuses those and names the node. If another program publishes one, the node keeps its
// previous policy.
func TestTwoReleasesReadPolicies(t *testing.T) {
	before := os.Getenv("WEIR_BEFORE_GLOBAL") // it follows policies of schema 1
	if before == "" {
		return
	}
	f := startFleet(t, testenv.ConsulOptions{}, 0, "eu-west")
	s := f.regions[0]
	for i, p := range []string{testenv.Program(t, "edge"), testenv.ProgramOf(t, before, "edge")} {
		caches := t.TempDir()
		s.nodes = append(s.nodes, testenv.StartEdgeOf(t, p, s.config(judged(t), i, filepath.Join(caches, "rules.json"), "")+
			fmt.Sprintf("policy: {source: consul, cache: %q}\n", filepath.Join(caches, "policy.json"))))
	}
	f.apply("rules: []")
	for _, n := range s.nodes {
		n.WaitReady()
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	apply := func(document string) (stderr string, status int) {
		require.NoError(t, os.WriteFile(file, []byte(document), 0o600))
		_, stderr, status = f.regionctl("policy", "apply", file, "--yes")
		return stderr, status
	}
	stderr, status := apply(passwords)
	require.Zero(t, status, stderr)
	shared := consul.NewPointer([]byte(passwords), "", time.Time{}).Version
	const byKey = "subject: [header:X-Api-Key]"
	stderr, status = apply(byKey)
	require.Equal(t, term.StatusFailed, status)
	require.Contains(t, stderr, "nothing was changed: subject needs a node that reads schema 3; eu-west-1 in eu-west reads 1: update it first")

	version := s.publishPolicy(t, []byte(byKey))
	soon(t, "the new node judges by it", func() bool { return runsPolicy(t, s.nodes[0], version) })
	soon(t, "regionctl says that the old node refuses it", func() bool {
		out, _, _ := f.regionctl("policy", "status")
		return strings.Contains(out, version) && strings.Contains(out, "subject: unknown field")
	})
	require.True(t, runsPolicy(t, s.nodes[1], shared))
	require.Equal(t, http.StatusUnauthorized, login(t, client(), s.nodes[1], "192.0.2.8"), "it serves")
}
