package behavior

import (
	"math"
	"time"
)

// tick counts hundredths of a second. It wraps around after 497 days; over half of that,
// later ticks are distinguishable from earlier ones.
type tick uint32

const ticksPerSecond = 100

// since returns the ticks from then to now; negative if then is later.
func (now tick) since(then tick) int32 { return int32(now - then) }

const (
	// The windows in which requests are counted: 10 s, a minute and 15 minutes. They begin with
	// a subject's first request and follow each other without overlap.
	shortTicks  = 10 * ticksPerSecond
	minuteTicks = 60 * ticksPerSecond
	longTicks   = 900 * ticksPerSecond
	// graceTicks allows for requests already on their way when the first one was refused.
	graceTicks = 2 * ticksPerSecond
	// settled is how many windows make a past to compare with.
	settled = 3
)

// subject is everything known about one subject. The fields that eviction reads come first.
type subject struct {
	key     uint64
	seen    tick // the last request
	blocked tick // until then, if the tier refuses
	points  [numSignals]float32
	scored  tick // the time for which points are valid
	tier    uint8
	strikes uint8 // refusals in a row
	refuses bool  // blocked has not passed, or no one has checked since
	windows uint8 // windows averaged in baseline, up to settled
	short   tick  // where the windows began
	minute  tick
	long    tick

	requests uint32  // in this short window
	baseline float32 // requests in earlier short windows with any

	// In this minute.
	total, lacks            uint16
	auth, gone, broken      uint16 // answers 401 and 403, 404, 5xx
	early                   uint16 // limited again before Retry-After
	printCounts             [4]uint16
	routeCounts             [2]uint16
	printHashes             [4]uint32
	routeHashes             [2]uint32
	minuteWalk, longWalk    walk
	minuteRoutes, longRoute routes

	shared  shared  // what to report to other nodes
	answers answers // what some were
	second  uint16  // of the last answer
	retryAt tick    // when Retry-After says to come back
	denied  tick    // when the first ignored refusal occurred

	values [numSignals]uint16 // when the signal last rose
}

// begin initializes a subject, with all windows and times at now.
func (s *subject) begin(key uint64, now tick) {
	*s = subject{key: key, seen: now, scored: now, short: now, minute: now, long: now, retryAt: now, denied: now, blocked: now}
}

// roll restarts the windows that have ended. It reports whether a short one has.
func (s *subject) roll(now tick) bool {
	if now.since(s.long) >= longTicks || s.longWalk.seen >= fullOnes {
		s.long, s.longWalk, s.longRoute = now, walk{}, routes{}
	}
	if now.since(s.minute) >= minuteTicks {
		s.minute, s.total, s.lacks, s.auth, s.gone, s.broken, s.early = now, 0, 0, 0, 0, 0, 0
		s.printCounts, s.routeCounts = [4]uint16{}, [2]uint16{}
		s.minuteWalk, s.minuteRoutes = walk{}, routes{}
	} else if s.minuteWalk.seen >= fullOnes {
		s.minuteWalk, s.minuteRoutes = walk{}, routes{}
	}
	if now.since(s.short) < shortTicks {
		return s.windows == 0 && s.requests == 0
	}
	// Quiet windows do not count: a client that sleeps is not a different client.
	if s.windows == 0 {
		s.baseline = float32(s.requests)
	} else {
		s.baseline += (float32(s.requests) - s.baseline) / 8
	}
	s.windows = min(s.windows+1, settled)
	s.short, s.requests = now, 0
	return true
}

// refusal counts a request that was refused although its subject had been told to wait.
func (s *subject) refusal(p *Policy, e *Event, now tick) {
	if now.since(s.minute) >= minuteTicks {
		s.roll(now)
	}
	if now.since(s.retryAt) >= 0 {
		s.denied = now // it had waited; requests sent along with this one may still arrive
	} else if now.since(s.denied) > graceTicks {
		s.early = saturate(s.early)
	}
	if retryAt := now + tick(min(e.RetryAfter, maxRetryAfter).Seconds()*ticksPerSecond); e.RetryAfter > 0 && retryAt.since(s.retryAt) > 0 {
		s.retryAt = retryAt
	}
	p.denied(s)
}

// denied judges how many requests came too early, if there were at least half as many as
// passed: behind a shared address, well-behaved clients receive a Retry-After while others keep asking.
func (p *Policy) denied(s *subject) {
	if t := &p.Signals[Denials]; int(s.early) >= t.AtLeast && uint32(s.early)*2 >= uint32(s.total) {
		s.rise(p, Denials, float64(s.early), float64(t.AtLeast))
	}
}

// maxRetryAfter bounds how long a Retry-After is remembered.
const maxRetryAfter = 15 * time.Minute

