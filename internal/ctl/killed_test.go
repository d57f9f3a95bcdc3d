package ctl

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/internal/testenv"
)

// A regionctl is killed (SIGKILL) while it writes the second region's pointer: before Consul
// has it, or after, when the history lacks the change. Repeating the command completes it.
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
					require.Contains(t, r.errOut, "nothing was changed", "the slower one learns of the faster")
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
		"and resumed": func(t *testing.T, f *testFleet) {
			f.abandon(t)
			f.abandoned(t)
			r := f.good(t, "rules", "apply", "--resume", "--yes", "--by", "bob", "--soak", "500ms")
			require.Contains(t, r.errOut, "wave 1 of 2 has it already, and is watched again")
			require.Contains(t, r.out, "; the rollout's document is "+versionOf(rulesOf(2)), "it is not a step back")
			for _, name := range f.names {
				require.Equal(t, versionOf(rulesOf(2)), f.current(t, name))
			}
			changes, _, err := f.rules("us-east").History(t.Context(), 1)
			require.NoError(t, err)
			require.Equal(t, []string{"bob", "why"}, []string{changes[0].AppliedBy, changes[0].Message})
			require.Equal(t, unfinished.Report{}, parse[unfinished.Report](t, f.good(t, "rules", "rollout", "-o", "json").out))
			require.Contains(t, f.refused(t, 4, "rules", "apply", "--resume", "--yes"), "no rollout of the rules is unfinished")
		},
		"and taken back": func(t *testing.T, f *testFleet) {
			f.abandon(t)
			f.abandoned(t)
			f.good(t, "undo", "rules", "--yes")
			for _, name := range f.names {
				require.Equal(t, versionOf(rulesOf(1)), f.current(t, name))
			}
			require.Contains(t, f.good(t, "rules", "rollout").out, "every rollout of the rules is finished")
		},
		// Times in a record may be wrong.
		"by a clock that is ahead": func(t *testing.T, f *testFleet) {
			f.abandon(t)
			f.renew(t, time.Hour)
			require.Equal(t, unfinished.Runs, parse[unfinished.Report](t, f.good(t, "rules", "rollout", "-o", "json").out).Rollout.State)
			r := f.good(t, "rules", "apply", "--resume", "--yes", "--by", "bob", "--soak", "500ms")
			require.Contains(t, r.errOut, "watches for 10s whether the regionctl of ana still runs")
			require.Equal(t, versionOf(rulesOf(2)), f.current(t, "us-east"))
		},
		"by a clock that is behind, but not killed": func(t *testing.T, f *testFleet) {
			f.abandon(t)
			f.renew(t, -time.Hour)
			require.Equal(t, unfinished.Abandoned, parse[unfinished.Report](t, f.good(t, "rules", "rollout", "-o", "json").out).Rollout.State)
			renewed, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				for tick := time.NewTicker(time.Second); ; f.renew(t, -time.Hour) {
					select {
					case <-renewed:
						return
					case <-tick.C:
					}
				}
			}()
			require.Contains(t, f.refused(t, 4, "rules", "apply", "--resume", "--yes"), "ana is rolling out "+versionOf(rulesOf(2))+", and renews the record")
			close(renewed)
			<-ended
			require.Equal(t, versionOf(rulesOf(1)), f.current(t, "us-east"))
		},
		"and overtaken": func(t *testing.T, f *testFleet) {
			f.abandon(t)
			f.publish(t, rulesOf(3), "cid", "us-east")
			f.abandoned(t)
			require.Contains(t, f.good(t, "rules", "rollout").out, "wave 2 of 2: us-east cid applied "+versionOf(rulesOf(3))+" since")
			require.Contains(t, f.refused(t, 4, "rules", "apply", "--resume", "--yes"), "nothing was changed: us-east: cid applied")
			require.Equal(t, versionOf(rulesOf(3)), f.current(t, "us-east"))
			f.good(t, "undo", "rules", "--yes")
			require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
			require.Equal(t, versionOf(rulesOf(3)), f.current(t, "us-east"))
		},
	})
}

