package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
)

// edgeOf builds the edge of a commit.
func edgeOf(t *testing.T, commit string) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("sh", "-ec", `git -C ../.. archive --format=tar --output="$0/source.tar" "$1"
mkdir "$0/source"
tar -xf "$0/source.tar" -C "$0/source"
cd "$0/source"
go build -o ../edge ./cmd/edge`, dir, commit)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, "edge")
}

// A node of each release in one region: they count together, by every algorithm. regionctl
// refuses rules that the old node cannot read; if another program publishes them, the old
// node keeps its rules, and the status says so. make compat names the previous release in
// WEIR_BEFORE: other test runs may have no history to take it from.
func TestTwoReleases(t *testing.T) {
	before := os.Getenv("WEIR_BEFORE")
	if before == "" {
		return
	}
	f := startFleet(t, testenv.ConsulOptions{}, 0, "eu-west")
	s := f.regions[0]
	s.budget = generous
	for i, program := range []string{testenv.Program(t, "edge"), edgeOf(t, before)} {
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
	const document = longRules + "  - {id: not, match: {not: {paths: [/ring]}}, key: [client_ip], limit: 5, window: 24h}\n"
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(document), 0o600))
	_, stderr, status := f.regionctl("rules", "apply", file, "--yes")
	require.Equal(t, term.StatusFailed, status)
	require.Contains(t, stderr, "rules[6].match.not needs a node that reads schema 2; eu-west-1 in eu-west reads 1")

	version := s.publish(t, []byte(document))
	eventually(t, 10*time.Second, "one node accepts it, the other refuses it", func() bool {
		took, err := rulesOf(s.nodes[0])
		kept, err2 := rulesOf(old)
		return err == nil && err2 == nil && took.Version == version && kept.Version == first.Version && kept.Refused != nil && kept.Refused.Version == version
	})
	require.Equal(t, map[int]int{http.StatusTooManyRequests: 2}, statuses(t, s.nodes, "/ring", victim, 1, 2))
	stdout, _, status := f.regionctl("rules", "status")
	require.Equal(t, term.StatusPartial, status)
	require.Contains(t, stdout, "eu-west-1 refused "+version)
}
