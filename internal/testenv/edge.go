package testenv

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Readiness serves the check by which Consul knows an edge node, at http://addr/readyz. It
// passes until ready is false.
func Readiness(t testing.TB) (addr string, ready *atomic.Bool) {
	t.Helper()
	ready = &atomic.Bool{}
	ready.Store(true)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, `{"status":"no rules"}`, http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), ready
}

// EdgeNode is one process of cmd/edge.
type EdgeNode struct {
	Public, Admin string // host:port

	t        testing.TB
	program  string
	dir, log string
	proc     *process
	island   *Island
}

// Edge starts an edge node as a process and waits until it is ready. config is its
// configuration without listen and rules; rules is its rule document.
func Edge(t testing.TB, config, rules string) *EdgeNode {
	t.Helper()
	return edgeOf(nil, t, Program(t, "edge"), config, rules)
}

func edgeOf(i *Island, t testing.TB, program, config, rules string) *EdgeNode {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules), 0o600))
	n := startEdge(i, t, program, fmt.Sprintf("rules: {source: file, file: %q}\n%s", file, config))
	n.WaitReady()
	return n
}

// StartEdge starts an edge node that may have to wait for its rules. config is its
// configuration without listen; indented lines at its beginning are part of listen.
func StartEdge(t testing.TB, config string) *EdgeNode {
	t.Helper()
	return StartEdgeOf(t, Program(t, "edge"), config)
}

// StartEdgeOf is StartEdge for another program.
func StartEdgeOf(t testing.TB, program, config string) *EdgeNode {
	t.Helper()
	return startEdge(nil, t, program, config)
}

func startEdge(i *Island, t testing.TB, program, config string) *EdgeNode {
	t.Helper()
	dir := t.TempDir()
	ports := FreePorts(t, 2)
	n := &EdgeNode{Public: address(ports[0]), Admin: address(ports[1]), t: t, program: program, dir: dir, log: filepath.Join(dir, "edge.log"), island: i}
	if i != nil {
		i.cable(i, n.Public, false)
		i.cable(i, n.Admin, false)
	}
	text := fmt.Sprintf("listen:\n  public: %q\n  admin: %q\n%s", n.Public, n.Admin, config)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(text), 0o600))
	t.Cleanup(func() {
		n.proc.kill()
		if t.Failed() {
			t.Logf("edge %s, %s", n.Public, lastLines(n.log, 30))
		}
	})
	n.Start()
	return n
}

// Start starts the node, again after Kill or Terminate.
func (n *EdgeNode) Start() {
	n.t.Helper()
	var err error
	n.proc, err = n.island.startProcess(n.dir, n.log, n.program, "-config", filepath.Join(n.dir, "edge.yaml"))
	require.NoError(n.t, err, "start edge")
}

// WaitReady waits until /readyz reports that the node may receive traffic.
func (n *EdgeNode) WaitReady() {
	n.t.Helper()
	err := poll(Patience, func() error {
		if n.proc.gone() {
			return errGone
		}
		resp, err := http.Get("http://" + n.Admin + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz says %s", resp.Status)
		}
		return nil
	})
	if err != nil {
		n.t.Fatalf("testenv: edge does not start: %v\n%s", err, lastLines(n.log, 20))
	}
}

// Kill ends the node like kill -9.
func (n *EdgeNode) Kill() { n.proc.kill() }

// Signal sends the node a signal, such as SIGSTOP.
func (n *EdgeNode) Signal(sig syscall.Signal) error { return n.proc.signal(sig) }

func (n *EdgeNode) Pid() int { return n.proc.pid }

// Terminate stops the node like an orchestrator and waits until it has stopped.
func (n *EdgeNode) Terminate() {
	n.t.Helper()
	require.NoError(n.t, n.proc.signal(syscall.SIGTERM), "stop edge")
	<-n.proc.exited
}
