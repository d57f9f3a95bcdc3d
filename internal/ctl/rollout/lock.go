package rollout

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// lockLook is about how often a change checks whether locks are free. With many regions it
// checks less often, so that it sends about 50 queries per second in total.
const lockLook = 100 * time.Millisecond

// locks are those that a change holds; where an answer was lost, it may hold one.
type locks[S any] struct {
	change   *Change[S]
	mine     consul.Lock
	renewing sync.WaitGroup
	stop     context.CancelFunc

	mu   sync.Mutex
	held map[*Region[S]]*hold
	lost *Stop // the first lock that was lost; nil: none
}

// hold is the lock of one region.
type hold struct {
	lock  consul.Lock
	tried time.Time // when the last renewal was attempted

	// using, when full, keeps a renewal from changing the index that a write depends on. It
	// is not a mutex, because tests in virtual time wait for it.
	using chan struct{}
	index uint64
}

// sighting is what a waiting change has seen of a region's lock.
type sighting struct {
	lock  *consul.Seen // nil: it is free
	since time.Time    // on this process's clock
	// taken: the lock may be taken over, because it is abandoned, or broken.
	taken, broken bool
}

// lock makes concurrent changes to the same subject wait until free is called, or until
// this process has not renewed the locks for a while. A region that cannot be locked is not
// changed. A change that waits for one lock holds none meanwhile, so no two wait for each
// other.
func (c *Change[S]) lock(ctx context.Context, regions []*Region[S]) (*locks[S], error) {
	deadline := time.Now().Add(c.LockWait)
	seen := make(map[*Region[S]]sighting, len(regions))
	for printed := false; ; printed = true {
		where, other, err := c.watch(ctx, regions, seen, c.BreakLock && !printed)
		l := &locks[S]{change: c, mine: consul.NewLock(c.By), held: map[*Region[S]]*hold{}}
		if err == nil && other == nil {
			where, other, err = l.take(ctx, With(regions, Untouched, AlreadyThere), seen)
		}
		if err == nil && other == nil && len(With(regions, Untouched, AlreadyThere)) > 0 {
			l.report(regions, seen)
			return l, nil
		}
		l.free()
		switch {
		case ctx.Err() != nil:
			return nil, &Stop{Why: Interrupted}
		case other == nil:
			return nil, &Stop{Why: Unanswered, Region: where.Name, Err: errors.Join(err, where.Err)}
		case !time.Now().Before(deadline):
			return nil, &Stop{Why: Busy, Region: where.Name, Other: other}
		case !printed:
			c.Report.Waits(where.Name, *other)
		}
		pause := lockLook * time.Duration(1+len(regions)/5)
		_ = consul.Pause(ctx, pause/2+rand.N(pause))
	}
}

// watch checks the locks of all regions, and returns the first that blocks: one that was
// renewed recently, as far as this process has seen. When breaking locks, none blocks.
func (c *Change[S]) watch(ctx context.Context, regions []*Region[S], seen map[*Region[S]]sighting, breaking bool) (where *Region[S], other *consul.Lock, err error) {
	regions = With(regions, Untouched, AlreadyThere)
	now, errs := make([]sighting, len(regions)), make([]error, len(regions))
	c.eachOf(regions, func(i int, r *Region[S]) {
		brief, cancel := c.bounded(ctx)
		defer cancel()
		now[i].lock, errs[i] = r.Locks.Locked(brief, c.Name)
		now[i].since = time.Now()
	})
	for i, r := range regions {
		if where == nil || other == nil && err == nil {
			where = r
		}
		if errs[i] != nil {
			if !c.without(ctx, r, errs[i]) && err == nil && other == nil {
				err = errs[i]
			}
			continue
		}
		s, before := now[i], seen[r]
		if s.lock != nil && before.lock != nil && s.lock.Index == before.lock.Index {
			s.since = before.since
		}
		abandoned := s.lock != nil && time.Since(s.since) >= consul.StaleAfter
		s.broken = s.lock != nil && breaking && !abandoned
		s.taken = abandoned || s.broken
		if seen[r] = s; s.lock != nil && !s.taken && other == nil && err == nil {
			other = &s.lock.Lock
		}
	}
	return where, other, err
}

// without skips a region that does not answer, if the change may be partial.
func (c *Change[S]) without(ctx context.Context, r *Region[S], err error) bool {
	if !c.Partial || refused(err) || ctx.Err() != nil {
		return false
	}
	r.end(Unreachable, err)
	return true
}

func refused(err error) bool {
	var status *consul.StatusError
	return errors.As(err, &status) && status.Code < 500
}

// take locks the regions, or as many as are free. The first region decides between
// concurrent changes; then the others are locked concurrently.
func (l *locks[S]) take(ctx context.Context, regions []*Region[S], seen map[*Region[S]]sighting) (where *Region[S], other *consul.Lock, err error) {
	var renew context.Context
	renew, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	for len(regions) > 0 && other == nil && err == nil {
		now := regions[:1]
		if len(l.held) > 0 {
			now = regions
		}
		regions = regions[len(now):]
		others, errs := make([]*consul.Seen, len(now)), make([]error, len(now))
		l.change.eachOf(now, func(i int, r *Region[S]) { others[i], errs[i] = l.takeOne(ctx, renew, r, seen[r]) })
		for i, r := range now {
			where = r
			if others[i] != nil {
				return r, &others[i].Lock, nil
			}
			if errs[i] != nil && !l.change.without(ctx, r, errs[i]) {
				return r, nil, errs[i]
			}
		}
	}
	return where, nil, nil
}

