package shedder

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Unix(1_000_000_000, 0)

// small returns settings with room for 10 requests of the first class and 7 of the last.
func small() Settings {
	s := Defaults()
	s.Signals = map[string]Knees{SignalInFlight: {0, 10}}
	for i := range s.Classes {
		s.Classes[i].MaxInFlight = int64(10 - i)
	}
	return s
}

func newShedder(t testing.TB, settings Settings) *Shedder {
	t.Helper()
	s, err := New("origin", settings)
	require.NoError(t, err)
	return s
}

// hash spreads small numbers over all places.
func hash(user int) uint64 { return uint64(user+1) * 0xd6e8feb86659fd93 }

// shedding sets a Shedder's level as its law would.
func shedding(s *Shedder, level float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ticker.state.Level = level
	s.verdicts.Store(s.ticker.verdicts(s.name))
}

func TestCapsKeepRoomForHigherClasses(t *testing.T) {
	s := newShedder(t, small())
	var held []Permit
	for range 20 {
		if p, ok := s.Admit(3, 1); ok {
			held = append(held, p)
		}
	}
	require.Len(t, held, 7)
	for class := 2; class >= 0; class-- {
		p, ok := s.Admit(class, 1)
		require.True(t, ok)
		held = append(held, p)
		refused, ok := s.Admit(class, 1)
		require.False(t, ok)
		require.Equal(t, Reason{
			Upstream: "origin", Class: s.ticker.settings.Classes[class].Name, Kind: KindCap, Signal: SignalInFlight,
			Value: float64(10 - class), Threshold: float64(10 - class), Version: "built-in",
		}, refused.Reason())
		refused.Sent() // changes nothing
		refused.Answered()
		refused.Done()
	}
	for i := range held {
		p := &held[i]
		require.Zero(t, p.Reason())
		if i%2 == 0 {
			p.Sent()
		}
		p.Answered()
		p.Done()
		p.Done() // the second call changes nothing
		p.Answered()
	}
	require.Zero(t, s.held.Load())
	require.Zero(t, s.waiting.Load())
	require.EqualValues(t, 5, s.served.Load(), "what was not sent was not served")
	require.EqualValues(t, 13, s.Status().Classes[3].ShedByCap)
}

func TestCapsHoldUnderARace(t *testing.T) {
	s := newShedder(t, small())
	var most, now atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 2000 {
				p, ok := s.Admit(i%4, hash(g))
				if !ok {
					continue
				}
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				now.Add(-1)
				if i%3 > 0 {
					p.Sent()
				}
				if i%3 > 1 {
					p.Answered()
				}
				p.Done()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most.Load(), int64(10))
	require.Zero(t, s.held.Load())
	var sent uint64
	for i, class := range s.Status().Classes {
		require.Zero(t, class.InFlight)
		sent += s.classes[i].sent.Load()
	}
	require.Zero(t, s.waiting.Load())
	require.Positive(t, s.served.Load())
	require.Less(t, s.served.Load(), sent, "some were sent but not answered")
}

func TestClassOutOfRangeIsTheLast(t *testing.T) {
	s := newShedder(t, small())
	for _, class := range []int{-1, 4, 99} {
		p, ok := s.Admit(class, 1)
		require.True(t, ok)
		p.Done()
	}
	require.EqualValues(t, 3, s.Status().Classes[3].Admitted)
}

func TestTheLevelShedsTheLastClassFirst(t *testing.T) {
	s := newShedder(t, Defaults())
	f := func(level float64, want ...float64) {
		t.Helper()
		shedding(s, level)
		for class := range want {
			shed := 0
			for user := range 10_000 {
				p, ok := s.Admit(class, hash(user))
				if p.Done(); !ok {
					require.Equal(t, KindLevel, p.Reason().Kind)
					require.Equal(t, level, p.Reason().Level)
					shed++
				}
			}
			require.InDelta(t, want[class], float64(shed)/10_000, 0.02, "class %d at level %v", class, level)
		}
	}
	f(0, 0, 0, 0, 0)
	f(0.3, 0, 0, 0, 0.3)
	f(1, 0, 0, 0, 1)
	f(1.75, 0, 0, 0.75, 1)
	f(3, 0, 1, 1, 1)
}

