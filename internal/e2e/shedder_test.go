package e2e

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// shedderState is a node's shedder status.
type shedderState struct {
	Version   string     `json:"version"`
	Source    string     `json:"source"`
	ExpiresAt *time.Time `json:"expires_at"`
	Document  struct {
		Enabled bool `json:"enabled"`
	} `json:"document"`
	Upstreams []struct {
		Classes []struct {
			Name     string `json:"name"`
			InFlight int64  `json:"in_flight"`
		} `json:"classes"`
	} `json:"upstreams"`
}

func sheddingOf(n *testenv.EdgeNode) (shedderState, error) {
	return adminGet[shedderState](n, "/v1/shedder")
}

// inFlight returns how many requests of a class a node has at its origin.
func inFlight(n *testenv.EdgeNode, class string) int64 {
	s, err := sheddingOf(n)
	if err != nil || len(s.Upstreams) == 0 {
		return -1
	}
	for _, c := range s.Upstreams[0].Classes {
		if c.Name == class {
			return c.InFlight
		}
	}
	return -1
}

// report is the output of regionctl shedder set -o json.
type report struct {
	Version   string    `json:"version"`
	AppliedAt time.Time `json:"applied_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Converged bool      `json:"converged"`
	Regions   []struct {
		Region string `json:"region"`
		Result string `json:"result"`
	} `json:"regions"`
}

// set changes shedder settings; a failure fails the test.
func (f *fleet) set(args ...string) report {
	f.t.Helper()
	stdout, stderr, status := f.regionctl(append([]string{"shedder", "set", "--yes", "-o", "json"}, args...)...)
	require.Zero(f.t, status, "%s\n%s", stdout, stderr)
	var r report
	require.NoError(f.t, json.Unmarshal([]byte(stdout), &r))
	require.True(f.t, r.Converged, stdout)
	return r
}

// requireSheddingBy requires that every node of these regions runs a version.
func requireSheddingBy(t *testing.T, version string, regions ...*site) {
	t.Helper()
	for _, s := range regions {
		for i, n := range s.nodes {
			got, err := sheddingOf(n)
			require.NoError(t, err)
			require.Equal(t, version, got.Version, "%s, node %d", s.name, i)
		}
	}
}

// When regionctl reports settings as active, every node decides the next request by them. The
// kill switch admits everything immediately and expires on every node without regionctl or
// Consul.
func TestShedderTunedAtRunTime(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	f := startFleetBefore(t, origin(t, hold), "upstream: {timeout: 5m}\n", testenv.ConsulOptions{}, 2, "eu-west", "us-east", "ap-south")
	f.apply(doc(1_000_000))
	for _, n := range f.nodes() {
		n.WaitReady()
	}
	first := f.set("classes.read.max_in_flight=1", "classes.test.max_in_flight=1")
	requireSheddingBy(t, first.Version, f.regions...)

	// One request fills each node.
	var all sync.WaitGroup
	c := client()
	defer c.CloseIdleConnections()
	ask := func(n *testenv.EdgeNode) {
		all.Go(func() {
			if _, err := policies(n, "/", victim); err != nil { // unlike get, it waits as long as the node
				t.Error(err)
			}
		})
	}
	full := func(n *testenv.EdgeNode) bool {
		status, err := get(c, n.Public, "/", victim)
		return err == nil && status == http.StatusServiceUnavailable
	}
	for _, n := range f.nodes() {
		ask(n)
		eventually(t, testenv.Patience, "one is in flight", func() bool { return inFlight(n, "read") == 1 })
		require.True(t, full(n))
	}

	const lasts = time.Minute // ample for the steps before it expires
	off := f.set("enabled=false", "--for", lasts.String())
	require.Equal(t, off.AppliedAt.Add(lasts), off.ExpiresAt)
	requireSheddingBy(t, off.Version, f.regions...)
	for _, n := range f.nodes() {
		ask(n)
		eventually(t, testenv.Patience, "the next passes", func() bool { return inFlight(n, "read") == 2 })
	}
	for _, s := range f.regions[1:] {
		s.consul.Kill()
	}
	for _, n := range f.nodes() {
		eventually(t, testenv.Patience, "the previous settings return", func() bool {
			s, err := sheddingOf(n)
			return err == nil && s.Version == first.Version && s.Document.Enabled && s.ExpiresAt == nil
		})
		require.True(t, full(n))
	}
	late := time.Since(off.ExpiresAt)
	promised(t, "the previous settings are back, from the end on,", late, 2*time.Second)
	require.GreaterOrEqual(t, late, time.Duration(0), "none was early")
	close(hold)
	all.Wait()
}

// Of two concurrent changes to the settings, one wins everywhere.
func TestShedderSetByTwo(t *testing.T) {
	t.Parallel()
	f := startFleet(t, testenv.ConsulOptions{}, 1, "eu-west", "us-east", "ap-south")
	for _, n := range f.nodes() {
		eventually(t, testenv.Patience, "the admin side answers", func() bool { _, err := sheddingOf(n); return err == nil })
	}
	// Nothing was published before, so the nodes return to their configured settings.
	configured, err := sheddingOf(f.nodes()[0])
	require.NoError(t, err)
	f.set("enabled=false", "--for", "1h")
	stdout, stderr, code := f.regionctl("undo", "shedder", "--yes")
	require.Zero(t, code, "%s\n%s", stdout, stderr)
	requireSheddingBy(t, configured.Version, f.regions...)
	f.set("signals.inflight.high=100")
	for range 3 {
		var all sync.WaitGroup
		var status [2]int
		for i, assignment := range []string{"signals.inflight.high=500", "signals.inflight.high=600"} {
			all.Go(func() {
				_, _, status[i] = f.regionctl("shedder", "set", "--yes", "--wait", "0", assignment)
			})
		}
		all.Wait()
		require.Contains(t, [][2]int{{0, 0}, {0, 4}, {4, 0}}, status)
		versions := map[string]bool{}
		for _, s := range f.regions {
			entry, _, err := s.consul.Client().KV().Get("weir/shedder/current", nil)
			require.NoError(t, err)
			var p struct {
				Version string `json:"version"`
			}
			require.NoError(t, json.Unmarshal(entry.Value, &p))
			versions[p.Version] = true
		}
		require.Len(t, versions, 1, "the fleet is divided")
	}
}

// An unreachable region blocks a change in all regions unless --partial is passed. Repeating
// the command afterwards completes it.
func TestShedderSetInPart(t *testing.T) {
	t.Parallel()
	f := startFleet(t, testenv.ConsulOptions{}, 1, "eu-west", "us-east", "ap-south")
	for _, n := range f.nodes() {
		eventually(t, testenv.Patience, "the admin side answers", func() bool { _, err := sheddingOf(n); return err == nil })
	}
	first := f.set("signals.inflight.high=500")
	away := f.regions[1]
	away.consul.Kill()
	_, stderr, status := f.regionctl("shedder", "set", "enabled=false", "--yes")
	require.Equal(t, 1, status, stderr)
	require.Contains(t, stderr, "nothing was changed, because us-east cannot be reached")
	requireSheddingBy(t, first.Version, f.regions...)

	stdout, stderr, status := f.regionctl("shedder", "set", "enabled=false", "--yes", "--partial", "-o", "json")
	require.Equal(t, 3, status, stderr)
	var r report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	requireSheddingBy(t, r.Version, f.regions[0], f.regions[2])
	requireSheddingBy(t, first.Version, away)

	away.consul.Start()
	eventually(t, testenv.Patience, "the region is back", func() bool {
		_, _, status := f.regionctl("shedder", "show", "--region", away.name)
		return status == 0
	})
	last := f.set("enabled=false")
	require.Equal(t, r.Version, last.Version)
	requireSheddingBy(t, last.Version, f.regions...)
	stdout, stderr, status = f.regionctl("undo", "shedder", "--yes")
	require.Zero(t, status, "%s\n%s", stdout, stderr)
	requireSheddingBy(t, first.Version, f.regions...)
}