func (l *locks[S]) takeOne(ctx, renew context.Context, r *Region[S], s sighting) (other *consul.Seen, err error) {
	h := &hold{lock: l.mine, tried: time.Now(), using: make(chan struct{}, 1)}
	var over uint64
	if s.taken {
		over, h.lock.From, h.lock.Broke = s.lock.Index, s.lock.By, s.broken
	}
	brief, cancel := l.change.bounded(ctx)
	defer cancel()
	if h.index, other, err = r.Locks.Lock(brief, l.change.Name, h.lock, over); other != nil || refused(err) {
		return other, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[r] = h; err == nil {
		l.renewing.Go(func() { l.renew(renew, r, h) })
	}
	return nil, err
}

// report says whose locks were taken over or broken, and where.
func (l *locks[S]) report(regions []*Region[S], seen map[*Region[S]]sighting) {
	type taking struct {
		from   string
		broken bool
	}
	var order []taking
	where := map[taking][]string{}
	for _, r := range regions {
		if s := seen[r]; s.taken && l.held[r] != nil {
			t := taking{s.lock.By, s.broken}
			if where[t] == nil {
				order = append(order, t)
			}
			where[t] = append(where[t], r.Name)
		}
	}
	for _, t := range order {
		if t.broken {
			l.change.Broke = append(l.change.Broke, t.from)
		}
		l.change.Report.Takes(where[t], t.from, t.broken)
	}
}

// renew renews one lock until ctx ends or the lock is lost.
func (l *locks[S]) renew(ctx context.Context, r *Region[S], h *hold) {
	every := time.NewTicker(consul.RenewEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if l.renewOne(ctx, r, h); l.lostOne() != nil {
			return
		}
	}
}

func (l *locks[S]) renewOne(ctx context.Context, r *Region[S], h *hold) {
	select {
	case h.using <- struct{}{}:
		defer func() { <-h.using }()
	default:
		return // the ongoing write will show whether the lock is held
	}
	brief, cancel := context.WithTimeout(ctx, min(l.change.Timeout, consul.RenewEvery))
	defer cancel()
	index, err := r.Locks.Renew(brief, l.change.Name, h.lock, h.index)
	l.lose(r, err)
	if err != nil {
		index = h.index
	}
	l.renewed(h, index)
}

// renewed records when a renewal was attempted, and the resulting index.
func (l *locks[S]) renewed(h *hold, index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.tried, h.index = time.Now(), index
}

// lose records that a lock was lost, if that is what err means.
func (l *locks[S]) lose(r *Region[S], err error) (lost bool) {
	var d *consul.LockLostError
	if lost = errors.As(err, &d); lost {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.lost == nil {
			l.lost = &Stop{Why: Displaced, Region: r.Name, Other: d.By}
		}
	}
	return lost
}

func (l *locks[S]) lostOne() *Stop {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// still returns why the next write must not be made, or nil if all locks are held as far as
// is known. A process that was suspended for a while checks first.
func (l *locks[S]) still(ctx context.Context) *Stop {
	const suspicious = 2*consul.RenewEvery + time.Second
	var late []*Region[S]
	l.mu.Lock()
	for r, h := range l.held {
		if h.index != 0 && time.Since(h.tried) > suspicious {
			late = append(late, r)
		}
	}
	l.mu.Unlock()
	l.change.each(late, func(r *Region[S]) { l.renewOne(ctx, r, l.held[r]) })
	return l.lostOne()
}

// fenced calls do while the lock of a region keeps its index.
func (l *locks[S]) fenced(r *Region[S], do func(consul.Fence) error) error {
	h := l.held[r]
	h.using <- struct{}{}
	defer func() { <-h.using }()
	err := do(consul.Fence{What: l.change.Name, Index: h.index})
	var by *consul.LockLostError
	if errors.As(err, &by) && by.By != nil && by.By.ID == h.lock.ID { // the answer to a renewal was lost
		brief, cancel := l.change.bounded(context.Background())
		defer cancel()
		index, failed := r.Locks.Renew(brief, l.change.Name, h.lock, h.index)
		if failed == nil {
			l.renewed(h, index)
			err = do(consul.Fence{What: l.change.Name, Index: h.index})
		} else if errors.As(failed, &by) {
			err = failed
		}
	}
	l.lose(r, err)
	return err
}

// Under locks some regions, without writing their subject, calls ready, and then do for all
// of them concurrently. do writes inside fenced, in pieces that take less time than a
// renewal.
func (c *Change[S]) Under(ctx context.Context, regions []*Region[S], ready func(context.Context) error, do func(r *Region[S], fenced func(func(consul.Fence) error) error) error) error {
	l, err := c.lock(ctx, regions)
	if err != nil {
		return err
	}
	defer l.free()
	if err := ready(ctx); err != nil {
		return err
	}
	errs := make([]error, len(regions))
	c.eachOf(regions, func(i int, r *Region[S]) {
		if r.Outcome != Unreachable {
			errs[i] = do(r, func(write func(consul.Fence) error) error { return l.fenced(r, write) })
		}
	})
	return errors.Join(errs...)
}

// free releases the locks, even after an interrupt.
func (l *locks[S]) free() {
	if l.stop == nil {
		return
	}
	l.stop()
	l.renewing.Wait()
	l.change.each(l.change.Regions, func(r *Region[S]) {
		h := l.held[r]
		if h == nil {
			return
		}
		brief, cancel := l.change.bounded(context.Background())
		defer cancel()
		if err := r.Locks.Unlock(brief, l.change.Name, h.lock); err != nil {
			l.change.Report.StaysLocked(r.Name, err)
		}
	})
}
