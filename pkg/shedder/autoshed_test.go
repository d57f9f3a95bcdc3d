package shedder

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// estimating is a Shedder with a known estimate, ticked at given times.
type estimating struct {
	*Shedder
	t   *testing.T
	now time.Time
}

// learned returns a Shedder whose settings allow ten times the origin's capacity: 20 in flight
// at full rate, a knee of 80.
func learned(t *testing.T) *estimating {
	settings := Defaults()
	settings.AutoFrom = 10
	settings.Signals = map[string]Knees{SignalInFlight: {0, 800}}
	s := &estimating{newShedder(t, settings), t, start}
	s.Tick(s.now, nil)
	s.ticker.estimate = Estimate{Base: 0.020, Rate: 1000, Found: true, proven: true, inFlight: 56, answered: 1000, seconds: 2, queued: 10, floor: 700}
	return s
}

// hold admits requests of a class and returns the admitted ones.
func (s *estimating) hold(class, n int) (held []*Permit) {
	for i := range n {
		if p, ok := s.Admit(class, hash(i)); ok {
			p.Sent()
			held = append(held, &p)
		}
	}
	return held
}

// tick ends an interval.
func (s *estimating) tick() Status {
	s.now = s.now.Add(Interval)
	s.Tick(s.now, nil)
	return s.Status()
}

func (s *estimating) caps() (caps []int64) {
	for _, c := range s.Status().Classes {
		caps = append(caps, c.MaxInFlight)
	}
	return caps
}

func TestCapsFollowTheEstimate(t *testing.T) {
	s := learned(t)
	st := s.tick()
	require.InDelta(t, 80, st.Signals[0].Knees.High, 2)
	require.Equal(t, 800.0, st.Settings.Signals[SignalInFlight].High, "the settings stay")
	high := st.Signals[0].Knees.High / 800
	for i, limit := range []float64{1000, 900, 800, 700} {
		require.InDelta(t, limit*high, float64(s.caps()[i]), 1)
	}
	require.Len(t, s.hold(3, 1000), int(s.caps()[3]))
}

// Streams are in flight for hours without making the origin busy.
func TestStreamsDoNotCountAgainstTheEstimate(t *testing.T) {
	s := learned(t)
	s.tick()
	before := s.caps()
	streams := s.hold(0, 50)
	for _, p := range streams {
		p.Answered()
	}
	s.tick()
	for i, limit := range s.caps() {
		require.InDelta(t, before[i]+50, limit, 2)
	}
	for range 30 {
		for _, p := range s.hold(0, 90) {
			p.Answered()
		}
		s.tick()
	}
	require.Equal(t, int64(1000), s.caps()[0], "the settings bound everything")
}

func TestAProbeRefusesAllButTheFirstClass(t *testing.T) {
	s := learned(t)
	s.hold(2, 56)
	for range 60 { // until the next slot
		if s.tick(); s.ticker.probing {
			break
		}
	}
	require.True(t, s.ticker.probing)
	p, ok := s.Admit(1, 1)
	require.False(t, ok)
	require.Equal(t, KindProbe, p.Reason().Kind)
	require.Less(t, p.Reason().Threshold, 30.0)
	_, ok = s.Admit(0, 1)
	require.True(t, ok)

	settings := s.Status().Settings
	settings.AutoFrom = 0
	require.NoError(t, s.Configure(settings))
	_, ok = s.Admit(1, 1)
	require.True(t, ok, "without an estimate there are no probes")
}

// A candidate shows the knee that it would have, and refuses nothing for it.
func TestAnEstimateInShadow(t *testing.T) {
	settings := Defaults()
	settings.Signals = map[string]Knees{SignalInFlight: {0, 800}}
	own := settings.clone()
	own.AutoFrom = 10
	settings.Candidates = []Candidate{{"learned", own}}
	s := &estimating{newShedder(t, settings), t, start}
	s.Tick(s.now, nil)
	s.ticker.estimate = learned(t).ticker.estimate
	s.hold(2, 200)
	for range 100 {
		st := s.tick()
		require.False(t, s.ticker.probing)
		require.Equal(t, 800.0, st.Signals[0].Knees.High)
		require.Less(t, st.Candidates[0].Knee, 200.0)
	}
	require.Len(t, s.hold(2, 50), 50)
	require.EqualValues(t, 50, s.Status().Candidates[0].Shed[2])
}
