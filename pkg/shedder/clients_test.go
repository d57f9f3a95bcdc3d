package shedder

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The signals leave out the time in which a request waits for its client; the caps do not.
func TestWaitingForAClientIsNotTheOriginsTime(t *testing.T) {
	ends := map[string]struct {
		do     func(*Permit)
		served uint64
	}{
		"done":     {func(*Permit) {}, 0},
		"answered": {(*Permit).Answered, 1},
		"unsent":   {(*Permit).UndoSent, 0},
	}
	for name, end := range ends {
		for _, awaits := range []bool{false, true} {
			s := newShedder(t, small())
			p, ok := s.AdmitFrom(0, 1, 2)
			require.True(t, ok)
			p.AwaitClient(true) // changes nothing: it has not been sent
			require.Zero(t, s.waiting.Load())
			p.Sent()
			require.EqualValues(t, 1, s.waiting.Load())
			for range 3 {
				p.AwaitClient(true)
				p.AwaitClient(true)
				require.Zero(t, s.waiting.Load(), name)
				p.AwaitClient(false)
				p.AwaitClient(false)
				require.EqualValues(t, 1, s.waiting.Load(), name)
			}
			p.AwaitClient(awaits)
			require.EqualValues(t, 1, s.held.Load(), name)
			end.do(&p)
			p.AwaitClient(true) // changes nothing after the end
			p.AwaitClient(false)
			p.Done()
			require.Zero(t, s.waiting.Load(), name)
			require.Zero(t, s.held.Load(), name)
			require.Equal(t, end.served, s.served.Load(), name)
			require.Zero(t, s.clients.all(), name)
		}
	}
}

// One client has a quarter of a class's cap, the next a quarter of the rest, and each at least six.
func TestClientsLeaveRoom(t *testing.T) {
	settings := small()
	for i, most := range []int64{48, 48, 48, 22} {
		settings.Classes[i].MaxInFlight = most
	}
	s := newShedder(t, settings)
	var held []Permit
	fill := func(class int, client uint64) (got int) {
		for {
			p, ok := s.AdmitFrom(class, 1, client)
			if !ok {
				p.Done()
				return got
			}
			held = append(held, p)
			got++
		}
	}
	require.Equal(t, 12, fill(0, 2))
	refused, _ := s.AdmitFrom(0, 1, 2)
	require.Equal(t, Reason{
		Upstream: "origin", Class: "critical", Kind: KindClient, Signal: SignalInFlight, Value: 12, Threshold: 12, Version: "built-in",
	}, refused.Reason())
	require.Equal(t, 6, fill(3, 3), "this class has less room")
	without, ok := s.Admit(0, 1)
	require.True(t, ok)
	without.Done()
	require.Equal(t, 3, fill(0, 3), "of all classes it has nine")
	require.Equal(t, 7, fill(0, 4))
	for client, want := range []int{6, 6, 6, 2} {
		require.Equal(t, want, fill(0, 5+uint64(client)), "six while there is room")
	}
	refused, _ = s.AdmitFrom(0, 1, 20)
	require.Equal(t, KindCap, refused.Reason().Kind)
	for i := range held {
		held[i].Done()
		held[i].Done() // the second call changes nothing
	}
	require.Zero(t, s.clients.all())

	shedding(s, 1)
	_, ok = s.AdmitFrom(3, 1, 2)
	require.False(t, ok, "the level sheds it")
	require.Zero(t, s.clients.all())

	settings.Enabled = false
	require.NoError(t, s.Configure(settings))
	for range 50 {
		_, ok := s.AdmitFrom(3, 1, 2)
		require.True(t, ok, "the kill switch")
	}
}

// Of a large cap, n clients that take all they can get, one after another, leave three quarters to
// the power of n.
func TestWhatGreedyClientsLeave(t *testing.T) {
	settings := small()
	settings.Classes[0].MaxInFlight = 1000
	s := newShedder(t, settings)
	left := 1000.0
	for client := range uint64(10) {
		for ok := true; ok; {
			_, ok = s.AdmitFrom(0, 1, client)
		}
		left *= 0.75
		require.InDelta(t, left, 1000-s.held.Load(), 3, "%d clients", client+1)
	}
}

// all returns how many requests of all clients are counted.
func (c *clients) all() (sum int64) {
	for i := range c {
		for _, n := range c[i].held {
			sum += n
		}
	}
	return sum
}

func TestClientsUnderARace(t *testing.T) {
	s := newShedder(t, small())
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				p, ok := s.AdmitFrom(0, hash(g), uint64(g%2))
				if !ok {
					continue
				}
				p.Sent()
				p.AwaitClient(true)
				if i%2 == 0 {
					p.AwaitClient(false)
				}
				if i%3 == 0 {
					p.Answered()
				}
				p.Done()
			}
		})
	}
	wg.Wait()
	require.Zero(t, s.clients.all())
	require.Zero(t, s.waiting.Load())
	require.Zero(t, s.held.Load())
}

// Slow uploads change neither the estimate of an origin nor what it leaves to others.
func TestSlowUploadsAreNotInTheEstimate(t *testing.T) {
	s := newShedder(t, small())
	for client := range uint64(3) {
		p, ok := s.AdmitFrom(0, 1, client)
		require.True(t, ok)
		defer p.Done()
		p.Sent()
		p.AwaitClient(true)
	}
	for i := range 30 {
		for range 10 {
			p, ok := s.Admit(0, 1)
			require.True(t, ok)
			p.Sent()
			p.Answered()
			p.Done()
		}
		s.Tick(start.Add(time.Duration(i)*Interval), nil)
	}
	status := s.Status()
	require.Positive(t, status.Estimate.Rate)
	require.Zero(t, status.Estimate.RoundTrip())
	require.Zero(t, status.Utilization)
	require.EqualValues(t, 3, s.ticker.begun, "beside a shrunken cap")
}
