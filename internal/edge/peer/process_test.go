package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
)

// nodeProcess makes the test binary a node: its value is the node's files and address.
const nodeProcess = "WEIR_PEER_PROCESS"

// serveProcess is such a node.
func serveProcess() {
	words := strings.Split(os.Getenv(nodeProcess), " ")
	certificates, err := certs.NewServer([]certs.Pair{{CertFile: words[0], KeyFile: words[1]}}, words[2])
	if err != nil {
		panic(err)
	}
	self := Node{Region: "us-east", ID: "b"}
	s := NewServer(Config{Self: self, Directory: NewDirectory(self, regions), Certificates: certificates, Log: quietLog(), Refused: func() {}, Panicked: func() {}})
	s.Handle("echo", func(_ context.Context, _ Node, body []byte) ([]byte, error) { return body, nil })
	ln, err := net.Listen("tcp", words[3])
	if err != nil {
		panic(err)
	}
	fmt.Println(ln.Addr())
	panic(s.Serve(ln))
}

// startProcess starts a node as a process, which dies with the test.
func startProcess(t *testing.T, files testenv.TLSFiles, addr string) (*exec.Cmd, Node) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), nodeProcess+"="+strings.Join([]string{files.CertFile, files.KeyFile, files.CAFile, addr}, " "))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return cmd, Node{"us-east", "b", strings.TrimSpace(line)}
}

// A peer that is killed or stopped costs a call its bound at most. After three it counts as
// down, and once it is back it gets calls again.
func TestPeersThatDieOrHang(t *testing.T) {
	authority := testenv.NewAuthority(t)
	one, two := authority.Issue(time.Hour, "spiffe://weir/eu-west/a"), authority.Issue(time.Hour, "spiffe://weir/us-east/b")
	for _, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(how.String(), func(t *testing.T) {
			a := newEnd(t, "eu-west", "a", &one)
			cmd, to := startProcess(t, two, fmt.Sprintf("127.0.0.1:%d", testenv.FreePorts(t, 1)[0]))
			a.Directory.SetNodes("us-east", []Node{to, {"us-east", "c", "127.0.0.1:1"}})
			_, err := a.call(t, to, "x")
			require.NoError(t, err)

			require.NoError(t, cmd.Process.Signal(how))
			if how == syscall.SIGKILL {
				_ = cmd.Wait()
			} else {
				var status syscall.WaitStatus // of the last thread that stopped
				_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
				require.NoError(t, err)
				require.True(t, status.Stopped())
			}
			var bounds []time.Duration
			for deadline := time.Now().Add(patience); a.Directory.Down() == 0; {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				began := time.Now()
				_, err := a.links.Call(ctx, to, "echo", []byte("x"))
				cancel()
				require.ErrorIs(t, err, ErrUnreachable)
				if took := time.Since(began); took > time.Millisecond {
					bounds = append(bounds, took)
				}
				require.True(t, time.Now().Before(deadline), "it counts as down")
			}
			t.Logf("calls returned after %v", bounds)
			require.Equal(t, []Node{{"us-east", "c", "127.0.0.1:1"}}, a.Directory.Nodes("us-east"))

			if how == syscall.SIGKILL {
				startProcess(t, two, to.Addr)
			} else {
				require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
			}
			eventually(t, "a probe finds it", func() bool { return a.Directory.Down() == 0 })
			eventually(t, "it answers", func() bool { _, err := a.call(t, to, "x"); return err == nil })
		})
	}
}

// Links that close while a peer hangs leave nothing behind: goleak looks.
func TestCloseWhileAPeerHangs(t *testing.T) {
	authority := testenv.NewAuthority(t)
	one, two := authority.Issue(time.Hour, "spiffe://weir/eu-west/a"), authority.Issue(time.Hour, "spiffe://weir/us-east/b")
	a := newEnd(t, "eu-west", "a", &one)
	cmd, to := startProcess(t, two, "127.0.0.1:0")
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP)) // before the handshake
	ended := make(chan error, 1)
	go func() {
		err := error(ErrUnreachable)
		for errors.Is(err, ErrUnreachable) { // a pause of the machine may outlast the handshake's time
			_, err = a.links.Call(context.Background(), to, "echo", nil)
		}
		ended <- err
	}()
	k, err := a.links.link(to)
	require.NoError(t, err)
	eventually(t, "the call is under way", func() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.inFlight == 1 })
	a.links.Close()
	require.ErrorIs(t, <-ended, context.Canceled)
	_, err = a.call(t, to, "x")
	require.ErrorIs(t, err, context.Canceled)
}