func TestUsersAreShedInTurn(t *testing.T) {
	s := newShedder(t, Defaults())
	shedding(s, 0.3)
	whoIsShed := func(now time.Time) map[int]bool {
		shed := map[int]bool{}
		s.Tick(now, nil)
		shedding(s, 0.3)
		for user := range 1000 {
			p, ok := s.Admit(3, hash(user))
			if p.Done(); !ok {
				shed[user] = true
			}
		}
		return shed
	}
	both := func(a, b map[int]bool) (n float64) {
		for user := range a {
			if b[user] {
				n++
			}
		}
		return n / float64(len(a))
	}
	first := whoIsShed(start)
	require.Equal(t, first, whoIsShed(start), "the same users, however often they ask")
	require.InDelta(t, 0.3, float64(len(first))/1000, 0.05)
	require.Greater(t, both(first, whoIsShed(start.Add(time.Second))), 0.9, "they change gradually")
	half := both(first, whoIsShed(start.Add(30*time.Second)))
	require.InDelta(t, 0.65, half, 0.1, "half of them had their turn: 0.5 + 0.5*0.3")
	require.InDelta(t, 0.3, both(first, whoIsShed(start.Add(time.Minute))), 0.1, "no more than chance")
}

func TestKillSwitch(t *testing.T) {
	settings := small()
	settings.Candidates = []Candidate{{"same", small()}}
	settings.Enabled = false
	s := newShedder(t, settings)
	for range 50 {
		p, ok := s.Admit(3, 1)
		require.True(t, ok)
		p.Sent()
	}
	s.Tick(start, nil)
	s.Tick(start.Add(Interval), nil)
	st := s.Status()
	require.Equal(t, 1.0, st.Utilization, "it keeps measuring")
	require.Zero(t, st.Level)
	require.EqualValues(t, 43, st.Candidates[0].Shed[3])
}

func TestConfigure(t *testing.T) {
	s := newShedder(t, small())
	shedding(s, 1.5)
	next := small()
	next.Target = 0.6
	next.Version = "next"
	require.NoError(t, s.Configure(next))
	next.Signals[SignalInFlight] = Knees{0, 1} // belongs to the caller
	st := s.Status()
	require.Equal(t, 1.5, st.Level, "the same law keeps its state")
	require.Equal(t, "next", st.Settings.Version)
	require.Equal(t, Knees{0, 10}, st.Settings.Signals[SignalInFlight])
	p, ok := s.Admit(3, 1)
	require.False(t, ok)
	require.Equal(t, "next", p.Reason().Version)

	bad := small()
	bad.Start = 2
	require.EqualError(t, s.Configure(bad), "start: must be greater than 0 and less than 1 (got 2)")
	require.Equal(t, "next", s.Status().Settings.Version)

	next.Law = LawCap
	require.NoError(t, s.Configure(next))
	require.Zero(t, s.Status().Level)
}

func TestValidate(t *testing.T) {
	f := func(change func(*Settings), want string) {
		t.Helper()
		s := Defaults()
		change(&s)
		require.EqualError(t, s.Validate(), want)
	}
	f(func(s *Settings) { s.Law = "pid" }, `law: must be pi, integrator or cap (got "pid")`)
	f(func(s *Settings) { s.Target = 0.9 }, "target: must be greater than 0 and at most start, 0.8 (got 0.9)")
	f(func(s *Settings) { s.Patience = 0 }, "patience: must be between 100ms and 1h (got 0s)")
	f(func(s *Settings) { s.Rotate = time.Millisecond }, "rotate: must be between 1s and 24h (got 1ms)")
	f(func(s *Settings) { s.Signals["cpu"] = Knees{0.5, 0.5} }, "signals.cpu.high: must be greater than low, 0.5 (got 0.5)")
	f(func(s *Settings) { s.Signals["cpu"] = Knees{-1, 0.5} }, "signals.cpu.low: must be 0 or more (got -1)")
	f(func(s *Settings) { s.Classes = nil }, "classes: must be 1 to 8 (got 0)")
	f(func(s *Settings) { s.Classes[1].Name = "critical" }, `classes[1].name: "critical" is taken; choose another`)
	f(func(s *Settings) { s.Classes[1].MaxInFlight = 0 }, "classes[1].max_in_flight: must be at least 1 (got 0)\nclasses[2].max_in_flight: must be at most that of write, a more important class, 0 (got 800)")
	f(func(s *Settings) {
		c := Defaults()
		c.Start = 0
		s.Candidates = []Candidate{{"c", c}}
	}, "candidates.c.start: must be greater than 0 and less than 1 (got 0)\ncandidates.c.target: must be greater than 0 and at most start, 0 (got 0.7)")
	s := Defaults()
	require.NoError(t, s.Validate())
}

