package shedder

import (
	"slices"
	"time"
)

// ticker turns counters and signals into decisions, sample by sample.
type ticker struct {
	settings   Settings
	sides      [sides]control
	demand     demand
	capacity   capacity
	candidates []*candidate
	estimate   Estimate
	probing    bool  // what the last sample enforces
	begun      int64 // permits that wait for no answer, or for their clients
	share      int64 // of a user, of the waiting permits
	excess     int64 // permits that wait beyond these shares

	at      time.Time // of the last sample
	counted [sides][MaxClasses]tally
	served  uint64
	within  uint64
	wanted  uint64
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
		t.sides[within].state, t.sides[beyond].state = State{}, State{}
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
	total = s.within.Load()
	own := since(total, t.within)
	t.within = total
	if first || dt <= 0 {
		return
	}
	classes := len(t.settings.Classes)
	waiting := s.waiting.Load()
	t.share = max(leastShare, waiting/shareDivisor)
	by := s.users.count(t.share)
	by.within = min(by.within, waiting) // it may have changed meanwhile
	t.begun, t.excess = max(0, s.held.Load()-waiting), waiting-by.within
	answered, capped := t.demand.served, t.demand.capped
	t.demand.add(&tallies, served, wanted, t.levels(), classes, dt)
	if t.probing { // otherwise, more would have been served and less refused
		t.demand.served, t.demand.capped = answered, capped
	}
	crowd, all := &t.sides[within], &t.sides[beyond]
	waits := [sides]Measure{crowd.wait.measure(now, by, own, dt), all.wait.measure(now, seen{waiting, waiting, waiting}, served, dt)}
	rate := float64(served) / dt.Seconds()
	dt = min(dt, longestStep)
	t.estimate = t.estimate.After(&Observation{
		Now: now, For: dt, InFlight: t.inFlight(waiting), Answered: float64(served),
		MayProbe: t.mayProbe(),
	})
	crowd.read(t, by.within, waits[within], shared)
	all.read(t, waiting, waits[beyond], shared)
	site, begun := t.shown(), t.begun
	if site == crowd {
		begun += t.excess
	}
	// While a probe drains the origin, utilization says nothing about it.
	paused := t.probing
	for _, c := range t.candidates {
		c.limit(&t.estimate, begun)
		if !paused {
			c.tick(now, dt, site.measures, &t.demand, &t.estimate)
		}
	}
	if t.settings.Enabled && !paused {
		levels := t.levels()
		for i := range t.sides {
			c := &t.sides[i]
			c.state = next(c.state, dt, c.winner, t.demand.of(side(i), c.utilization(), levels, classes), &t.settings)
		}
	}
	if !paused {
		t.capacity = t.capacity.next(now, dt, rate, &site.state, t.demand.reading(site.utilization()), &t.settings, &t.estimate)
	}
	_, t.probing = t.estimate.Limit()
	s.verdicts.Store(t.verdicts(s.name))
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
func next(s State, dt time.Duration, winner *SignalStatus, r *Reading, settings *Settings) State {
	if winner == nil {
		return State{}
	}
	return settings.law()(s, dt, r, settings)
}

// count returns the counts since the last sample.
func (s *Shedder) count(t *ticker) (tallies [sides][MaxClasses]tally, served uint64) {
	for i := range s.classes {
		for k := range tallies {
			c := &s.classes[i].sides[k]
			capped := c.byCap.Load()
			passed := c.sent.Load() + capped
			total := tally{offered: passed + c.byLevel.Load(), passed: passed, capped: capped}
			before := &t.counted[k][i]
			tallies[k][i] = tally{since(total.offered, before.offered), since(total.passed, before.passed), since(total.capped, before.capped)}
			*before = total
		}
	}
	all := s.served.Load()
	served = since(all, t.served)
	t.served = all
	return tallies, served
}

// since returns 0 if more was withdrawn than arrived.
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
		enabled: t.settings.Enabled, classes: classes, share: int32(max(leastShare, t.share)), rotate: int64(t.settings.Rotate), candidates: t.candidates,
	}
	if !t.at.IsZero() {
		v.nanos = t.at.UnixNano()
	}
	v.sides[within] = t.verdict(name, &t.sides[within], t.begun+t.excess)
	v.sides[beyond] = t.verdict(name, &t.sides[beyond], t.begun)
	for i := range classes {
		byClient := *v.sides[within].byCap[i]
		byClient.Kind = KindClient
		v.byClient[i] = &byClient
	}
	return v
}

// verdict compiles the state of a control. begun are the permits that do not count against an
// estimated knee.
func (t *ticker) verdict(name string, c *control, begun int64) (v verdict) {
	classes := len(t.settings.Classes)
	level := Reason{Upstream: name, Kind: KindLevel, Level: c.state.Level, Version: t.settings.Version}
	if w := c.winner; w != nil {
		level.Signal, level.Value, level.Utilization = w.Name, w.Value, w.Utilization
		level.Threshold = w.Knees.at(t.settings.Start)
	}
	for i, class := range t.settings.Classes {
		v.shed[i] = asPlaces(share(c.state.Level, i, classes))
		v.caps[i] = t.settings.cap(i, &t.estimate, begun)
		byLevel, byCap := level, level
		byLevel.Class = class.Name
		byCap.Class, byCap.Kind, byCap.Signal = class.Name, KindCap, SignalInFlight
		if limit, _ := t.estimate.Limit(); t.probing && i > 0 && limit+begun < v.caps[i] {
			v.caps[i], byCap.Kind = limit+begun, KindProbe
		}
		byCap.Threshold = float64(v.caps[i])
		v.byLevel[i], v.byCap[i] = &byLevel, &byCap
	}
	return v
}

// asPlaces converts a share to a number of places.
func asPlaces(share float64) uint64 { return uint64(share * (1 << 32)) }

// wait estimates how long a request waits for the upstream's answer, by Little's law:
// requests waiting divided by answers per second. Unlike the latency of answered
// requests, it grows while nothing is answered.
type wait struct {
	waiting [waitSamples]float64 // multiplied by seconds
	light   [waitSamples]float64 // likewise
	users   [waitSamples]float64 // likewise
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

func (w *wait) measure(now time.Time, s seen, served uint64, dt time.Duration) Measure {
	seconds := dt.Seconds()
	w.waiting[w.next], w.light[w.next], w.users[w.next] = float64(s.within)*seconds, float64(s.light)*seconds, float64(s.users)*seconds
	w.served[w.next], w.seconds[w.next] = float64(served), seconds
	w.next = (w.next + 1) % waitSamples
	if served > 0 || s.within == 0 {
		w.stuck = 0
	} else {
		w.stuck += seconds
	}
	area, done := sum(&w.waiting), sum(&w.served)
	m := Measure{Name: SignalUpstreamWait, Value: max(w.stuck, area/max(done, 1)), At: now}
	if sum(&w.users) < fewWaiting*sum(&w.seconds) {
		// Few wait: either answers are quick, or there is too little to judge by.
		if m.Value = area / max(done, 1); done < fewWaiting {
			m.At, m.Problem = time.Time{}, ProblemFew
		}
	}
	return m
}