// A resumed rollout that fails before it changes anything can be resumed again.
func TestResumedInVain(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.abandon(t)
	f.abandoned(t)
	var broken atomic.Bool
	through := f.faulty(t, "us-east", func(w http.ResponseWriter, r *http.Request) bool {
		if writes(r, "/rollout") {
			broken.Store(true)
		}
		if broken.Load() && strings.HasPrefix(r.URL.Path, "/v1/health/") {
			http.Error(w, "no", http.StatusInternalServerError)
			return true
		}
		return false
	})
	require.Contains(t, through.refused(t, 1, "rules", "apply", "--resume", "--yes"), "nothing was changed")
	u := parse[unfinished.Report](t, f.good(t, "rules", "rollout", "-o", "json").out).Rollout
	require.NotNil(t, u, "the fleet is still divided")
	require.Equal(t, unfinished.Halted, u.State)
	require.Equal(t, []any{unfinished.RegionDone, unfinished.RegionWaits}, []any{u.Waves[0][0].State, u.Waves[1][0].State})
	f.good(t, "undo", "rules", "--yes")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
}

// A region that had the version before the rollout keeps it when the rollout is rolled back.
func TestTakenBackWhereOneHadIt(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "ap-south", "us-east")
	f.publish(t, rulesOf(1), "eve", "ap-south", "us-east")
	f.publish(t, rulesOf(2), "eve", "eu-west")
	for _, s := range []*stub{f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "ap-south", "sin1", "sin1-1"), f.edge(t, "us-east", "iad1", "iad1-1")} {
		require.Eventually(t, func() bool { return s.runs() == f.current(t, s.region) }, patience, tick)
	}
	f.kill(t, false, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--by", "ana", "-m", "why", "--yes", "--waves", "1,1,rest", "--soak", "200ms", "--interval", "100ms", "--min-requests", "0")
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "ap-south"))
	f.abandoned(t)
	f.good(t, "undo", "rules", "--yes")
	for name, version := range map[string]string{"eu-west": rulesOf(2), "ap-south": rulesOf(1), "us-east": rulesOf(1)} {
		require.Equal(t, versionOf(version), f.current(t, name), name)
	}
	require.Contains(t, f.good(t, "rules", "rollout").out, "every rollout of the rules is finished")
}

// Someone else resumed or replaced waves while their regionctl was suspended. It begins no other
// wave, and leaves the record alone.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	old := f.publish(t, rulesOf(1), "eve", f.names...)
	for _, s := range []*stub{f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "us-east", "iad1", "iad1-1")} {
		require.Eventually(t, func() bool { return s.runs() == old.Version }, patience, tick)
	}
	ana, resume := f.stopped(t, " left", "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--by", "ana", "--yes", "--waves", "1,rest", "--soak", "200ms", "--interval", "100ms", "--min-requests", "0")
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "eu-west"))
	for _, name := range f.names {
		require.Eventually(t, func() bool { // unless ana renews it just then
			r, index, err := f.rules(name).Rollout(t.Context())
			require.NoError(t, err)
			r.By, r.BeganAt = "bob", r.BeganAt.Add(time.Second)
			done, err := f.rules(name).SetRollout(t.Context(), *r, index)
			require.NoError(t, err)
			return done
		}, patience, tick)
	}
	resume()
	r := ana.end(t)
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.errOut, "halted after wave 1 of 2: the next wave could not begin: eu-west: bob took this rollout over at ")
	require.Equal(t, old.Version, f.current(t, "us-east"))
	require.Equal(t, "bob", parse[unfinished.Report](t, f.good(t, "rules", "rollout", "-o", "json").out).Rollout.By)
}

// A regionctl is killed during a change of all regions at once. Others see that, and one command
// rolls back what it did, whatever the regions had before that.
func TestUndoAfterAKill(t *testing.T) {
	t.Parallel()
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"not written": func(t *testing.T, f *testFleet) { f.undoneAfter(t, false, versionOf(rulesOf(1))) },
		"written":     func(t *testing.T, f *testFleet) { f.undoneAfter(t, true, versionOf(rulesOf(1))) },
	})
}

