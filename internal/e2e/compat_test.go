package e2e

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
)

// Nodes of two releases in one region count together, by every algorithm. regionctl refuses
// rules that the old node cannot read. If another program publishes them, the old node keeps
// its rules and reports that. make compat names the previous release in WEIR_BEFORE, because
// other test runs may have no history to take it from.
func TestTwoReleases(t *testing.T) {
	before := os.Getenv("WEIR_BEFORE")
	if before == "" {
		return
	}
	f := startFleet(t, testenv.ConsulOptions{}, 0, "eu-west")
	s := f.regions[0]
	s.budget = generous
	for i, program := range []string{testenv.Program(t, "edge"), testenv.ProgramOf(t, before, "edge")} {
		s.nodes = append(s.nodes, testenv.StartEdgeOf(t, program, s.config(origin(t, nil), i, filepath.Join(t.TempDir(), "rules.json"), "")))
	}
	old := s.nodes[1]
	f.apply(longRules)
	for _, n := range s.nodes {
		n.WaitReady()
	}
	for _, path := range []string{"/fixed", "/sliding", "/token", "/leaky", "/ring", "/set"} {
		awaitRedis(t, s.nodes, path, victim)
		require.Equal(t, map[int]int{http.StatusOK: limit}, statuses(t, s.nodes, path, victim, 1, limit), path)
		require.Equal(t, map[int]int{http.StatusTooManyRequests: 2}, statuses(t, s.nodes, path, victim, 1, 2), path)
	}

	first, err := rulesOf(old)
	require.NoError(t, err)
	document := longRules + "  - {id: not, match: {not: {paths: [/ring]}}, key: [client_ip], limit: 5, window: 24h}\n"
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(document), 0o600))
	_, stderr, status := f.regionctl("rules", "apply", file, "--yes")
	require.Equal(t, term.StatusFailed, status)
	require.Contains(t, stderr, "rules[6].match.not needs a node that reads schema 2; eu-west-1 in eu-west reads 1")

	version := s.publish(t, []byte(document))
	eventually(t, testenv.Patience, "one node accepts it, the other refuses it", func() bool {
		took, err := rulesOf(s.nodes[0])
		kept, err2 := rulesOf(old)
		return err == nil && err2 == nil && took.Version == version && kept.Version == first.Version && kept.Refused != nil && kept.Refused.Version == version
	})
	require.Equal(t, map[int]int{http.StatusTooManyRequests: 2}, statuses(t, s.nodes, "/ring", victim, 1, 2))
	stdout, _, status := f.regionctl("rules", "status")
	require.Equal(t, term.StatusPartial, status)
	require.Contains(t, stdout, "eu-west-1 refused "+version)
	besideLeases(t, f, old)
	besideReports(t, f, old)
	besideGlobal(t, f, old)
}

// besideGlobal does the same with scope: global. regionctl names the node that cannot read it.
// The new node, which reaches no other region here, and the old one count together.
func besideGlobal(t *testing.T, f *fleet, old *testenv.EdgeNode) {
	const who, shared = "198.51.100.79", 50
	rule := "rules:\n  - {id: shared, match: {paths: [/shared]}, key: [client_ip], algorithm: fixed_window, limit: 50, window: " + testenv.LongWindow() + "%s}\n"
	s := f.regions[0]
	f.apply(fmt.Sprintf(rule, ""))
	before, err := rulesOf(old)
	require.NoError(t, err)
	for more, refused := range map[string]string{
		", scope: global": "rules[0].scope needs a node that reads schema 8; eu-west-1 in eu-west reads 1",
		", on_store_failure: closed, scope: global, global: {mode: escrow}": "rules[0].global.mode: escrow needs a node that reads schema 10; eu-west-1 in eu-west reads 1",
	} {
		file := filepath.Join(t.TempDir(), "rules.yaml")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, rule, more), 0o600))
		_, stderr, status := f.regionctl("rules", "apply", file, "--yes")
		require.Equal(t, term.StatusFailed, status)
		require.Contains(t, stderr, refused)
	}
	version := s.publish(t, fmt.Appendf(nil, rule, ", scope: global"))
	eventually(t, testenv.Patience, "the new node accepts it, the old one keeps its rules", func() bool {
		took, err := rulesOf(s.nodes[0])
		kept, err2 := rulesOf(old)
		return err == nil && err2 == nil && took.Version == version && kept.Version == before.Version && kept.Refused != nil && kept.Refused.Version == version
	})
	awaitRedis(t, s.nodes, "/shared", who)
	require.Equal(t, shared, exhaust(t, s.nodes, "/shared", who))
}

