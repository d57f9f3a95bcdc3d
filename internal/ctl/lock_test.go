package ctl

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Locks that no script can leave. testdata/fleet/lock*.txtar tests waiting for locks.
func TestLock(t *testing.T) {
	t.Parallel()
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"left":    testLockLeft,
		"ignored": testLockIgnored,
		"stopped": testLockStopped,
	})
}

// locked returns the regions that hold a lock.
func (f *testFleet) locked(t testing.TB, what string) (names []string) {
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

// hold takes the lock of a region's rules, and renews it until release is called.
func (f *testFleet) hold(t testing.TB, name, by string) (release func()) {
	t.Helper()
	c, lock := f.open[name], consul.NewLock(by)
	index, other, err := c.Lock(t.Context(), "rules", lock, 0)
	require.NoError(t, err)
	require.Nil(t, other)
	ctx, cancel := context.WithCancel(t.Context())
	var renewing sync.WaitGroup
	renewing.Go(func() {
		every := time.NewTicker(consul.RenewEvery)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
			if renewed, err := c.Renew(ctx, "rules", lock, index); err == nil {
				index = renewed
			}
		}
	})
	stop := func() { cancel(); renewing.Wait() }
	t.Cleanup(stop)
	return func() {
		stop()
		require.NoError(t, c.Unlock(t.Context(), "rules", lock))
	}
}

// unlock removes the lock from a region that died during the change. It would expire anyway.
func (f *testFleet) unlock(t *testing.T, name string) {
	t.Helper()
	require.Equal(t, []string{name}, f.locked(t, "rules"))
	_, err := f.consuls[name].Client().KV().Delete(f.prefix+"/rules/lock", nil)
	require.NoError(t, err)
}

// Another process holds the lock, and something that is no lock is in its place.
func testLockLeft(t *testing.T, f *testFleet) {
	f.publish(t, rulesOf(1), "eve", f.names...)
	release := f.hold(t, "us-east", "ana\x1b[2J")
	var out, errOut buffer
	p := f.program(strings.NewReader(""), &out, &errOut)
	p.LockWait = 300 * time.Millisecond
	err := run(t.Context(), p, []string{"rules", "apply", write(t, "two.yaml", rulesOf(2)), "--yes", "--fleet", f.file})
	require.Equal(t, term.StatusConflict, term.ExitStatus(err))
	require.ErrorContains(t, err, "nothing was changed: us-east: ana?[2J is changing the rules since ")
	require.ErrorContains(t, err, "if that regionctl has died, its lock is free after 10s")
	require.ErrorContains(t, err, ", and --break-lock does not wait")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
	require.Equal(t, []string{"us-east"}, f.locked(t, "rules"), "its own locks are released")
	release()

	for i, left := range []string{`{"by":"ana"}`, "nonsense", ""} {
		_, err := f.consuls["us-east"].Client().KV().Put(kv(f.prefix+"/rules/lock", left), nil)
		require.NoError(t, err)
		f.good(t, "rules", "apply", write(t, "next.yaml", rulesOf(3+i)), "--yes", "--wait", "0")
		require.Empty(t, f.locked(t, "rules"))
	}
}

// Someone writes a pointer without the lock: the regions differ, and the command says so.
func testLockIgnored(t *testing.T, f *testFleet) {
	f.publish(t, rulesOf(1), "eve", f.names...)
	var theirs consul.Pointer
	through := f.faulty(t, "us-east", atWrite(sync.OnceFunc(func() { theirs = f.publish(t, rulesOf(3), "bob", "us-east") })))
	r := through.run(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--yes", "-o", "json")
	require.Equal(t, term.StatusConflict, r.status)
	report := parse[change.Report](t, r.out)
	require.Equal(t, []rollout.Outcome{rollout.Applied, rollout.Lost}, []rollout.Outcome{report.Regions[0].Result, report.Regions[1].Result})
	require.Contains(t, r.errOut, "the fleet is divided: eu-west has "+report.Version+" and us-east has not:\\nus-east: bob applied "+theirs.Version)
	require.Equal(t, theirs.Version, f.current(t, "us-east"))
	require.Empty(t, f.locked(t, "rules"))
}

// A regionctl is suspended halfway, like a sleeping laptop, and its write to the second region
// is late. Another takes over its locks and reverts its changes; then the first resumes.
func testLockStopped(t *testing.T, f *testFleet) {
	old := f.publish(t, rulesOf(1), "eve", f.names...)
	arrived, late := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(late) })
	defer let()
	came := sync.OnceFunc(func() { close(arrived) })
	through := f.faulty(t, "us-east", atWrite(func() { came(); <-late }))
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
	r := f.good(t, "undo", "rules", "--to", old.Version, "--by", "bob", "--yes", "--wait", "0")
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
