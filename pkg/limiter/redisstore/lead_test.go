package redisstore_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// tap forwards connections to a server. While it is closed, only the first bytes pass of what the
// server sends on each. What the server sends is delayed.
type tap struct {
	addr  string
	delay time.Duration
	mu    sync.Mutex
	open  chan struct{} // closed while the tap is open
}

const someBytes = 7

func newTap(t *testing.T, target string) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &tap{addr: l.Addr().String(), open: make(chan struct{})}
	close(p.open)
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			all.Go(func() { io.Copy(out, in); out.Close() })
			all.Go(func() { p.pass(in, out); in.Close() })
		}
	})
	return p
}

func (p *tap) pass(in, out net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := out.Read(buf)
		if err != nil {
			return
		}
		<-time.After(p.delay)
		some := min(n, someBytes)
		in.Write(buf[:some])
		<-p.gate()
		in.Write(buf[some:n])
	}
}

func (p *tap) gate() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

func (p *tap) shut() (open func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.open = gate
	return func() { close(gate) }
}

// A caller that makes the round trip itself leaves at its budget, even in the middle of an answer.
// The rest of the answer is still heard: the slot that it tells of is given back.
func TestLeaderLeavesInTheMiddleOfAnAnswer(t *testing.T) {
	for name, o := range map[string]testenv.Options{"plain": {}, "TLS": {TLS: true}} {
		t.Run(name, func(t *testing.T) {
			server := testenv.Redis(t, o)
			between := newTap(t, server.Addr)
			s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{between.addr}, Timeout: time.Second, TLS: server.TLSConfig()})
			awaitTopology(t, s)
			counted, slot := check(rule(t, "r fixed_window limit=9 window=744h"), "a", 1), check(rule(t, "c concurrency limit=1 window=1h"), "a", 1)
			slot.Slot = 7
			var d limiter.Decision
			require.Eventually(t, func() bool { // loads the script
				return s.Take(context.Background(), []limiter.Check{peek(counted), peek(slot)}, &d) == nil
			}, testenv.Patience, time.Millisecond)
			open := between.shut()
			require.ErrorIs(t, s.Take(context.Background(), []limiter.Check{counted, slot}, &d), limiter.ErrTimeout)
			open()
			require.Eventually(t, func() bool {
				err := s.Take(context.Background(), []limiter.Check{peek(counted), peek(slot)}, &d)
				return err == nil && d.Results[0].Remaining == 8 && d.Results[1].Remaining == 1
			}, testenv.Patience, time.Millisecond)
		})
	}
}

// Neither a dial, a hung server nor a lost script takes a caller beyond its budget.
func TestLeaderLeavesAtItsBudget(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	front := testenv.Forward(t, server.Addr)
	config := redisstore.Config{Mode: redisstore.Single, Addrs: []string{front.Addr}, Timeout: 100 * time.Millisecond}
	checks := []limiter.Check{check(rule(t, "r fixed_window limit=1000 window=744h"), "a", 1)}
	take := func(s *redisstore.Store) error { return s.Take(context.Background(), checks, &limiter.Decision{}) }

	s := open(t, config)
	awaitTopology(t, s)
	server.Suspend()
	require.ErrorIs(t, take(s), limiter.ErrTimeout) // while the server hangs
	server.Resume()
	works := func() {
		t.Helper()
		require.Eventually(t, func() bool { return take(s) == nil }, testenv.Patience, time.Millisecond)
	}
	works()
	require.NoError(t, front.Lose(100))
	require.ErrorIs(t, take(s), limiter.ErrTimeout)
	require.ErrorIs(t, take(open(t, config)), limiter.ErrTimeout, "no connection opens")
	require.NoError(t, front.Lose(0))
	works()
	require.NoError(t, server.Client().ScriptFlush(t.Context()).Err())
	works()
}

// Where only an answer comes within the budget, and not also what a new connection needs, a stall
// that ends all connections leaves the server reachable.
func TestStallsOnASlowNetworkEnd(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	between := newTap(t, server.Addr)
	between.delay = 120 * time.Millisecond
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{between.addr}, Timeout: 200 * time.Millisecond})
	checks := []limiter.Check{check(rule(t, "r fixed_window limit=1000 window=744h"), "a", 1)}
	take := func() error { return s.Take(context.Background(), checks, &limiter.Decision{}) }
	require.Eventually(t, func() bool { return take() == nil }, testenv.Patience, time.Millisecond)
	open := between.shut()
	for range 3 {
		require.Error(t, take())
	}
	open()
	// A busy machine takes longer than the 80 ms that are left of a budget, but not each time.
	require.Eventually(t, func() bool { return take() == nil }, testenv.Patience, time.Millisecond)
}
