package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// publish activates a document without regionctl's checks and returns its version.
func (s *site) publish(t *testing.T, document []byte) string {
	t.Helper()
	client, err := consul.Open(consul.Config{Addr: s.consul.Addr()})
	require.NoError(t, err)
	defer client.Close()
	documents := client.Documents("rules")
	_, index, err := documents.Current(t.Context())
	require.NoError(t, err)
	_, err = documents.Put(t.Context(), document)
	require.NoError(t, err)
	p := consul.NewPointer(document, "a mishap", time.Now())
	done, err := documents.Activate(t.Context(), consul.Change{Pointer: p}, index)
	require.NoError(t, err)
	require.True(t, done)
	return p.Version
}

// If an invalid document reaches Consul without regionctl's checks, nodes refuse it with the
// reason and keep the active rules.
func TestBadDocuments(t *testing.T) {
	t.Parallel()
	f := startFleet(t, testenv.ConsulOptions{}, 1, "eu-west")
	n := f.regions[0].nodes[0]
	f.apply(doc(100_000))
	n.WaitReady()
	good, err := rulesOf(n)
	require.NoError(t, err)

	files, err := filepath.Glob("../../pkg/limiter/rules/testdata/bad/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 100)
	step := 1
	if !soak() {
		step = 15 // a node reads two documents per second
	}
	tried := 0
	for i := 0; i < len(files); i += step {
		bad, err := os.ReadFile(files[i])
		require.NoError(t, err)
		if len(bad) == 0 {
			continue // not a document at all, so it cannot be stored
		}
		version := f.regions[0].publish(t, bad)
		var now running
		eventually(t, testenv.Patience, files[i]+" is refused", func() bool {
			now, err = rulesOf(n)
			return err == nil && now.Refused != nil && now.Refused.Version == version
		})
		tried++
		for _, reason := range now.Refused.Errors {
			require.Regexp(t, `^[a-z]\S*.*?: .{10,}`, reason, "%s names no path", files[i])
		}
		require.Equal(t, good.Version, now.Version)
		require.Equal(t, good.Since, now.Since, "the active rules were touched")
		status, text := readyz(t, n)
		require.Equal(t, http.StatusOK, status, text)
		require.Contains(t, text, version)
		require.EqualValues(t, tried, metrics(t, n, "weir_rules_rejected_total")["weir_rules_rejected_total"])
		require.EqualValues(t, 1, metrics(t, n, "weir_rules_stale")["weir_rules_stale"])
	}
	t.Logf("%d documents refused", tried)
	got, err := policies(n, "/", victim)
	require.NoError(t, err)
	require.Equal(t, policyOf(100_000), got)
	f.apply(doc(200_000))
	require.Zero(t, metrics(t, n, "weir_rules_stale")["weir_rules_stale"])
}