// besideLeases applies rules to both nodes, then bypasses regionctl to make them leased on the
// new one only. Both still count together, except under a token_bucket, whose leased form has
// another key.
func besideLeases(t *testing.T, f *fleet, old *testenv.EdgeNode) {
	const who = "198.51.100.77" // not counted by any other rule
	s := f.regions[0]
	leased := strings.ReplaceAll(leasedRules, "  - {id: local, match: {paths: [/local]}", "  - {id: away, match: {paths: [/away]}")
	strict := strings.ReplaceAll(leased, ", consistency: leased", "")
	f.apply(strict)
	for _, n := range s.nodes {
		n.WaitReady()
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(leased), 0o600))
	_, stderr, status := f.regionctl("rules", "apply", file, "--yes")
	require.Equal(t, term.StatusFailed, status)
	require.Contains(t, stderr, "rules[0].consistency needs a node that reads schema 5; eu-west-1 in eu-west reads 1")

	version := s.publish(t, []byte(leased))
	eventually(t, testenv.Patience, "the new node leases", func() bool {
		took, err := rulesOf(s.nodes[0])
		kept, err2 := rulesOf(old)
		return err == nil && err2 == nil && took.Version == version && kept.Refused != nil && kept.Refused.Version == version
	})
	for _, rule := range []string{"fixed", "sliding", "ring", "set", "token"} {
		awaitRedis(t, s.nodes, "/"+rule, who)
		passed := exhaust(t, s.nodes, "/"+rule, who)
		t.Logf("%s, leased by one of two releases: %d passed of %d", rule, passed, leasedLimit)
		if rule == "token" {
			require.InDelta(t, 2*leasedLimit, passed, 2*refilled)
		} else {
			require.Equal(t, leasedLimit, passed, rule)
		}
		spent := metrics(t, s.nodes[0], "weir_lease_units_total")[fmt.Sprintf(`weir_lease_units_total{fate="spent",rule=%q}`, rule)]
		require.Positive(t, spent, "nothing was leased")
	}
}

// besideReports does the same with consistency: reported. Its keys differ from strict rules'
// keys, so a client may use one limit at each release, and no more.
func besideReports(t *testing.T, f *fleet, old *testenv.EdgeNode) {
	const who = "198.51.100.78"
	s := f.regions[0]
	strict := strings.ReplaceAll(reportedRules, ", consistency: reported", "")
	before := s.publish(t, []byte(strict))
	eventually(t, testenv.Patience, "both count strictly", func() bool {
		one, err := rulesOf(s.nodes[0])
		other, err2 := rulesOf(old)
		return err == nil && err2 == nil && one.Version == before && other.Version == before
	})
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(reportedRules), 0o600))
	_, stderr, status := f.regionctl("rules", "apply", file, "--yes")
	require.Equal(t, term.StatusFailed, status)
	require.Contains(t, stderr, "rules[0].consistency: reported needs a node that reads schema 6; eu-west-1 in eu-west reads 1")

	version := s.publish(t, []byte(reportedRules))
	eventually(t, testenv.Patience, "the new node reports", func() bool {
		took, err := rulesOf(s.nodes[0])
		kept, err2 := rulesOf(old)
		return err == nil && err2 == nil && took.Version == version && kept.Version == before && kept.Refused != nil && kept.Refused.Version == version
	})
	for _, rule := range []string{"fixed", "sliding", "token"} {
		awaitRedis(t, s.nodes[1:], "/"+rule, who)
		passed := exhaust(t, s.nodes, "/"+rule, who)
		t.Logf("%s, reported by one of two releases: %d passed of %d", rule, passed, reportedLimit)
		require.InDelta(t, 2*reportedLimit, passed, 2*refilled) // a single reporting node exceeds nothing
		require.Equal(t, map[int]int{http.StatusTooManyRequests: 4}, statuses(t, s.nodes, "/"+rule, who, 2, 4))
		require.EqualValues(t, reportedLimit, min(reportedLimit, reported(t, s.nodes[0], "weir_reported_units_total", rule, `fate="counted",`)))
	}
}

