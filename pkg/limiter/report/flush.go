package report

import (
	"context"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// round is one batch of reports, with reusable memory.
type round struct {
	entries []*entry
	reports []limiter.Report
	sent    []sent
	names   []byte
}

// sent is a snapshot of an entry when its report began.
type sent struct {
	start     int64
	requested int64
	forgets   uint32
}

// run reports until the Store is closed.
func (s *Store) run() {
	defer close(s.ended)
	tick := time.NewTicker(limiter.ReportEvery)
	defer tick.Stop()
	next := s.config.Clock() + limiter.ReportEvery
	for {
		select {
		case <-s.stop:
			s.report(false) // entries that requests no longer add to
			return
		case <-tick.C:
			next = s.config.Clock() + limiter.ReportEvery
			s.report(false)
			s.sweep()
		case <-s.wake:
			s.reportUrgent(next)
		}
	}
}

// report makes one round: it collects what has changed, or only what is urgent, sends it,
// and applies the answers.
func (s *Store) report(urgent bool) {
	r := &s.round
	s.collect(r, urgent)
	if len(r.entries) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(time.Second, 4*s.config.Trip))
	from := s.config.Clock()
	s.config.Reporter.Report(ctx, r.reports)
	cancel()
	to := s.config.Clock()
	s.trip = float64((to - from).Microseconds())
	var failed error
	answered := 0
	for i, e := range r.entries {
		sh := s.shard([]byte(e.key))
		sh.Lock()
		s.answer(sh, e, &r.reports[i], &r.sent[i], ((from + to) / 2).Microseconds(), urgent)
		if e.failed >= failedAt {
			failed = r.reports[i].Err
		}
		sh.Unlock()
		if r.reports[i].Err == nil {
			answered++
		}
	}
	if failed != nil {
		s.config.Failed(failed)
	}
	if !urgent {
		s.failures++
	}
	if answered > 0 {
		s.failures = 0
	}
	s.down.Store(s.failures >= failedAt)
	clear(r.entries)
}

// collect takes what each shard has to report. A key that was urgent stays in the list of
// changed ones, and is skipped there if no request has asked for it since.
func (s *Store) collect(r *round, urgent bool) {
	r.entries, r.reports, r.sent, r.names = r.entries[:0], r.reports[:0], r.sent[:0], r.names[:0]
	now := s.config.Clock().Microseconds()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.Lock()
		if urgent {
			for _, e := range sh.urgent {
				r.add(e, now)
			}
		}
		clear(sh.urgent)
		sh.urgent = sh.urgent[:0]
		if !urgent {
			for _, e := range sh.changed {
				e.listed, e.wasUrgent = false, false
				if e.pending != 0 || e.late != 0 || e.requested != 0 {
					r.add(e, now)
				}
			}
			clear(sh.changed)
			sh.changed = sh.changed[:0]
		}
		sh.Unlock()
	}
}

// add includes an entry in this round.
func (r *round) add(e *entry, now int64) {
	e.roll(e.limit, now+e.offset)
	r.entries = append(r.entries, e)
	r.sent = append(r.sent, sent{e.start, e.requested, e.forgets})
	r.reports = append(r.reports, e.begin(r))
}

// begin moves an entry's pending counts into flight.
func (e *entry) begin(r *round) limiter.Report {
	e.flying, e.flyLate = e.flying+e.pending, e.flyLate+e.late
	e.pending, e.late, e.requested = 0, 0, 0
	return e.question(r, e.flying, e.flyLate)
}

// question builds the report that adds units and asks for the counts.
func (e *entry) question(r *round, units, late int64) limiter.Report {
	l := e.limit
	if l.Algorithm == limiter.TokenBucket {
		return limiter.Report{Limit: l, Key: []byte(e.key), Units: units}
	}
	window := l.Window.Microseconds()
	// The names buffer may grow; earlier slices keep the array they were cut from.
	name := func(start int64) []byte {
		from := len(r.names)
		r.names = limiter.AppendWindow(r.names, []byte(e.key), start)
		return r.names[from:len(r.names):len(r.names)]
	}
	q := limiter.Report{Limit: l, Key: name(e.start), Units: units}
	if late != 0 || l.Algorithm == limiter.SlidingWindow && !e.settled {
		q.Earlier, q.Late = name(e.start-window), late
	}
	if (units != 0 || late != 0) && !e.expires {
		// One window longer than needed, because late reports must still find it.
		q.Expire = 2 * l.Window
		if l.Algorithm == limiter.SlidingWindow {
			q.Expire = 3 * l.Window
		}
	}
	return q
}