// observe counts a request that reached the origin, and raises the signals whose thresholds
// it reaches. excused says that errors are the origin's, not the subject's.
func (s *subject) observe(p *Policy, e *Event, excused bool) {
	s.requests++
	if s.total == math.MaxUint16 {
		s.halve()
	}
	s.total++
	p.burst(s)
	if e.LacksHeaders {
		s.lacks = saturate(s.lacks)
		p.presence(s)
	}
	prints := count(s.printHashes[:], s.printCounts[:], uint32(e.Fingerprint))
	same := count(s.routeHashes[:], s.routeCounts[:], uint32(e.Route))
	p.repetition(s, prints, same)
	s.minuteRoutes.add(&s.minuteWalk, e.Route, e.Status == 404)
	s.longRoute.add(&s.longWalk, e.Route, e.Status == 404)
	p.scan(s, &s.minuteWalk)
	p.scan(s, &s.longWalk)
	p.failures(s, e.Status, excused)
	switch {
	case !e.Login:
	case e.Status == 401 || e.Status == 403:
		s.answers &^= proven
	case e.Status >= 200 && e.Status < 400:
		s.answers |= proven
	}
}

// halve halves the counts of this minute, so that shares stay correct however many requests
// come.
func (s *subject) halve() {
	for _, n := range [...]*uint16{&s.total, &s.lacks, &s.auth, &s.gone, &s.broken, &s.early} {
		*n /= 2
	}
	for i := range s.printCounts {
		s.printCounts[i] /= 2
	}
	for i := range s.routeCounts {
		s.routeCounts[i] /= 2
	}
}

func (p *Policy) presence(s *subject) {
	if t := &p.Signals[Presence]; int(s.lacks) >= t.AtLeast && float64(s.lacks) >= t.Share*float64(s.total) {
		s.rise(p, Presence, float64(s.lacks), float64(t.AtLeast))
	}
}

// repetition judges how often one fingerprint came, and one route. A route alone is weaker
// evidence than a fingerprint, so it needs twice as many.
func (p *Policy) repetition(s *subject, prints, same uint16) {
	if t := &p.Signals[Repetition]; int(max(prints, same/2)) >= t.AtLeast {
		share := max(t.Share, leastShare) * float64(s.total)
		if int(prints) >= t.AtLeast && float64(prints) >= share {
			s.rise(p, Repetition, float64(prints), float64(t.AtLeast))
		} else if float64(same) >= share {
			s.rise(p, Repetition, float64(same)/2, float64(t.AtLeast))
		}
	}
}

// leastShare is the smallest share of one fingerprint that the counts can detect: with two
// places for routes, any two of them may seem to have had half.
const leastShare = 0.55

func (p *Policy) burst(s *subject) {
	if t := &p.Signals[Burst]; int(s.requests) >= t.AtLeast {
		if threshold := t.burst(s); float64(s.requests) >= threshold {
			s.rise(p, Burst, float64(s.requests), threshold)
		}
	}
}

// burst returns what a subject's short window is compared with.
func (t *Threshold) burst(s *subject) float64 {
	past := float64(s.baseline)
	if s.windows < settled {
		past = max(past, float64(t.AtLeast))
	}
	return max(float64(t.AtLeast), t.Times*past)
}

// scan detects many routes, many of them missing. The same share of requests must have
// missed too, because anyone who stays long enough finds a site's few dead links.
func (p *Policy) scan(s *subject, n *walk) {
	t := &p.Signals[Scan]
	if routes := int(distinctOf[n.seen]); routes >= t.AtLeast && float64(missingOf[n.missing]) >= t.Share*float64(routes) &&
		float64(n.gone) >= t.Share*float64(n.total) {
		s.rise(p, Scan, float64(routes), float64(t.AtLeast))
	}
}

func (p *Policy) failures(s *subject, status int, excused bool) {
	var n *uint16
	switch {
	case status == 401 || status == 403:
		n = &s.auth
	case status == 404:
		n = &s.gone
	case status >= 500 && !excused:
		n = &s.broken
	default:
		return
	}
	*n = saturate(*n)
	p.failed(s, *n)
}

// failed judges how many answers of one kind there were. Their share must be higher than
// chance explains, by two and a half standard deviations for that many answers, unless all
// failed.
func (p *Policy) failed(s *subject, n uint16) {
	if t := &p.Signals[Failures]; int(n) >= t.AtLeast && float64(n) >= min(float64(s.total), t.Share*float64(s.total)+2.5*math.Sqrt(float64(s.total)*t.Share*(1-t.Share))) {
		s.rise(p, Failures, float64(n), float64(t.AtLeast))
	}
}

// rise gives a signal the points that its value is worth, unless more are left of earlier
// ones. All points are valid as of s.scored.
func (s *subject) rise(p *Policy, signal Signal, value, threshold float64) {
	points := float32(p.Signals[signal].Weight * min(value/threshold, maxSeverity))
	if points <= s.points[signal] || points == 0 {
		return
	}
	s.points[signal] = points
	s.values[signal] = uint16(min(value, math.MaxUint16))
	// Cap the sum too, so that a subject that stops soon returns to normal.
	if sum := s.score(); sum > MaxScore {
		for i := range s.points {
			s.points[i] *= MaxScore / sum
		}
	}
}

func (s *subject) score() (sum float32) {
	for _, points := range s.points {
		sum += points
	}
	return sum
}
