package peer

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestCall(t *testing.T) {
	a, b, _ := pair(t)
	to := b.start(t)
	for range 3 {
		reply, err := a.call(t, to, "hello")
		require.NoError(t, err)
		require.Equal(t, "eu-west/a: hello", reply)
	}
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for _, body := range [][]byte{nil, words(100), words(MaxBody - 100), noise} {
		reply, err := a.links.Call(t.Context(), to, "echo", body)
		require.NoError(t, err)
		require.Equal(t, append([]byte("eu-west/a: "), body...), reply)
	}
	a.seen.comesTo(t, 7, Outgoing, OK)
	b.seen.comesTo(t, 7, Incoming, OK)
	x := a.seen.list[5]
	require.Less(t, x.Sent, MaxBody/20, "compressed")
	require.Less(t, x.Received, MaxBody/20)
	require.Positive(t, x.Took)
	require.True(t, slices.ContainsFunc(b.seen.list, func(y Exchange) bool { // in any order
		return y.Received == x.Sent && y.Sent == x.Received
	}))
}

func TestOneConnectionServesAllCalls(t *testing.T) {
	a, b, _ := pair(t)
	to := b.start(t)
	for range 20 {
		var all sync.WaitGroup
		for range maxInFlight {
			all.Go(func() {
				_, err := a.call(t, to, "x")
				assert.NoError(t, err)
			})
		}
		all.Wait()
	}
	eventually(t, "one is left of those that the first calls dialed at once", func() bool {
		all, unknown := b.server.listener.Load().Open()
		return all == 1 && unknown == 0
	})
}

func TestNoMoreInFlightThanTheBound(t *testing.T) {
	a, b, _ := pair(t)
	release := make(chan struct{})
	b.server.Handle("slow", func(ctx context.Context, _ Node, _ []byte) ([]byte, error) {
		<-release
		return nil, nil
	})
	to := b.start(t)
	var all sync.WaitGroup
	for range maxInFlight {
		all.Go(func() {
			_, err := a.links.Call(t.Context(), to, "slow", nil)
			assert.NoError(t, err)
		})
	}
	k, err := a.links.link(to)
	require.NoError(t, err)
	eventually(t, "all are waiting", func() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.inFlight == maxInFlight })
	_, err = a.call(t, to, "one more")
	require.ErrorIs(t, err, ErrBusy)
	close(release)
	all.Wait()
	_, err = a.call(t, to, "again")
	require.NoError(t, err)
}

func TestErrorsAreTyped(t *testing.T) {
	a, b, _ := pair(t)
	b.server.Handle("busy", func(context.Context, Node, []byte) ([]byte, error) { return nil, ErrBusy })
	b.server.Handle("bad", func(context.Context, Node, []byte) ([]byte, error) {
		return nil, errors.New("no such counter\nsecond line")
	})
	b.server.Handle("panic", func(context.Context, Node, []byte) ([]byte, error) { panic("oops") })
	b.server.Handle("long", func(context.Context, Node, []byte) ([]byte, error) { return make([]byte, MaxBody+1), nil })
	to := b.start(t)
	call := func(topic string, body []byte) *CallError {
		_, err := a.links.Call(t.Context(), to, topic, body)
		var failed *CallError
		require.ErrorAs(t, err, &failed)
		return failed
	}
	for topic, why := range map[string]string{
		"bad": "no such counter (422)", "none": "no topic none here (404)", "long": "the answer is longer than 4194304 bytes (500)",
		"panic": "the message caused a panic; see this node's log (500)",
	} {
		failed := call(topic, nil)
		require.ErrorIs(t, failed, ErrRefused, topic)
		require.Equal(t, why, failed.Why)
		require.Equal(t, to, failed.Node)
	}
	require.ErrorIs(t, call("echo", make([]byte, MaxBody+1)), ErrRefused)
	b.seen.comesTo(t, 2, Incoming, Failed)

	failed := call("busy", nil)
	require.ErrorIs(t, failed, ErrBusy)
	require.Equal(t, time.Second, failed.RetryAfter)
	b.seen.comesTo(t, 1, Incoming, Busy)
	k, err := a.links.link(to)
	require.NoError(t, err)
	k.mu.Lock()
	k.until = k.until.Add(time.Hour) // which a pause of the machine does not outlast
	k.mu.Unlock()
	failed = call("echo", nil)
	require.ErrorIs(t, failed, ErrBusy, "it is left in peace")
	b.seen.comesTo(t, 1, Incoming, Busy)
	require.Positive(t, failed.RetryAfter)
}

func TestCanceledCallsSayNothingOfTheNode(t *testing.T) {
	a, b, _ := pair(t)
	b.server.Handle("slow", func(ctx context.Context, _ Node, _ []byte) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	to := b.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		eventually(t, "a call", func() bool {
			b.server.room.mu.Lock()
			defer b.server.room.mu.Unlock()
			return len(b.server.room.node) == 1
		})
		cancel()
	}()
	_, err := a.links.Call(ctx, to, "slow", nil)
	require.ErrorIs(t, err, context.Canceled)
	_, err = a.call(t, to, "next")
	require.NoError(t, err)
	eventually(t, "the handler's context has ended too", func() bool {
		b.server.room.mu.Lock()
		defer b.server.room.mu.Unlock()
		return len(b.server.room.node) == 0
	})
}

func TestPlaintextOnOneMachine(t *testing.T) {
	a, b := newEnd(t, "eu-west", "a", nil), newEnd(t, "us-east", "b", nil)
	reply, err := a.call(t, b.start(t), "hello")
	require.NoError(t, err)
	require.Equal(t, "eu-west/a: hello", reply)
}

func TestTheNodeAtAnAddressMustBeTheOneThatWasMeant(t *testing.T) {
	authority := testenv.NewAuthority(t)
	one := authority.Issue(time.Hour, "spiffe://weir/eu-west/a")
	for _, name := range []string{"spiffe://weir/us-east/b", "spiffe://weir/us-east"} { // of the node, and of its region
		a := newEnd(t, "eu-west", "a", &one)
		two := authority.Issue(time.Hour, name)
		b := newEnd(t, "us-east", "b", &two)
		to := b.start(t)
		_, err := a.call(t, to, "x")
		require.NoError(t, err)
		for _, other := range []Node{{"us-east", "c", to.Addr}, {"ap-south", "b", to.Addr}} {
			_, err := a.call(t, other, "x")
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, "us-east")
		}
	}
}
