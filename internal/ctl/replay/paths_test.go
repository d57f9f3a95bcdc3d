package replay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each server.paths answers some requests with 400, and rules test must count the same
// ones.
func TestPaths(t *testing.T) {
	log := []string{
		`{"time":"2026-11-20T10:00:00Z","client":"203.0.113.7","path":"/a"}`,
		`{"time":"2026-11-20T10:00:00Z","client":"203.0.113.7","path":"/x/../a"}`, // two readings, which differ
		`{"time":"2026-11-20T10:00:00Z","client":"203.0.113.7","path":"/b//c"}`,   // two readings that agree
	}
	for mode, want := range map[string][]int64{"": {1, 2}, "match_all": {1, 2}, "strict": {2, 1}, "normalized": {0, 3}} {
		set := load(t, "rules: [{id: a, match: {paths: [/a]}, key: [client_ip], limit: 10, window: 1m}]")
		got := run(t, Config{Candidate: set, Paths: mode}, log...).Candidate
		require.Equal(t, want, []int64{got.BadRequests, got.Passed}, mode)
	}
}
