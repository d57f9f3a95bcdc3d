// Package testenv starts real servers for tests and benchmarks: Redis (one server, a
// cluster, or a master watched by sentinels), Consul, and the programs of this module. A
// test that cannot get them fails; it never skips. Everything started dies with its test,
// and with the test binary if that is killed. Linux only.
package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is one running child, in a process group of its own.
type process struct {
	pid    int
	exited chan struct{} // closed once the child is gone and reaped
}

// startProcess runs name in dir, and appends its output to logFile.
//
// The kernel sends Pdeathsig when the *thread* that forked ends, which in Go may be long
// before the program does. So one goroutine holds its thread from the fork until the
// child has been reaped.
func startProcess(dir, logFile, name string, args ...string) (*process, error) {
	return (*Island)(nil).startProcess(dir, logFile, name, args...)
}

// startProcess runs it on the island, or in the test's network if i is nil.
func (i *Island) startProcess(dir, logFile, name string, args ...string) (*process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	// The group lets kill reach the children that Redis forks to save or to sync a
	// replica; they would otherwise outlive it briefly.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}

	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer log.Close()
		err := i.enter()
		defer i.leave()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // these processes end by being killed
			close(p.exited)
		}
	}()
	return p, <-started
}

// signal sends sig to the child and its own children.
func (p *process) signal(sig syscall.Signal) error {
	if p.gone() {
		return os.ErrProcessDone // its pid may belong to another process by now
	}
	return syscall.Kill(-p.pid, sig)
}

// kill ends the child and returns when it is gone.
func (p *process) kill() {
	_ = p.signal(syscall.SIGKILL) // fails only if it is gone
	<-p.exited
}

func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

const pollEvery = 5 * time.Millisecond

// errGone ends a poll early: a process that died will not become ready.
var errGone = errors.New("the process is gone")

// poll calls ready until it returns nil; after limit it returns the last error.
func poll(limit time.Duration, ready func() error) error {
	start := time.Now()
	for {
		err := ready()
		if err == nil || errors.Is(err, errGone) {
			return err
		}
		if time.Since(start) > limit {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
		time.Sleep(pollEvery)
	}
}

// lastLines returns the end of a log file, for the message of a failed start.
func lastLines(logFile string, n int) string {
	text, err := os.ReadFile(logFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return filepath.Base(logFile) + ":\n  " + strings.Join(lines, "\n  ")
}

// Ports are assigned below 32768, where Linux begins to take the local ports of outgoing
// connections: one of those could occupy a port between the moment it is found free and
// the moment a server binds it.
const firstPort, endPort = 10000, 32768

// FreePorts returns n loopback TCP ports that nothing listens on. No other call gets
// them, in this or any other test binary on the machine, until t ends, so a killed server
// can restart on its own port.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, 0, n)
	for tries := 0; len(ports) < n; tries++ {
		if tries > 1000*n {
			t.Fatalf("testenv: found %d of %d free ports in %d-%d", len(ports), n, firstPort, endPort-1)
		}
		port := firstPort + rand.IntN(endPort-firstPort)
		if reserve(t, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// reserve claims a port by binding an abstract Unix socket named after it: the kernel
// arbitrates between test binaries and releases it even after a crash.
func reserve(t testing.TB, port int) bool {
	claim, err := net.Listen("unix", fmt.Sprintf("@weir-testenv-port-%d", port))
	if err != nil {
		return false
	}
	probe, err := net.Listen("tcp", address(port))
	if err != nil {
		claim.Close()
		return false
	}
	probe.Close()
	t.Cleanup(func() { claim.Close() })
	return true
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