func (f *testFleet) undoneAfter(t *testing.T, written bool, want string) {
	t.Helper()
	f.publish(t, rulesOf(3), "eve", "us-east")
	f.publish(t, rulesOf(4), "eve", "eu-west")
	f.publish(t, rulesOf(1), "eve", f.names...)
	f.kill(t, written, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--by", "ana", "-m", "why", "--yes")
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "eu-west"))
	if !written {
		require.Contains(t, f.good(t, "rules", "rollout").out, "eu-west has it\n  us-east has what it had, "+want)
	}
	r := f.good(t, "undo", "--yes", "--by", "bob")
	for _, name := range f.names {
		require.Equal(t, want, f.current(t, name), r.errOut)
	}
	require.Contains(t, f.good(t, "rules", "rollout").out, "every rollout of the rules is finished")
	f.good(t, "audit", "verify")
}

// An undo is killed before all regions have what they get back. The next one completes it, and the
// regions that it reached do not return to what was undone.
func TestUndoAfterAKilledUndo(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	for version := range 2 {
		f.publish(t, rulesOf(1+version), "eve", f.names...)
	}
	require.True(t, f.killWhen(t, "us-east", false, func(r *http.Request) bool { return writes(r, "/rules/current") }, "undo", "rules", "--yes", "--by", "ana"))
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "us-east"))
	r := f.good(t, "undo", "--yes", "--by", "bob")
	for _, name := range f.names {
		require.Equal(t, versionOf(rulesOf(1)), f.current(t, name), r.errOut)
	}
	require.Contains(t, f.good(t, "rules", "rollout").out, "every rollout of the rules is finished")
	f.good(t, "undo", "rules", "--yes") // twice
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "us-east"))
	f.good(t, "audit", "verify")
}

// A canary is killed while it is promoted, in a region that its site is not in. Taking it back ends
// the canary, too.
func TestKilledWhilePromoted(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	old := f.publish(t, rulesOf(1), "eve", f.names...)
	for _, s := range []*stub{f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "us-east", "iad1", "iad1-1")} {
		require.Eventually(t, func() bool { return s.runs() == old.Version }, patience, tick)
	}
	f.kill(t, false, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--by", "ana", "--yes", "--canary", "iad1", "--bake", "200ms", "--interval", "100ms", "--min-requests", "0")
	tries := func() bool {
		p, _, err := f.rules("us-east").Canary(t.Context(), "iad1")
		require.NoError(t, err)
		return p != nil
	}
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "eu-west"))
	require.True(t, tries())
	f.good(t, "undo", "rules", "--yes")
	require.Equal(t, old.Version, f.current(t, "eu-west"))
	require.Equal(t, old.Version, f.current(t, "us-east"))
	require.False(t, tries())
}

// A canary is the last change, although no region has its version yet.
func TestUndoEndsACanaryFirst(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "us-east")
	old := f.publish(t, rulesOf(1), "eve", "us-east")
	f.good(t, "clients", "block", "203.0.113.7", "--yes", "-m", "CASE-7")
	s := f.edge(t, "us-east", "iad1", "iad1-1")
	require.Eventually(t, func() bool { return s.runs() == old.Version }, patience, tick)
	f.kill(t, false, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--by", "ana", "--yes", "--canary", "iad1", "--bake", "200ms", "--interval", "100ms", "--min-requests", "0")
	r := f.good(t, "undo", "--yes")
	p, _, err := f.rules("us-east").Canary(t.Context(), "iad1")
	require.NoError(t, err)
	require.Nil(t, p, r.errOut)
	require.Contains(t, f.good(t, "clients", "list").out, "203.0.113.7")
}

// The canary of a region's first rules is killed. There is nothing to go back to; the next rules
// end it.
func TestKilledBeforeAnyRules(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "us-east")
	f.edge(t, "us-east", "iad1", "iad1-1")
	f.kill(t, false, "rules", "apply", write(t, "one.yaml", rulesOf(1)), "--by", "ana", "--yes", "--canary", "iad1", "--bake", "200ms", "--interval", "100ms", "--min-requests", "0")
	require.Contains(t, f.refused(t, 2, "undo", "rules", "--yes"), "the canary ends by itself, or with the next regionctl rules apply")
	f.good(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--yes")
	p, _, err := f.rules("us-east").Canary(t.Context(), "iad1")
	require.NoError(t, err)
	require.Nil(t, p)
}

