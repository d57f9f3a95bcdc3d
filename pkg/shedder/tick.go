package shedder

import (
	"slices"
	"time"
)

// ticker turns counters and signals into decisions, sample by sample.
type ticker struct {
	settings   Settings
	state      State
	demand     demand
	capacity   capacity
	candidates []*candidate
	estimate   Estimate
	probing    bool  // what the last sample enforces
	begun      int64 // permits that wait for no answer, or for their clients

	at      time.Time // of the last sample
	counted [MaxClasses]tally
	served  uint64
	wanted  uint64
	wait    wait
	signals []SignalStatus
	winner  *SignalStatus // nil if no signal counts
}

// configure adopts settings. An unchanged law keeps its state, and an unchanged candidate
// its counts, unless the classes changed.
func (t *ticker) configure(settings Settings) {
	same := slices.EqualFunc(settings.Classes, t.settings.Classes, func(a, b Class) bool { return a.Name == b.Name })
	if !same {
		t.demand = demand{}
	}
	if !settings.fillAs(&t.settings) {
		t.capacity = capacity{}
	}
	if !same || !settings.Enabled || settings.Law != t.settings.Law {
		t.state = State{}
	}
	t.settings = settings
	t.probing = t.probing && t.mayProbe()
	before := t.candidates
	t.candidates = nil
	for _, c := range settings.Candidates {
		next := newCandidate(c)
		if i := slices.IndexFunc(before, func(b *candidate) bool { return b.name == c.Name }); i >= 0 && same {
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

// Tick takes a sample and decides what Admit does until the next one. Call it every
// Interval, with the signals that the Shedder does not measure itself.
func (s *Shedder) Tick(now time.Time, shared []Measure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.ticker
	dt := now.Sub(t.at)
	first := t.at.IsZero()
	t.at = now
	tallies, served := s.count(t)
	total := s.wanted.Load()
	wanted := since(total, t.wanted)
	t.wanted = total
	if first || dt <= 0 {
		return
	}
	classes := len(t.settings.Classes)
	waiting := s.waiting.Load()
	t.begun = max(0, s.held.Load()-waiting)
	answered, capped := t.demand.served, t.demand.capped
	t.demand.add(&tallies, served, wanted, t.state.Level, classes, dt)
	if t.probing { // otherwise, more would have been served and less refused
		t.demand.served, t.demand.capped = answered, capped
	}
	measures := append([]Measure{
		{Name: SignalInFlight, Value: float64(waiting), At: now},
		t.wait.measure(now, waiting, served, dt),
	}, shared...)
	rate := float64(served) / dt.Seconds()
	dt = min(dt, longestStep)
	t.estimate = t.estimate.After(&Observation{
		Now: now, For: dt, InFlight: float64(waiting), Answered: float64(served),
		MayProbe: t.mayProbe(),
	})
	t.signals = read(&t.settings, &t.estimate, measures, now)
	t.winner = highest(t.signals)
	// While a probe drains the origin, utilization says nothing about it.
	paused := t.probing
	for _, c := range t.candidates {
		c.limit(&t.estimate, t.begun)
		if !paused {
			c.tickShadow(now, dt, measures, &t.demand, &t.estimate)
		}
	}
	if t.settings.Enabled && !paused {
		t.state = next(t.state, dt, t.winner, &t.demand, &t.settings)
	}
	if !paused {
		t.capacity = t.capacity.next(now, dt, rate, &t.state, t.demand.reading(t.utilization()), &t.settings, &t.estimate)
	}
	_, t.probing = t.estimate.Limit()
	s.verdicts.Store(t.verdicts(s.name))
}

// utilization returns the winner's utilization, or 0 if no signal counts.
func (t *ticker) utilization() float64 {
	if t.winner == nil {
		return 0
	}
	return t.winner.Utilization
}

// mayProbe reports whether an Estimate's probes are enforced. They spare the first class.
func (t *ticker) mayProbe() bool {
	return t.settings.Enabled && t.settings.AutoFrom > 0 && len(t.settings.Classes) > 1
}

// longestStep bounds one step of a law: after a pause, a process must not shed or restore
// as if what it sees now had lasted the whole pause.
const longestStep = 10 * Interval

// next returns the state after dt. Without a signal that counts, nothing is known, so
// nothing is shed.
func next(s State, dt time.Duration, winner *SignalStatus, d *demand, settings *Settings) State {
	if winner == nil {
		return State{}
	}
	return settings.law()(s, dt, d.reading(winner.Utilization), settings)
}

// count returns the counts since the last sample.
func (s *Shedder) count(t *ticker) (tallies [MaxClasses]tally, served uint64) {
	for i := range s.classes {
		c := &s.classes[i]
		capped := c.byCap.Load()
		passed := c.sent.Load() + capped
		total := tally{offered: passed + c.byLevel.Load(), passed: passed, capped: capped}
		before := &t.counted[i]
		tallies[i] = tally{since(total.offered, before.offered), since(total.passed, before.passed), since(total.capped, before.capped)}
		t.counted[i] = total
	}
	all := s.served.Load()
	served = since(all, t.served)
	t.served = all
	return tallies, served
}

// since returns 0 if UndoSent took back more than arrived.
func since(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// verdicts compiles the current state for Admit.
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
		v.shed[i] = asPositions(share(t.state.Level, i, classes))
		v.caps[i] = t.settings.cap(i, &t.estimate, t.begun)
		byLevel, byCap := level, level
		byLevel.Class = class.Name
		byCap.Class, byCap.Kind, byCap.Signal = class.Name, KindCap, SignalInFlight
		if limit, _ := t.estimate.Limit(); t.probing && i > 0 && limit+t.begun < v.caps[i] {
			v.caps[i], byCap.Kind = limit+t.begun, KindProbe
		}
		byCap.Threshold = float64(v.caps[i])
		byClient := byCap
		byClient.Kind = KindClient
		v.byLevel[i], v.byCap[i], v.byClient[i] = &byLevel, &byCap, &byClient
	}
	return v
}

func asPositions(share float64) uint64 { return uint64(share * (1 << 32)) }

// wait estimates how long a request waits for the upstream's answer, by Little's law:
// requests waiting divided by answers per second. Unlike the latency of answered
// requests, it grows while nothing is answered.
type wait struct {
	waiting [waitSamples]float64 // multiplied by seconds
	served  [waitSamples]float64
	seconds [waitSamples]float64
	next    int
	stuck   float64 // seconds without an answer
}

const (
	waitSamples = 10 // one second's worth
	// fewWaiting are too few, on average, to distinguish a slow upstream from a slow
	// request.
	fewWaiting = 5
)

func (w *wait) measure(now time.Time, waiting int64, served uint64, dt time.Duration) Measure {
	seconds := dt.Seconds()
	w.waiting[w.next], w.served[w.next], w.seconds[w.next] = float64(waiting)*seconds, float64(served), seconds
	w.next = (w.next + 1) % waitSamples
	if served > 0 || waiting == 0 {
		w.stuck = 0
	} else {
		w.stuck += seconds
	}
	var area, done, span float64
	for i := range w.waiting {
		area += w.waiting[i]
		done += w.served[i]
		span += w.seconds[i]
	}
	m := Measure{Name: SignalUpstreamWait, Value: max(w.stuck, area/max(done, 1)), At: now}
	if area < fewWaiting*span {
		// Few wait: either answers are quick, or there is too little to judge by.
		if m.Value = area / max(done, 1); done < fewWaiting {
			m.At, m.Problem = time.Time{}, ProblemFew
		}
	}
	return m
}
