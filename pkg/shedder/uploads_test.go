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
		"done":      {func(*Permit) {}, 0},
		"answered":  {(*Permit).Answered, 1},
		"withdrawn": {(*Permit).Withdraw, 0},
	}
	for name, end := range ends {
		for _, awaits := range []bool{false, true} {
			s := newShedder(t, small())
			p, ok := s.AdmitUpload(0, 1, 2)
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
			require.Empty(t, s.uploads.byClient, name)
		}
	}
}

// One client has at most a quarter of a class's cap of uploads, and at least one.
func TestUploadsOfOneClient(t *testing.T) {
	settings := small() // caps of 10 to 7
	s := newShedder(t, settings)
	first, ok := s.AdmitUpload(0, 1, 2)
	require.True(t, ok)
	second, ok := s.AdmitUpload(0, 1, 2)
	require.True(t, ok)
	refused, ok := s.AdmitUpload(0, 1, 2)
	require.False(t, ok)
	require.Equal(t, Reason{
		Upstream: "origin", Class: "critical", Kind: KindUploads, Signal: SignalInFlight, Value: 2, Threshold: 2, Version: "built-in",
	}, refused.Reason())
	refused.Done()
	other, ok := s.AdmitUpload(0, 1, 3)
	require.True(t, ok)
	other.Done()
	without, ok := s.Admit(0, 1)
	require.True(t, ok)
	without.Done()
	first.Received()
	first.Received() // the second call changes nothing
	third, ok := s.AdmitUpload(-1, 1, 2)
	require.False(t, ok, "a quarter of 7")
	third.Done()
	third, ok = s.AdmitUpload(0, 1, 2)
	require.True(t, ok)
	first.Done()
	second.Done()
	third.Done()
	require.Empty(t, s.uploads.byClient)

	shedding(s, 1)
	_, ok = s.AdmitUpload(3, 1, 2)
	require.False(t, ok, "the level sheds it")
	require.Empty(t, s.uploads.byClient)

	settings.Enabled = false
	require.NoError(t, s.Configure(settings))
	for range 20 {
		_, ok := s.AdmitUpload(3, 1, 2)
		require.True(t, ok, "the kill switch")
	}
}

func TestUploadsUnderARace(t *testing.T) {
	s := newShedder(t, small())
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				p, ok := s.AdmitUpload(0, hash(g), uint64(g%2))
				if !ok {
					continue
				}
				p.Sent()
				p.AwaitClient(true)
				if i%2 == 0 {
					p.AwaitClient(false)
					p.Received()
				}
				if i%3 == 0 {
					p.Answered()
				}
				p.Done()
			}
		})
	}
	wg.Wait()
	require.Empty(t, s.uploads.byClient)
	require.Zero(t, s.waiting.Load())
	require.Zero(t, s.held.Load())
}

// Slow uploads change neither the estimate of an origin nor what it leaves to others.
func TestSlowUploadsAreNotInTheEstimate(t *testing.T) {
	s := newShedder(t, small())
	for client := range uint64(3) {
		p, ok := s.AdmitUpload(0, 1, client)
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