// answer applies the store's answer. The entry's shard is locked. A single failed urgent
// report does not mean that reports fail: it may follow another one by moments.
func (s *Store) answer(sh *shard, e *entry, q *limiter.Report, was *sent, at int64, urgent bool) {
	if was.forgets != e.forgets { // reset meanwhile; the next answer counts
		return
	}
	if q.Err != nil {
		if !urgent {
			e.failed = min(e.failed+1, failedAt)
		}
		e.unanswered(q.Lost)
		if (e.pending != 0 || e.late != 0) && !e.listed {
			e.listed = true
			sh.changed = append(sh.changed, e)
		}
		return
	}
	e.failed = 0
	e.offset = q.Now - at
	s.offset.Store(e.offset)
	before, known, from := e.count, e.heard, was.start
	switch {
	case e.limit.Algorithm == limiter.TokenBucket:
		drained := e.drained(e.limit, q.Now)
		e.level, e.levelAt, e.flying = q.Level, q.Now, 0
		e.heard = q.Now
		grown := int64(e.level - drained)
		if known == 0 { // earlier knowledge may be stale
			known, grown = q.Now-limiter.ReportEvery.Microseconds(), q.Units
		}
		e.updateRefuseShare(e.limit, grown, q.Units, was.requested, float64(q.Now-known), s.trip)
	case was.start == e.start:
		e.hear(q)
		forgot := known == 0 && from < sh.since+e.offset
		if known < from {
			known, before = from, 0
		}
		e.updateRefuseShare(e.limit, e.count-before, q.Units, was.requested, float64(q.Now-known), s.trip)
		if forgot { // this node may have admitted that itself
			e.gained, e.spanned = 0, 0
		}
	case was.start == e.start-e.limit.Window.Microseconds(): // the window ended meanwhile
		e.before, e.flyLate, e.heard = q.Count, 0, q.Now
	default:
		e.flying, e.flyLate = 0, 0
	}
	e.use.counted.Add(max(0, q.Units+q.Late)) // below 0 if more was taken back
	s.measure(e)
}

// hear takes over the counts of the window.
func (e *entry) hear(q *limiter.Report) {
	e.count, e.flying, e.heard = q.Count, 0, q.Now
	if q.Units != 0 && (q.Expire > 0 || q.Count == q.Units) { // a new counter has none
		e.expires = q.Expire > 0
	}
	if q.Earlier != nil {
		e.before, e.flyLate = q.Before, 0
		// By then, every node has reported what it admitted before the window began.
		e.settled = q.Now-e.start > 4*limiter.ReportEvery.Microseconds()
	}
}

// unanswered ends a failed report: units that may have been counted are treated as counted
// until the next answer; the rest is reported again.
func (e *entry) unanswered(lost bool) {
	if lost {
		e.use.lost.Add(max(0, e.flying+e.flyLate))
		e.count, e.before = e.count+e.flying, e.before+e.flyLate
		e.level += float64(e.flying)
	} else {
		e.pending, e.late = e.pending+e.flying, e.late+e.flyLate
	}
	e.flying, e.flyLate = 0, 0
}

// sweep forgets keys of one shard that no longer matter, advancing to the next shard with
// each call.
func (s *Store) sweep() {
	s.swept++
	sh := &s.shards[s.swept%shardCount]
	now := s.config.Clock().Microseconds()
	sh.Lock()
	defer sh.Unlock()
	for _, e := range sh.entries {
		if !e.listed && now+e.offset >= e.matters() {
			sh.forget(e)
		}
	}
}

// Close reports what is left. Requests admitted later are not reported.
func (s *Store) Close() {
	if !s.closed.Swap(true) {
		close(s.stop)
	}
	<-s.ended
}