// regionctl of each release changes the same regions: each waits while the other works, and
// continues if the other has died.
func TestTwoReleasesLock(t *testing.T) {
	before := os.Getenv("WEIR_BEFORE")
	if before == "" {
		return
	}
	programs := map[string]string{"old": testenv.ProgramOf(t, before, "regionctl"), "new": testenv.Program(t, "regionctl")}
	f := startFleet(t, testenv.ConsulOptions{}, 0, "eu-west")
	server := f.regions[0].consul
	document := func(limit int) string {
		file := filepath.Join(t.TempDir(), "rules.yaml")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "rules:\n  - {id: all, key: [client_ip], limit: %d, window: 1m}\n", limit), 0o600))
		return file
	}
	f.apply("rules:\n  - {id: all, key: [client_ip], limit: 1, window: 1m}\n", "--wait", "0")
	limit := 1
	for first, second := range map[string]string{"old": "new", "new": "old"} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s waits for %s, which dies: %v", second, first, dies), func(t *testing.T) {
				arrived, late := make(chan struct{}), make(chan struct{})
				came := sync.OnceFunc(func() { close(arrived) })
				forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: server.Addr()})
				forward.ErrorLog = log.New(io.Discard, "", 0)
				slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body) // forwarded as it is
					r.Body = io.NopCloser(bytes.NewReader(body))
					if r.Method == http.MethodPut && (strings.HasSuffix(r.URL.Path, "/current") || bytes.Contains(body, []byte(`/current"`))) {
						came()
						select {
						case <-late:
						case <-r.Context().Done():
							return
						}
					}
					forward.ServeHTTP(w, r)
				}))
				defer slow.Close()
				let := sync.OnceFunc(func() { close(late) })
				defer let()
				fleetFile := filepath.Join(t.TempDir(), "fleet.yaml")
				require.NoError(t, os.WriteFile(fleetFile, fmt.Appendf(nil, "regions: [{name: eu-west, consul: {addr: %q}}]\n", slow.Listener.Addr().String()), 0o600))
				start := func(program, by, fleet string) (c *exec.Cmd, said func() string) {
					limit++
					c = exec.Command(programs[program], "rules", "apply", document(limit), "--yes", "--wait", "0", "--by", by, "--fleet", fleet)
					file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
					require.NoError(t, err)
					defer file.Close()
					c.Stderr = file
					require.NoError(t, c.Start())
					return c, func() string {
						text, err := os.ReadFile(file.Name())
						require.NoError(t, err)
						return string(text)
					}
				}
				ana, _ := start(first, "ana", fleetFile)
				select {
				case <-arrived:
				case <-time.After(testenv.Patience):
					require.Fail(t, "does not write")
				}
				if dies {
					require.NoError(t, ana.Process.Kill())
					_ = ana.Wait() // killed
				}
				began := time.Now()
				bob, said := start(second, "bob", f.file)
				require.Eventually(t, func() bool { return strings.Contains(said(), "waiting for ana") }, testenv.Patience, 10*time.Millisecond)
				if dies {
					require.NoError(t, bob.Wait(), said())
					t.Logf("done after %s", time.Since(began).Round(100*time.Millisecond))
					return
				}
				let()
				require.NoError(t, ana.Wait())
				require.Error(t, bob.Wait())
				require.Equal(t, term.StatusConflict, bob.ProcessState.ExitCode(), said())
			})
		}
	}
}