func TestAllocAdmit(t *testing.T) {
	settings := small()
	settings.Candidates = []Candidate{{"a", small()}, {"b", small()}}
	s := newShedder(t, settings)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		p, _ := s.Admit(2, 7)
		p.Sent()
		p.Done()
	}))
	shedding(s, 3)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if p, ok := s.Admit(2, 7); ok || p.Reason().Kind != KindLevel {
			panic("admitted")
		}
	}))
}

func BenchmarkAdmit(b *testing.B) {
	for _, level := range []float64{0, 3} {
		b.Run(fmt.Sprint("level=", level), func(b *testing.B) {
			s := newShedder(b, Defaults())
			shedding(s, level)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for user := 0; pb.Next(); user++ {
					p, _ := s.Admit(2, hash(user))
					p.Done()
				}
			})
		})
	}
}

// A stream is held until its end, but its answer is awaited only until it begins.
func TestStreams(t *testing.T) {
	settings := small()
	settings.Signals[SignalUpstreamWait] = Knees{0.1, 1}
	s := newShedder(t, settings)
	var streams []Permit
	for range 7 {
		p, ok := s.Admit(3, 1)
		require.True(t, ok)
		p.Sent()
		p.Answered()
		streams = append(streams, p)
	}
	for i := range 100 {
		s.Tick(start.Add(time.Duration(i)*Interval), nil)
	}
	st := s.Status()
	require.Zero(t, st.Utilization)
	require.EqualValues(t, 7, st.Classes[3].InFlight)
	_, ok := s.Admit(3, 1)
	require.False(t, ok, "the cap counts it")
	for i := range streams {
		streams[i].Done()
	}
	require.EqualValues(t, 7, s.served.Load())
	require.Zero(t, s.held.Load())
}

func TestUnsentIsNoDemand(t *testing.T) {
	s := newShedder(t, small())
	s.Tick(start, nil)
	for range 30 {
		p, ok := s.Admit(2, 1)
		require.True(t, ok)
		p.Sent()
		p.UndoSent()
		p.UndoSent()
		p.Answered()
		p.Done()
	}
	s.Tick(start.Add(Interval), nil)
	require.Zero(t, s.Status().Demand)
	require.Zero(t, s.waiting.Load())
	require.Zero(t, s.held.Load())
	require.Zero(t, s.served.Load())
}

func TestOtherClassesBeginAnew(t *testing.T) {
	settings := small()
	settings.Candidates = []Candidate{{"same", small()}}
	s := newShedder(t, settings)
	shedding(s, 2)
	s.ticker.candidates[0].seen[3].Store(5)
	require.NoError(t, s.Configure(settings))
	require.Equal(t, 2.0, s.Status().Level)
	require.EqualValues(t, 5, s.Status().Candidates[0].Shed[3])
	next := settings.clone()
	next.Classes[0].Name, next.Candidates[0].Settings.Classes[0].Name = "vip", "vip"
	require.NoError(t, s.Configure(next))
	require.Zero(t, s.Status().Level)
	require.Zero(t, s.Status().Candidates[0].Shed[3])
}

// After a pause of 20 s, the process spreads the arrivals of the pause over those 20 s.
func TestLateSample(t *testing.T) {
	s := newShedder(t, small())
	pass := func(n int) {
		for range n {
			p, _ := s.Admit(2, 1)
			p.Sent()
			p.Answered()
			p.Done()
		}
	}
	now := start
	for range 50 {
		s.Tick(now, nil)
		pass(100)
		now = now.Add(Interval)
	}
	pass(19_900)
	now = now.Add(20 * time.Second)
	s.Tick(now, nil)
	require.InDelta(t, 1000, s.Status().Served, 20)
	require.InDelta(t, 1000, s.Status().Demand, 20)
}

func TestNothingIsShedWithoutASignal(t *testing.T) {
	settings := small()
	settings.Signals = map[string]Knees{"queue": {0, 1}}
	s := newShedder(t, settings)
	s.Tick(start, nil)
	shedding(s, 2)
	s.Tick(start.Add(Interval), nil)
	require.Zero(t, s.Status().Level)
	p, ok := s.Admit(3, 1)
	require.True(t, ok)
	p.Done()
}
