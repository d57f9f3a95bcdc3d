package ctl

import (
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// A regionctl is killed (SIGKILL) while it writes the second region's pointer: before Consul
// has it, or after, when the history lacks the change. The same command again completes it.
func TestKilled(t *testing.T) {
	t.Parallel()
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"before": func(t *testing.T, f *testFleet) {
			f.publish(t, rulesOf(1), "eve", f.names...)
			errOut := f.killed(t, false)
			require.Contains(t, errOut, "eu-west, us-east: took over the lock of ana, which was not renewed for 10s")
		},
		"after": func(t *testing.T, f *testFleet) {
			f.publish(t, rulesOf(1), "eve", f.names...)
			f.killed(t, true)
		},
		"while two wait": func(t *testing.T, f *testFleet) {
			f.publish(t, rulesOf(1), "eve", f.names...)
			f.kill(t, false, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--by", "ana", "--yes")
			require.Len(t, f.locked(t, "rules"), len(f.names), "ana's locks are left")
			results := make(chan result, 2)
			for i, by := range []string{"bob", "cid"} {
				args := []string{"rules", "apply", write(t, by+".yaml", rulesOf(3+i)), "--by", by, "--yes", "--wait", "0"}
				go func() { results <- f.run(t, args...) }()
			}
			good := 0
			for range 2 {
				if r := <-results; r.status == 0 {
					good++
				} else {
					require.Contains(t, r.errOut, "nothing was changed", "the slower one learns who was faster")
				}
			}
			require.Positive(t, good)
			version := f.current(t, "eu-west")
			require.Contains(t, []string{versionOf(rulesOf(3)), versionOf(rulesOf(4))}, version)
			require.Equal(t, version, f.current(t, "us-east"), "the fleet is not divided")
			require.Empty(t, f.locked(t, "rules"))
			f.good(t, "audit", "verify")
		},
		"in waves": func(t *testing.T, f *testFleet) {
			old := f.publish(t, rulesOf(1), "eve", f.names...)
			traffic := func(s *stub) { s.traffic = load(100, 2, 0) }
			for _, s := range []*stub{f.edge(t, "eu-west", "ams1", "ams1-1", traffic), f.edge(t, "us-east", "iad1", "iad1-1", traffic)} {
				require.Eventually(t, func() bool { return s.runs() == old.Version }, patience, tick)
			}
			errOut := f.killed(t, false, "--waves", "1,rest", "--soak", "500ms", "--interval", "100ms")
			require.Contains(t, errOut, "wave 1 of 2 has it already, and is watched again")
			require.Contains(t, errOut, "us-east: took over the lock of ana, which was not renewed for 10s")
			require.NotContains(t, errOut, "wave 1 of 2: eu-west")
		},
	})
}

// killed has ana's regionctl killed at its write in us-east, and bob run the same to its end.
func (f *testFleet) killed(t *testing.T, written bool, how ...string) (errOut string) {
	t.Helper()
	next := rulesOf(2)
	args := append([]string{"rules", "apply", write(t, "two.yaml", next), "--by", "ana", "-m", "why", "--yes"}, how...)
	f.kill(t, written, args...)
	require.Equal(t, versionOf(next), f.current(t, "eu-west"))
	require.Equal(t, written, f.current(t, "us-east") == versionOf(next))

	errOut = f.good(t, args...).errOut
	for _, name := range f.names {
		require.Equal(t, versionOf(next), f.current(t, name))
		changes, wrong, err := f.rules(name).History(t.Context(), 0)
		require.NoError(t, err)
		require.Empty(t, wrong)
		require.Len(t, changes, 2, "%s: the change is there once", name)
		require.Equal(t, versionOf(next), changes[0].Version)
		require.Equal(t, versionOf(rulesOf(1)), changes[0].Replaced)
	}
	f.good(t, "audit", "verify")
	f.good(t, "rules", "rollback", "--yes")
	require.Empty(t, f.locked(t, "rules"))
	return errOut
}

// kill runs a command until its write in us-east, which Consul gets or not, and kills it there.
func (f *testFleet) kill(t *testing.T, written bool, args ...string) {
	t.Helper()
	arrived, dead := make(chan struct{}), make(chan struct{})
	came, bury := sync.OnceFunc(func() { close(arrived) }), sync.OnceFunc(func() { close(dead) })
	defer bury()
	through := f.faulty(t, "us-east", func(_ http.ResponseWriter, r *http.Request) bool {
		if !writes(r, "/rules/current") {
			return false
		}
		if written {
			forward(httptest.NewRecorder(), r, f.consuls["us-east"].Addr())
		}
		came()
		<-dead
		panic(http.ErrAbortHandler)
	})
	ana := exec.Command(testenv.Program(t, "regionctl"), append(args, "--fleet", through.file)...)
	var said buffer
	ana.Stderr = &said
	require.NoError(t, ana.Start())
	select {
	case <-arrived:
	case <-time.After(patience):
	}
	require.NoError(t, ana.Process.Kill())
	require.Error(t, ana.Wait(), &said)
	bury()
}
