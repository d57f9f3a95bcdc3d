package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// trial applies a document at one PoP first. What it limits is judged, not how long a busy machine takes.
func (f *fleet) trial(document string) (stdout, stderr string, status int) {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "rules.yaml")
	require.NoError(f.t, os.WriteFile(file, []byte(document), 0o600))
	return f.regionctl("rules", "apply", file, "--yes", "--canary", "eu-west-pop0", "--bake", "2s", "--interval", "200ms", "--min-requests", "20", "--max-p99-factor", "0")
}

// A good candidate is tried at one PoP and then applied everywhere. One that limits more than
// the other PoPs do is withdrawn, and the others never decide by it.
func TestCanary(t *testing.T) {
	t.Parallel()
	f := startFleet(t, testenv.ConsulOptions{}, 2, "eu-west")
	nodes := f.regions[0].nodes
	f.apply(doc(100_000))
	for _, n := range nodes {
		n.WaitReady()
	}
	eventually(t, testenv.Patience, "Consul has seen that they are ready", func() bool {
		passing, _, err := f.regions[0].consul.Client().Health().Service("weir-edge", "", true, nil)
		return err == nil && len(passing) == len(nodes)
	})
	// The versions by which each node has decided, under constant requests.
	var mu sync.Mutex
	seen := make([]map[string]bool, len(nodes))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i, n := range nodes {
		seen[i] = map[string]bool{}
		wg.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for asked := 0; ; asked++ {
				select {
				case <-stop:
					return
				case <-pace.C:
				}
				req, _ := http.NewRequest(http.MethodGet, "http://"+n.Public+"/", nil)
				req.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", asked%5))
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				mu.Lock()
				seen[i][resp.Header.Get("RateLimit-Policy")] = true
				mu.Unlock()
			}
		})
	}
	saw := func(node, limit int) bool {
		mu.Lock()
		defer mu.Unlock()
		return seen[node][policyOf(limit)]
	}

	stdout, stderr, status := f.trial(doc(200_000))
	require.Zero(t, status, "%s\n%s", stdout, stderr)
	require.True(t, saw(0, 200_000))
	for _, n := range nodes {
		r, err := rulesOf(n)
		require.NoError(t, err)
		require.Empty(t, r.Refused)
		got, err := policies(n, "/", victim)
		require.NoError(t, err)
		require.Equal(t, policyOf(200_000), got)
	}

	stdout, stderr, status = f.trial(doc(1))
	require.Equal(t, 1, status, "%s\n%s", stdout, stderr)
	require.Contains(t, stderr, "limited")
	require.True(t, saw(0, 1), "the candidate was never tried")
	require.False(t, saw(1, 1), "another PoP decided by the candidate")
	eventually(t, testenv.Patience, "the PoP is back", func() bool {
		got, err := policies(nodes[0], "/", "203.0.113.200")
		return err == nil && got == policyOf(200_000)
	})
	close(stop)
	wg.Wait()
	t.Log(stderr)
}
