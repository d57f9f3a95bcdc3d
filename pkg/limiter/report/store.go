// Package report lets a node decide from the counts that it last heard plus what it has
// admitted since, so that no request waits for the store, and a key costs the store at most
// one plain command per node and interval.
//
// Every limiter.ReportEvery, the node reports what it has admitted, all keys of a master in
// one round trip, and receives the totals of all nodes. Between two answers nodes do not
// know of each other, so together they may exceed the limit: at most by the demand during
// limiter.ReportDelay. To stay below that, a node that hears of others refuses a fraction
// of the requests as the limit nears (see entry.updateRefuseShare). The excess counts: a bucket
// goes into debt, and a window stays shut until it ends.
//
// A report whose answer is lost is not sent again, because it may have been counted; if it
// was not, its units pass in addition. A report that was certainly not counted goes with
// the next.
package report

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Local applies the rules' failure policies.
type Local interface {
	TakeLocal(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error
	limiter.Returner
	limiter.Resetter
}

// Config configures a Store.
type Config struct {
	// Next decides the checks of other limits.
	Next limiter.FullStore
	// Reporter counts what nodes report.
	Reporter limiter.Reporter
	// Local decides keys whose reports fail.
	Local Local
	// Nodes returns how many nodes share the limits, this one included.
	Nodes func() int
	// Trip is the longest time that a report may take.
	Trip time.Duration
	// Failed, if not nil, receives an error for each round of reports that leaves keys to
	// Local.
	Failed func(error)
	// MaxKeys bounds how many keys are known; 0 means DefaultMaxKeys.
	MaxKeys int
	// Clock returns monotonic time; nil means the system's. Wall is Unix time in
	// microseconds; it determines windows until the store has reported its own time.
	Clock func() time.Duration
	Wall  func() int64
}

// DefaultMaxKeys bounds the keys of a Store unless Config says otherwise. A key takes about
// 300 bytes.
const DefaultMaxKeys = 1_000_000

const shardCount = 64

// Store is a limiter.Store that decides reported limits, and calls the next store for the
// others.
type Store struct {
	config   Config
	perShard int
	seed     maphash.Seed
	shards   [shardCount]shard
	offset   atomic.Int64 // of the store's clock, as last heard from any master
	usages   sync.Map     // *usage by rule
	rests    sync.Pool
	swept    int

	closed atomic.Bool
	wake   chan struct{} // some key is urgent
	stop   chan struct{}
	ended  chan struct{}

	// Owned by the reporting goroutine:
	trip       float64 // how long the last round took, in microseconds
	failures   int     // rounds in a row without an answer
	round      round
	lastUrgent time.Duration // when the last urgent round ended

	down atomic.Bool // enough failures to fail a key; new keys start as failed
}

type shard struct {
	sync.Mutex
	entries map[string]*entry
	since   int64    // when it began, or last forgot a key that mattered; microseconds of Clock
	changed []*entry // to report next
	urgent  []*entry // to report before those (see hurry)
}

var _ limiter.FullStore = (*Store)(nil)

// New starts a Store. Close reports what is left.
func New(c Config) *Store {
	if c.MaxKeys <= 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	if c.Clock == nil {
		born := time.Now()
		c.Clock = func() time.Duration { return time.Since(born) }
	}
	if c.Wall == nil {
		c.Wall = func() int64 { return time.Now().UnixMicro() }
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	s := &Store{
		config: c, perShard: max(1, c.MaxKeys/shardCount), seed: maphash.MakeSeed(),
		rests: sync.Pool{New: newRest},
		wake:  make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	s.offset.Store(c.Wall() - c.Clock().Microseconds())
	for i := range s.shards {
		s.shards[i].entries, s.shards[i].since = map[string]*entry{}, c.Clock().Microseconds()
	}
	go s.run()
	return s
}

// Take decides the checks of reported limits from what this node knows, and lets the next
// store decide the others. If any refuses, what was counted here is taken back.
func (s *Store) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	if !anyReported(checks) {
		return s.config.Next.Take(ctx, checks, d)
	}
	if checks[0].Peek {
		return s.peek(ctx, checks, d)
	}
	now := s.config.Clock().Microseconds()
	d.Reset(len(checks))
	d.Allowed = true
	decided := 0
	for i := range checks {
		if checks[i].Limit.Reported && s.decide(&checks[i], &d.Results[i], now) {
			decided++
			d.Allowed = d.Allowed && !d.Results[i].Refuses(&checks[i])
		}
	}
	var err error
	if decided < len(checks) && (d.Allowed || countsDenied(checks)) {
		err = s.takeRest(ctx, checks, d)
	}
	if err != nil || !d.Allowed {
		s.takeBack(checks, d)
	}
	return err
}

func anyReported(checks []limiter.Check) bool {
	for i := range checks {
		if checks[i].Limit.Reported {
			return true
		}
	}
	return false
}

// countsDenied reports whether the store must see the request even if it is refused here.
func countsDenied(checks []limiter.Check) bool {
	for i := range checks {
		if checks[i].Limit.CountDenied {
			return true
		}
	}
	return false
}

// decide reports false for a key whose reports fail.
func (s *Store) decide(c *limiter.Check, r *limiter.Result, now int64) bool {
	sh := s.shard(c.Key)
	sh.Lock()
	defer sh.Unlock()
	e := sh.entries[string(c.Key)]
	if e == nil {
		if e = s.begin(sh, c); e == nil {
			return false
		}
	}
	t := e.follow(c.Limit, now+e.offset)
	e.requested += c.Cost
	if !e.listed {
		e.listed = true
		sh.changed = append(sh.changed, e)
	}
	if e.failed >= failedAt {
		return false
	}
	if e.requested > 1 && !e.wasUrgent && t-e.heard > staleAfter {
		s.markUrgent(sh, e)
	}
	draw := 1.0
	if e.refuse > 0 {
		draw = rand.Float64()
	}
	r.Allowed = e.admits(c.Limit, c.Cost, t, draw)
	if r.Charged = r.Allowed && c.Cost > 0; r.Charged {
		e.pending += c.Cost
	}
	e.describe(c, r, t)
	return true
}

// follow records which limit counts the key, and returns what roll returns.
func (e *entry) follow(l *limiter.Limit, t int64) int64 {
	t = e.roll(l, t)
	if e.limit != l {
		if !e.limit.Equal(l) && e.room(l, t) < 0 {
			e.excused = true // it was within the previous limit
		}
		e.limit = l
	}
	return t
}

// describe fills in the rest of a result.
func (e *entry) describe(c *limiter.Check, r *limiter.Result, t int64) {
	retry, reset := e.wait(c.Limit, c.Cost, t)
	if r.Allowed {
		retry = 0
	} else if e.room(c.Limit, t) >= c.Cost { // refused by estimate; the count comes with the next report
		retry = limiter.ReportEvery.Microseconds()
	}
	r.Source, r.Limit, r.TakenAt = limiter.SourceReported, c.Limit.Limit, t
	r.Remaining = max(0, e.left(c.Limit, t))
	r.RetryAfter = time.Duration(retry) * time.Microsecond
	r.ResetAfter = time.Duration(max(0, reset)) * time.Microsecond
}

func (s *Store) shard(key []byte) *shard {
	return &s.shards[maphash.Bytes(s.seed, key)%shardCount]
}

// begin makes an entry for an unknown key, or returns nil if the reports cannot keep up.
func (s *Store) begin(sh *shard, c *limiter.Check) *entry {
	if len(sh.changed) >= 2*s.perShard {
		return nil
	}
	if len(sh.entries) >= s.perShard {
		sh.evict()
		sh.since = s.config.Clock().Microseconds()
	}
	e := &entry{limit: c.Limit, key: string(c.Key), use: s.usage(c.Limit), offset: s.offset.Load()}
	sh.entries[e.key] = e
	e.use.keys.Add(1)
	if s.down.Load() {
		e.failed = failedAt
	}
	return e
}

// evict forgets one of a few sampled keys. A key with something to report stays in the list
// until that is done.
func (sh *shard) evict() {
	const samples = 4
	var oldest *entry
	seen := 0
	for _, e := range sh.entries {
		if oldest == nil || e.heard < oldest.heard {
			oldest = e
		}
		if seen++; seen == samples {
			break
		}
	}
	sh.forget(oldest)
}

func (sh *shard) forget(e *entry) {
	delete(sh.entries, e.key)
	e.use.keys.Add(-1)
}

// takeBack undoes what was counted for a request that another check refused.
func (s *Store) takeBack(checks []limiter.Check, d *limiter.Decision) {
	for i := range checks {
		c, r := &checks[i], &d.Results[i]
		if r.Source != limiter.SourceReported || !r.Charged {
			continue
		}
		r.Charged = false
		r.Remaining += c.Cost
		sh := s.shard(c.Key)
		sh.Lock()
		if e := sh.entries[string(c.Key)]; e != nil {
			e.takeBack(c, r.TakenAt)
			if !e.listed {
				e.listed = true
				sh.changed = append(sh.changed, e)
			}
		}
		sh.Unlock()
	}
}

func (e *entry) takeBack(c *limiter.Check, takenAt int64) {
	window := c.Limit.Window.Microseconds()
	switch {
	case c.Limit.Algorithm == limiter.TokenBucket || takenAt >= e.start:
		e.pending -= c.Cost
	case takenAt >= e.start-window:
		e.late -= c.Cost
	}
}

// Return gives back the charges in d, each where it was taken.
func (s *Store) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	s.takeBack(checks, d)
	var others []limiter.Check
	var od limiter.Decision
	for i := range checks {
		switch res := d.Results[i]; {
		case !res.Charged && res.Source != limiter.SourceFallback || res.Source == limiter.SourceReported: // what fell back may be charged late
		case checks[i].Limit.Reported: // counted by Local
			one := limiter.Decision{Results: d.Results[i : i+1]}
			if err := s.config.Local.Return(ctx, checks[i:i+1], &one); err != nil {
				return err
			}
		default:
			others, od.Results = append(others, checks[i]), append(od.Results, res)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return s.config.Next.Return(ctx, others, &od)
}
