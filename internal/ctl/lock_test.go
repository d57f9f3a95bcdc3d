package ctl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Two changes of the fleet meet after the first has switched one region of two.
func TestLock(t *testing.T) {
	t.Parallel()
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"waits":       testLockWaits,
		"agrees":      testLockAgrees,
		"interrupted": testLockInterrupted,
		"left":        testLockLeft,
		"ignored":     testLockIgnored,
		"broken":      testLockBroken,
		"stopped":     testLockStopped,
		"trial":       testLockTrial,
		"topology":    testLockTopology,
	})
}

// before returns the fleet with one Consul behind a proxy, which calls do before it
// forwards a write of a pointer or the topology.
func (f *testFleet) before(t *testing.T, name string, do func()) *testFleet {
	t.Helper()
	target, err := url.Parse("http://" + f.consuls[name].Addr())
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if writes(r, "/current") || writes(r, "/topology") {
			do()
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	var text strings.Builder
	text.WriteString("regions:\n")
	for _, n := range f.names {
		addr := f.consuls[n].Addr()
		if n == name {
			addr = server.Listener.Addr().String()
		}
		fmt.Fprintf(&text, "  - {name: %s, consul: {addr: %q, prefix: %s}}\n", n, addr, f.prefix)
	}
	through := *f
	through.file = write(t, "through.yaml", text.String())
	return &through
}

// writes reports whether a request to Consul writes a key that ends so.
func writes(r *http.Request, ends string) bool {
	if r.Method != http.MethodPut {
		return false
	}
	if r.URL.Path != "/v1/txn" {
		return strings.HasSuffix(r.URL.Path, ends)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var ops api.TxnOps
	if json.Unmarshal(body, &ops) != nil {
		return false
	}
	return slices.ContainsFunc(ops, func(op *api.TxnOp) bool { return op.KV.Verb == api.KVCAS && strings.HasSuffix(op.KV.Key, ends) })
}

// hold starts a run, and waits until it wants to switch us-east. Then it goes on when let
// is called.
func (f *testFleet) hold(t *testing.T, args ...string) (s *session, let func()) {
	t.Helper()
	arrived, released := make(chan struct{}), make(chan struct{})
	var came, left sync.Once
	through := f.before(t, "us-east", func() {
		came.Do(func() { close(arrived) })
		<-released
	})
	let = func() { left.Do(func() { close(released) }) }
	t.Cleanup(let)
	s = through.converse(t, args...)
	select {
	case <-arrived:
	case <-time.After(patience):
		require.Fail(t, "does not reach us-east", &s.errOut)
	}
	return s, let
}

// locked names the regions that hold a lock.
func (f *testFleet) locked(t *testing.T, what string) (names []string) {
	t.Helper()
	for _, name := range f.names {
		pair, _, err := f.consuls[name].Client().KV().Get(f.prefix+"/"+what+"/lock", nil)
		require.NoError(t, err)
		if pair != nil {
			names = append(names, name)
		}
	}
	return names
}

// unlock removes the lock left in a region that died during the change. It would expire
// anyway.
func (f *testFleet) unlock(t *testing.T, name string) {
	t.Helper()
	require.Equal(t, []string{name}, f.locked(t, "rules"))
	_, err := f.consuls[name].Client().KV().Delete(f.prefix+"/rules/lock", nil)
	require.NoError(t, err)
}

// The second change does nothing, even if it wants what the first one replaces.
func testLockWaits(t *testing.T, f *testFleet) {
	old := f.publish(t, rulesOf(1), "eve", f.names...)
	for i, wanted := range []string{rulesOf(2), rulesOf(1)} {
		ana, let := f.hold(t, "rules", "apply", write(t, "ana.yaml", rulesOf(10+i)), "--by", "ana", "--yes", "--wait", "0")
		require.Equal(t, f.names, f.locked(t, "rules"))
		bob := f.converse(t, "rules", "apply", write(t, "bob.yaml", wanted), "--by", "bob", "--yes", "--wait", "0")
		bob.sees(t, "eu-west: waiting for ana, who is changing the rules; should that regionctl have died, its lock is free after 10s")
		require.Equal(t, old.Version, f.current(t, "us-east"))
		f.good(t, "shedder", "set", "enabled=false", "--yes", "--wait", "0") // another kind of document
		let()
		require.Zero(t, ana.end(t).status)
		r := bob.end(t)
		require.Equal(t, term.StatusConflict, r.status)
		require.Contains(t, r.errOut, "nothing was changed anywhere: ")
		require.Contains(t, r.errOut, ": ana applied "+versionOf(rulesOf(10+i)))
		for _, name := range f.names {
			require.Equal(t, versionOf(rulesOf(10+i)), f.current(t, name))
		}
		require.Empty(t, f.locked(t, "rules"))
		old = f.publish(t, rulesOf(1), "eve", f.names...)
	}
}

// Two pipelines apply the same: the second finds its version active and waits for the
// edges.
func testLockAgrees(t *testing.T, f *testFleet) {
	f.publish(t, rulesOf(1), "eve", f.names...)
	f.edge(t, "us-east", "iad1", "iad1-1")
	file := write(t, "two.yaml", rulesOf(2))
	ana, let := f.hold(t, "rules", "apply", file, "--by", "ana", "-m", "why", "--yes", "--wait", "0")
	bob := f.converse(t, "rules", "apply", file, "--by", "bob", "--yes", "-o", "json")
	bob.sees(t, "waiting for ana")
	let()
	require.Zero(t, ana.end(t).status)
	r := bob.end(t)
	require.Zero(t, r.status, r.errOut)
	report := parse[changeReport](t, r.out)
	require.Equal(t, []rollout.Outcome{rollout.AlreadyThere, rollout.AlreadyThere}, []rollout.Outcome{report.Regions[0].Result, report.Regions[1].Result})
	require.Equal(t, 1, *report.Regions[1].Running)
	for _, name := range f.names {
		changes, _, err := f.rules(name).History(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, []string{"ana", "why"}, []string{changes[0].AppliedBy, changes[0].Message}, name)
	}

	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	ana, let = f.hold(t, "topology", "apply", write(t, "topology.yaml", topologyOf(2)), "--yes")
	bob = f.converse(t, "topology", "apply", write(t, "topology.yaml", topologyOf(2)), "--yes")
	bob.sees(t, "waiting for ")
	let()
	require.Zero(t, ana.end(t).status)
	r = bob.end(t)
	require.Zero(t, r.status, r.errOut)
}

func testLockInterrupted(t *testing.T, f *testFleet) {
	f.publish(t, rulesOf(1), "eve", f.names...)
	ana, let := f.hold(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--by", "ana", "--yes", "--wait", "0")
	bob := f.converse(t, "rules", "rollback", "--to", versionOf(rulesOf(1)), "--yes")
	bob.sees(t, "waiting for ana")
	bob.cancel()
	r := bob.end(t)
	require.Equal(t, term.StatusInterrupted, r.status)
	require.Contains(t, r.errOut, "interrupted; nothing was changed")
	// A run that holds the locks returns them.
	ana.cancel()
	let()
	require.Equal(t, term.StatusInterrupted, ana.end(t).status)
	require.Empty(t, f.locked(t, "rules"))
}

// The program that held the lock was killed.
func testLockLeft(t *testing.T, f *testFleet) {
	f.publish(t, rulesOf(1), "eve", f.names...)
	leave := func(value string) {
		_, err := f.consuls["us-east"].Client().KV().Put(kv(f.prefix+"/rules/lock", value), nil)
		require.NoError(t, err)
	}
	lock := func(until time.Duration) string {
		text, err := json.Marshal(consul.Lock{By: "ana\x1b[2J", Since: time.Now(), Until: time.Now().Add(until)})
		require.NoError(t, err)
		return string(text)
	}
	leave(lock(time.Minute))
	var out, errOut buffer
	p := f.program(strings.NewReader(""), &out, &errOut)
	p.lockWait = 300 * time.Millisecond
	err := p.run(t.Context(), []string{"rules", "apply", write(t, "two.yaml", rulesOf(2)), "--yes", "--fleet", f.file})
	require.Equal(t, term.StatusConflict, term.ExitStatus(err))
	require.ErrorContains(t, err, "nothing was changed: us-east: ana?[2J is changing the rules since ")
	require.ErrorContains(t, err, "of an earlier release, have died, its lock is free at ")
	require.ErrorContains(t, err, ", and --break-lock does not wait")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
	require.Equal(t, []string{"us-east"}, f.locked(t, "rules"), "its own locks are released")

	// The lock expires. One that would last for hours comes from a wrong clock.
	for i, left := range []string{lock(-time.Second), lock(time.Hour), "nonsense", ""} {
		leave(left)
		f.good(t, "rules", "apply", write(t, "next.yaml", rulesOf(3+i)), "--yes", "--wait", "0")
		require.Empty(t, f.locked(t, "rules"))
	}
}

// Somebody writes a pointer without the lock: the fleet is divided, and the command says
// so.
func testLockIgnored(t *testing.T, f *testFleet) {
	f.publish(t, rulesOf(1), "eve", f.names...)
	var theirs consul.Pointer
	through := f.before(t, "us-east", sync.OnceFunc(func() { theirs = f.publish(t, rulesOf(3), "bob", "us-east") }))
	r := through.run(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--yes", "-o", "json")
	require.Equal(t, term.StatusConflict, r.status)
	report := parse[changeReport](t, r.out)
	require.Equal(t, []rollout.Outcome{rollout.Applied, rollout.Lost}, []rollout.Outcome{report.Regions[0].Result, report.Regions[1].Result})
	require.Contains(t, r.errOut, "the fleet is divided: eu-west has "+report.Version+" and us-east has not:\nus-east: bob applied "+theirs.Version)
	require.Equal(t, theirs.Version, f.current(t, "us-east"))
	require.Empty(t, f.locked(t, "rules"))
}

// Somebody breaks the locks of a change that is at work, and takes back what it did: it
// writes nothing more, and says so. The history names both.
func testLockBroken(t *testing.T, f *testFleet) {
	old := f.publish(t, rulesOf(1), "eve", f.names...)
	ana, let := f.hold(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--by", "ana", "--yes", "--wait", "0", "-o", "json")
	r := f.good(t, "rules", "rollback", "--by", "bob", "--yes", "--wait", "0", "--break-lock", "--to", old.Version, "-o", "json")
	require.Contains(t, r.errOut, "warning: eu-west, us-east: broke the lock of ana; if that regionctl is at work, it stops before its next write")
	require.Equal(t, "ana", parse[changeReport](t, r.out).BrokeLockOf)
	let()
	r = ana.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "this was briefly active:\nus-east: the lock of this change is gone: ")
	require.Contains(t, r.errOut, "eu-west: bob applied "+old.Version)
	for _, name := range f.names {
		require.Equal(t, old.Version, f.current(t, name))
	}
	require.Contains(t, f.good(t, "rules", "history").out, "rollback to "+old.Version+" (broke the lock of ana)")
	require.Empty(t, f.locked(t, "rules"))

	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	ana, let = f.hold(t, "topology", "apply", write(t, "topology.yaml", topologyOf(2)), "--yes")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes", "--break-lock")
	let()
	r = ana.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "this was briefly active:\nus-east: the lock of this change is gone: ")
}

// A regionctl is stopped halfway, as a laptop that sleeps, and its write to the second
// region is late. Another one takes its locks over and back what it did; then it wakes up.
func testLockStopped(t *testing.T, f *testFleet) {
	old := f.publish(t, rulesOf(1), "eve", f.names...)
	arrived, late := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(late) })
	defer let()
	came := sync.OnceFunc(func() { close(arrived) })
	through := f.before(t, "us-east", func() { came(); <-late })
	ana := exec.Command(testenv.Program(t, "regionctl"), "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--by", "ana", "--yes", "--wait", "0", "--fleet", through.file)
	var errOut buffer
	ana.Stderr = &errOut
	require.NoError(t, ana.Start())
	ended := make(chan error, 1)
	go func() { ended <- ana.Wait() }()
	defer ana.Process.Kill() //nolint:errcheck // it has ended
	select {
	case <-arrived:
	case <-time.After(patience):
		require.Fail(t, "does not come to us-east", &errOut)
	}
	require.NoError(t, ana.Process.Signal(syscall.SIGSTOP))
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "eu-west"))

	began := time.Now()
	r := f.good(t, "rules", "rollback", "--to", old.Version, "--by", "bob", "--yes", "--wait", "0")
	t.Logf("the rollback took %s", time.Since(began).Round(100*time.Millisecond))
	require.Contains(t, r.errOut, "eu-west: waiting for ana")
	require.Contains(t, r.errOut, "eu-west, us-east: took over the lock of ana, which was not renewed for 10s")

	let()
	require.NoError(t, ana.Process.Signal(syscall.SIGCONT))
	select {
	case err := <-ended:
		require.Error(t, err)
	case <-time.After(patience):
		require.Fail(t, "does not end", &errOut)
	}
	require.Equal(t, term.StatusConflict, ana.ProcessState.ExitCode(), &errOut)
	require.Contains(t, errOut.String(), ": the lock of this change is gone: ")
	require.Contains(t, errOut.String(), "eu-west: bob applied "+old.Version)
	for _, name := range f.names {
		require.Equal(t, old.Version, f.current(t, name))
	}
	require.Empty(t, f.locked(t, "rules"))
}

