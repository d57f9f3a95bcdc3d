package shedder

import (
	"slices"
	"time"
)

// ticker is what becomes of the counters and signals, sample by sample.
type ticker struct {
	settings   Settings
	state      State
	demand     demand
	candidates []*candidate

	at       time.Time // of the last sample
	counted  [MaxClasses]tally
	served   uint64
	wait     wait
	signals  []SignalStatus
	winner   *SignalStatus
	inflight int64
}

// configure takes settings over. A law that stays keeps its state, as does a candidate
// that stays what it counted.
func (t *ticker) configure(settings Settings) {
	if settings.Law != t.settings.Law || len(settings.Classes) != len(t.settings.Classes) {
		t.state = State{}
	}
	if !settings.Enabled {
		t.state = State{}
	}
	t.settings = settings
	before := t.candidates
	t.candidates = nil
	for _, c := range settings.Candidates {
		next := newCandidate(c)
		if i := slices.IndexFunc(before, func(b *candidate) bool { return b.name == c.Name }); i >= 0 {
			for k := range next.seen {
				next.seen[k].Store(before[i].seen[k].Load())
			}
			if before[i].settings.Law == c.Settings.Law {
				next.state = before[i].state
			}
		}
		t.candidates = append(t.candidates, next)
	}
}

// Tick takes a sample, and decides what Admit does until the next. It is to be called
// every Interval, with the signals that the Shedder does not measure by itself.
func (s *Shedder) Tick(now time.Time, shared []Measure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.ticker
	dt := now.Sub(t.at)
	first := t.at.IsZero()
	t.at = now
	tallies, served := s.count(t)
	t.inflight = s.inflight.Load()
	if first || dt <= 0 {
		return
	}
	// A process that was stopped must not take the pause for a quiet time, nor for a
	// long sample of what it sees now.
	dt = min(dt, 10*Interval)

	classes := len(t.settings.Classes)
	t.demand.add(&tallies, served, t.state.Level, classes, dt)
	measures := append([]Measure{
		{Name: SignalInFlight, Value: float64(t.inflight), At: now},
		{Name: SignalUpstreamWait, Value: t.wait.add(t.inflight, served, dt), At: now},
	}, shared...)
	t.signals = read(&t.settings, measures, now)
	t.winner = highest(t.signals)
	utilization := 0.0
	if t.winner != nil {
		utilization = t.winner.Utilization
	}
	for _, c := range t.candidates {
		c.tick(now, dt, measures, &t.demand)
	}
	if t.settings.Enabled {
		t.state = laws[t.settings.Law](t.state, dt, t.demand.reading(utilization), &t.settings)
	}
	s.verdicts.Store(t.verdicts(s.name))
}

// count returns what was counted since the last sample.
func (s *Shedder) count(t *ticker) (tallies [MaxClasses]tally, served uint64) {
	for i := range s.classes {
		c := &s.classes[i]
		passed := c.admitted.Load() + c.byCap.Load() - c.withdrawn.Load()
		total := tally{offered: passed + c.byLevel.Load(), passed: passed}
		// Counters are read one by one, while they move: a difference may be below 0.
		tallies[i] = tally{since(total.offered, t.counted[i].offered), since(total.passed, t.counted[i].passed)}
		t.counted[i] = total
	}
	all := s.served.Load()
	served = since(all, t.served)
	t.served = all
	return tallies, served
}

func since(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// verdicts are what the present state means for Admit.
func (t *ticker) verdicts(name string) *verdicts {
	classes := len(t.settings.Classes)
	v := &verdicts{
		enabled: t.settings.Enabled, classes: classes, rotate: int64(t.settings.Rotate), candidates: t.candidates,
	}
	if !t.at.IsZero() {
		v.nanos = t.at.UnixNano()
	}
	level := Reason{Upstream: name, Kind: KindLevel, Level: t.state.Level, Version: t.settings.Version}
	if w := t.winner; w != nil {
		level.Signal, level.Value, level.Utilization = w.Name, w.Value, w.Utilization
		level.Threshold = w.Knees.at(t.settings.Start)
	}
	for i, class := range t.settings.Classes {
		v.shed[i] = asPlaces(share(t.state.Level, i, classes))
		v.caps[i] = class.MaxInFlight
		byLevel, byCap := level, level
		byLevel.Class = class.Name
		byCap.Class, byCap.Kind, byCap.Signal = class.Name, KindCap, SignalInFlight
		byCap.Value, byCap.Threshold = float64(class.MaxInFlight), float64(class.MaxInFlight)
		v.byLevel[i], v.byCap[i] = &byLevel, &byCap
	}
	return v
}

// asPlaces is a share of the places that users have.
func asPlaces(share float64) uint64 { return uint64(share * (1 << 32)) }

// wait is how long a request spends in the upstream, by Little's law: those in flight
// over those that finish in a second. Unlike the time that finished requests took, it
// grows while nothing finishes at all.
type wait struct {
	inflight [waitSamples]float64
	served   [waitSamples]float64
	seconds  [waitSamples]float64
	next     int
	stuck    float64 // seconds without one that finished
}

// waitSamples: a second of them.
const waitSamples = 10

func (w *wait) add(inflight int64, served uint64, dt time.Duration) float64 {
	w.inflight[w.next], w.served[w.next], w.seconds[w.next] = float64(inflight)*dt.Seconds(), float64(served), dt.Seconds()
	w.next = (w.next + 1) % waitSamples
	if served > 0 || inflight == 0 {
		w.stuck = 0
	} else {
		w.stuck += dt.Seconds()
	}
	var area, done float64
	for i := range w.inflight {
		area += w.inflight[i]
		done += w.served[i]
	}
	if area == 0 {
		return 0
	}
	return max(w.stuck, area/max(done, 1))
}
