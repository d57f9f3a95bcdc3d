package testenv

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// EdgeNode is one process of cmd/edge.
type EdgeNode struct {
	Public, Admin string // host:port

	t        testing.TB
	dir, log string
	proc     *process
}

var edgeBinary struct {
	sync.Once
	file string
	err  error
}

// buildEdge builds cmd/edge once for a test binary.
func buildEdge(t testing.TB) string {
	t.Helper()
	b := &edgeBinary
	b.Do(func() {
		dir, err := os.MkdirTemp("", "weir-edge-")
		if err != nil {
			b.err = err
			return
		}
		b.file = filepath.Join(dir, "edge")
		if out, err := exec.Command("go", "build", "-o", b.file, "github.com/weir-edge/weir/cmd/edge").CombinedOutput(); err != nil {
			b.err = fmt.Errorf("go build cmd/edge: %w: %s", err, out)
		}
	})
	if b.err != nil {
		t.Fatalf("testenv: %v", b.err)
	}
	return b.file
}

// Edge starts an edge node in a process of its own and waits until it is ready.
// config is its configuration without listen and rules, rules its rule document.
func Edge(t testing.TB, config, rules string) *EdgeNode {
	t.Helper()
	dir := t.TempDir()
	ports := FreePorts(t, 2)
	n := &EdgeNode{Public: address(ports[0]), Admin: address(ports[1]), t: t, dir: dir, log: filepath.Join(dir, "edge.log")}
	rulesFile, configFile := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "edge.yaml")
	text := fmt.Sprintf("listen: {public: %q, admin: %q}\nrules: {source: file, file: %q}\n%s", n.Public, n.Admin, rulesFile, config)
	for file, content := range map[string]string{rulesFile: rules, configFile: text} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatalf("testenv: %v", err)
		}
	}
	var err error
	if n.proc, err = startProcess(dir, n.log, buildEdge(t), "-config", configFile); err != nil {
		t.Fatalf("testenv: start edge: %v", err)
	}
	t.Cleanup(func() {
		n.proc.kill()
		if t.Failed() {
			t.Logf("edge %s, %s", n.Public, lastLines(n.log, 30))
		}
	})
	err = poll(startLimit, func() error {
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
		t.Fatalf("testenv: edge does not start: %v\n%s", err, lastLines(n.log, 20))
	}
	return n
}

// Kill ends the node as kill -9 does.
func (n *EdgeNode) Kill() { n.proc.kill() }

// Terminate asks the node to stop, as an orchestrator does, and waits until it has.
func (n *EdgeNode) Terminate() {
	n.t.Helper()
	if err := n.proc.signal(syscall.SIGTERM); err != nil {
		n.t.Fatalf("testenv: stop edge: %v", err)
	}
	<-n.proc.exited
}