// A trial is ended while its promotion waits.
func testLockTrial(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(50, 1, 0))
	ana, let := f.hold(t, "rules", "apply", write(t, "same.yaml", rulesOf(9)), "--by", "ana", "--yes", "--wait", "0", "--region", "us-east")
	bob := s.converse(t, s.args("--bake", "500ms", "--yes", "--by", "bob")...)
	bob.sees(t, "us-east: waiting for ana")
	require.NoError(t, f.rules("eu-west").EndCanary(t.Context(), "ams1"))
	ana.cancel()
	_, err := f.consuls["us-east"].Client().KV().Put(kv(f.prefix+"/rules/lock", "gone"), nil)
	require.NoError(t, err)
	r := bob.end(t)
	let()
	ana.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "nothing was changed: canary on ams1: eu-west: somebody else ended it, or began another")
	require.Equal(t, s.old.Version, f.current(t, "eu-west"))
}

func testLockTopology(t *testing.T, f *testFleet) {
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	ana, let := f.hold(t, "topology", "apply", write(t, "topology.yaml", topologyOf(2)), "--yes")
	bob := f.converse(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	bob.sees(t, "eu-west: waiting for ")
	let()
	require.Zero(t, ana.end(t).status)
	r := bob.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "nothing was changed anywhere: us-east: someone else has changed the topology meanwhile")
	require.Contains(t, f.good(t, "topology", "show").out, "203.0.113.2\n")
	require.Empty(t, f.locked(t, "topology"))
}
