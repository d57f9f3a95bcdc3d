package rollout

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// lockLook is how often a change looks whether a lock is free, about.
const lockLook = 100 * time.Millisecond

// locks are those that a change holds, perhaps, where an answer was lost.
type locks[S any] struct {
	change *Change[S]
	held   map[*Region[S]]consul.Lock
}

// lock makes concurrent changes to the same subject wait until free is called, or until the
// locks expire. A region that cannot be locked is not changed. A change that waits for one
// lock holds none meanwhile, so no two wait for each other.
func (c *Change[S]) lock(ctx context.Context, regions []*Region[S]) (*locks[S], error) {
	deadline := time.Now().Add(c.LockWait)
	for told := false; ; told = true {
		l := &locks[S]{c, map[*Region[S]]consul.Lock{}}
		where, other, err := l.take(ctx, regions)
		if err == nil && other == nil && len(With(regions, Untouched, AlreadyThere)) > 0 {
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
		case !told:
			c.Report.Waits(where.Name, *other)
		}
		select {
		case <-ctx.Done():
		case <-time.After(lockLook/2 + rand.N(lockLook)):
		}
	}
}

// take locks the regions in order, until one is locked by another change.
func (l *locks[S]) take(ctx context.Context, regions []*Region[S]) (where *Region[S], other *consul.Lock, err error) {
	longest := 15*time.Second + time.Duration(len(regions))*5*time.Second
	for _, r := range regions {
		if where = r; r.Outcome == Unreachable {
			continue
		}
		mine := consul.NewLock(l.change.By, longest)
		brief, cancel := l.change.bounded(ctx)
		other, err := r.Locks.Lock(brief, l.change.Name, mine)
		cancel()
		var refused *consul.StatusError
		denied := errors.As(err, &refused) && refused.Code < 500
		if other == nil && !denied {
			l.held[r] = mine
		}
		if err != nil && !denied && l.change.Partial && ctx.Err() == nil {
			r.end(Unreachable, err)
			continue
		}
		if err != nil || other != nil {
			return r, other, err
		}
	}
	return where, nil, nil
}

// free gives the locks back, also after an interrupt.
func (l *locks[S]) free() {
	l.change.each(l.change.Regions, func(r *Region[S]) {
		mine, held := l.held[r]
		if !held {
			return
		}
		brief, cancel := l.change.bounded(context.Background())
		defer cancel()
		if err := r.Locks.Unlock(brief, l.change.Name, mine); err != nil {
			l.change.Report.StaysLocked(r.Name, mine, err)
		}
	})
}