// The nodes of a region restart one after the other while another region calls them. Calls in
// flight are answered, those to a node that is gone fail as unreachable, and every key has an
// owner all the time.
func TestRollingRestart(t *testing.T) {
	authority := testenv.NewAuthority(t)
	one := authority.Issue(time.Hour, "spiffe://weir/eu-west/a")
	region := authority.Issue(time.Hour, "spiffe://weir/us-east")
	a := newEnd(t, "eu-west", "a", &one)
	var handled, answered atomic.Int64
	nodes := make([]Node, 3)
	run := func(i int, addr string) (stop func()) {
		e := newEnd(t, "us-east", fmt.Sprintf("b%d", i), &region)
		e.server.Handle("count", func(context.Context, Node, []byte) ([]byte, error) {
			handled.Add(1)
			return nil, nil
		})
		ln, err := net.Listen("tcp", addr)
		require.NoError(t, err)
		served := make(chan error, 1)
		go func() { served <- e.server.Serve(ln) }()
		nodes[i] = Node{"us-east", e.Self.ID, ln.Addr().String()}
		return func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			require.True(t, e.server.Drain(ctx))
			require.NoError(t, <-served)
		}
	}
	stops := make([]func(), len(nodes))
	for i, port := range testenv.FreePorts(t, len(nodes)) { // which nobody takes while a node is away
		stops[i] = run(i, fmt.Sprintf("127.0.0.1:%d", port))
	}
	a.Directory.SetNodes("us-east", nodes)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	faults := make(chan error, 1)
	for w := range 4 {
		callers.Go(func() {
			for i := w; ctx.Err() == nil; i++ {
				to, ok := a.Directory.Owner("us-east", fmt.Sprint(i%1000))
				_, err := a.links.Call(context.Background(), to, "count", words(600))
				if err == nil {
					answered.Add(1)
					continue
				}
				if k := resultOf(err.(*CallError)); !ok || k != Unreachable && k != Busy {
					select {
					case faults <- err:
					default:
					}
				}
			}
		})
	}
	for i := range nodes {
		before := answered.Load()
		eventually(t, "calls pass", func() bool { return answered.Load() > before+100 })
		addr := nodes[i].Addr
		stops[i]()
		before = answered.Load()
		eventually(t, "the others answer", func() bool { return answered.Load() > before+100 })
		stops[i] = run(i, addr)
		eventually(t, "it is called again", func() bool { _, err := a.links.Call(context.Background(), nodes[i], "count", nil); return err == nil })
	}
	cancel()
	callers.Wait()
	for _, stop := range stops {
		stop()
	}
	select {
	case err := <-faults:
		require.NoError(t, err)
	default:
	}
	require.GreaterOrEqual(t, handled.Load(), answered.Load())
	t.Logf("%d messages handled, %d of them answered, %d calls found a node gone or resting", handled.Load(), answered.Load(), a.seen.count(Outgoing, Unreachable)+a.seen.count(Outgoing, Busy))
}

// Nodes of other releases: of the versions that both know, the oldest; and none at all.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		own, theirs []int
		requests    int // of the first call, and of the second
		fault       string
	}{
		{[]int{1}, []int{1}, 1, ""},
		{[]int{1, 2}, []int{1, 2}, 1, ""},
		{[]int{1, 2}, []int{1}, 2, ""},
		{[]int{1}, []int{1, 2}, 1, ""},
		{[]int{1, 2, 3}, []int{1, 2}, 2, ""},
		{[]int{2, 3}, []int{1, 2}, 2, ""},
		{[]int{1}, []int{2}, 1, "it speaks versions 2, but this node 1; update the older one"},
	} {
		a, b, _ := pair(t)
		a.links.versions, b.server.versions = c.own, c.theirs
		to := b.start(t)
		reply, err := a.call(t, to, "x")
		if c.fault != "" {
			require.ErrorIs(t, err, ErrVersion)
			require.ErrorContains(t, err, c.fault)
			a.seen.comesTo(t, 1, Outgoing, Version)
			require.Zero(t, b.seen.count(Incoming, OK))
			_, err = a.call(t, to, "x")
			require.ErrorIs(t, err, ErrVersion, "it rests")
			b.seen.all(t, c.requests, c)
			continue
		}
		require.NoError(t, err, "%v", c)
		require.Equal(t, "eu-west/a: x", reply)
		b.seen.comesTo(t, c.requests-1, Incoming, Version)
		_, err = a.call(t, to, "x")
		require.NoError(t, err)
		b.seen.all(t, c.requests+1, c)
		k, err := a.links.link(to)
		require.NoError(t, err)
		if c.requests == 2 {
			older, _ := oldestCommon(c.own, c.theirs)
			require.Equal(t, older, k.speaks(time.Now()))
		}
		require.Equal(t, c.own[len(c.own)-1], k.speaks(time.Now().Add(versionFor+time.Second)), "it may have been updated")
	}
	require.Empty(t, parseVersions("two,-1,"))
	require.Equal(t, []int{1, 2}, parseVersions(" 1, 2,x"))
}