// killed kills ana's regionctl at its write in us-east, and lets bob run the same command to
// its end.
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
	f.good(t, "undo", "rules", "--yes")
	require.Empty(t, f.locked(t, "rules"))
	return errOut
}

// kill runs a command until its write in us-east, which Consul gets or not, and kills it there.
func (f *testFleet) kill(t *testing.T, written bool, args ...string) {
	t.Helper()
	require.True(t, f.killWhen(t, "us-east", written, func(r *http.Request) bool { return writes(r, "/"+args[0]+"/current") }, args...))
}

// killWhen kills a command at its first matching request to a region's Consul, which gets it or
// not, unless the command ends before.
func (f *testFleet) killWhen(t *testing.T, region string, written bool, when func(*http.Request) bool, args ...string) (killed bool) {
	t.Helper()
	arrived, dead, sent := make(chan struct{}), make(chan struct{}), make(chan struct{})
	came, bury, forwarded := sync.OnceFunc(func() { close(arrived) }), sync.OnceFunc(func() { close(dead) }), sync.OnceFunc(func() { close(sent) })
	defer bury()
	through := f.faulty(t, region, func(_ http.ResponseWriter, r *http.Request) bool {
		if !when(r) {
			return false
		}
		body, err := io.ReadAll(r.Body)
		came()
		<-dead
		if written && err == nil { // now, because a slow Consul would have the command give up instead
			r = r.WithContext(context.WithoutCancel(r.Context()))
			r.Body = io.NopCloser(bytes.NewReader(body))
			forward(httptest.NewRecorder(), r, f.consuls[region].Addr())
		}
		forwarded()
		panic(http.ErrAbortHandler)
	})
	ana := exec.Command(testenv.Program(t, "regionctl"), append(args, "--fleet", through.file)...)
	var said buffer
	ana.Stderr = &said
	require.NoError(t, ana.Start())
	ended := make(chan error, 1)
	go func() { ended <- ana.Wait() }()
	select {
	case <-arrived:
	case err := <-ended:
		require.NoError(t, err, &said)
		return false
	}
	require.NoError(t, ana.Process.Kill())
	require.Error(t, <-ended, &said)
	bury()
	<-sent
	return true
}

// abandon kills ana's regionctl in the middle of waves.
func (f *testFleet) abandon(t *testing.T) {
	t.Helper()
	old := f.publish(t, rulesOf(1), "eve", f.names...)
	for _, s := range []*stub{f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "us-east", "iad1", "iad1-1")} {
		require.Eventually(t, func() bool { return s.runs() == old.Version }, patience, tick)
	}
	f.kill(t, false, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--by", "ana", "-m", "why", "--yes", "--waves", "1,rest", "--soak", "200ms", "--interval", "100ms", "--min-requests", "0")
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "eu-west"))
}

// renew dates the record of a rollout by a clock that is ahead of the Consuls'.
func (f *testFleet) renew(t *testing.T, ahead time.Duration) {
	for _, name := range f.names {
		r, index, err := f.rules(name).Rollout(t.Context())
		if assert.NoError(t, err) && assert.NotNil(t, r) {
			r.SeenAt = time.Now().Add(ahead).UTC().Round(0)
			_, err = f.rules(name).SetRollout(t.Context(), *r, index)
			assert.NoError(t, err)
		}
	}
}

// abandoned waits until the record of ana's rollout is no longer renewed.
func (f *testFleet) abandoned(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		u := parse[unfinished.Report](t, f.good(t, "rules", "rollout", "-o", "json").out).Rollout
		require.NotNil(t, u)
		require.Equal(t, []any{"ana", "why", versionOf(rulesOf(2)), unfinished.RegionDone}, []any{u.By, u.Message, u.Version, u.Waves[0][0].State})
		return u.State == unfinished.Abandoned
	}, patience, 200*time.Millisecond)
}
