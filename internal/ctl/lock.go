package ctl

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

const (
	// lockWait is how long a change waits for others, longer than a lock of some regions
	// lasts whose holder died.
	lockWait = time.Minute
	// lockLook is how often it looks, about.
	lockLook = 100 * time.Millisecond
)

// locks are what this program has locked.
type locks struct {
	p       *program
	what    string
	targets []*target
	held    map[*target]region.Lock // perhaps, where an answer was lost
}

// lock has all others who change the same wait until unlock is called, or for a while if
// that never happens. Without the lock of each region nothing may be changed. Whoever has
// to wait for one holds none meanwhile, so nobody waits for one who waits for him.
func (p *program) lock(ctx context.Context, targets []*target, what, by string) (unlock func(), err error) {
	deadline := time.Now().Add(p.lockWait)
	for told := false; ; told = true {
		l := &locks{p, what, targets, map[*target]region.Lock{}}
		where, other, err := l.take(ctx, by)
		if err == nil && other == nil {
			return l.free, nil
		}
		l.free()
		switch {
		case ctx.Err() != nil:
			return nil, interrupted("interrupted; nothing was changed")
		case err != nil:
			return nil, failed("nothing was changed: %s: %w", where.name, err)
		case !time.Now().Before(deadline):
			return nil, conflict("nothing was changed: %s: %s is changing the %s since %s; should that never end, because its regionctl was killed, the way is free at %s",
				where.name, orDash(other.By), what, stamp(other.Since), stamp(other.Until))
		case !told:
			p.say("%s: waiting for %s, who is changing the %s; should that never end, until %s", where.name, orDash(other.By), what, stamp(other.Until))
		}
		select {
		case <-ctx.Done():
		case <-time.After(lockLook/2 + rand.N(lockLook)):
		}
	}
}

// take locks the regions, in the order of the fleet file, until one is locked by another.
func (l *locks) take(ctx context.Context, by string) (where *target, other *region.Lock, err error) {
	longest := 15*time.Second + time.Duration(len(l.targets))*5*time.Second
	for _, t := range l.targets {
		mine := region.NewLock(by, longest)
		brief, cancel := l.p.bounded(ctx)
		other, err := t.consul.Lock(brief, l.what, mine)
		cancel()
		var refused *region.StatusError
		if other == nil && !(errors.As(err, &refused) && refused.Code < 500) {
			l.held[t] = mine
		}
		if err != nil || other != nil {
			return t, other, err
		}
	}
	return nil, nil, nil
}

// free is also done for a person who waits no longer.
func (l *locks) free() {
	held := filter(l.targets, func(t *target) bool { _, ok := l.held[t]; return ok })
	for _, a := range ask(context.Background(), l.p, held, func(ctx context.Context, t *target) (struct{}, error) {
		return struct{}{}, t.consul.Unlock(ctx, l.what, l.held[t])
	}) {
		if a.err != nil {
			l.p.warn("%s: it may still be locked, so that nobody else can change the %s before %s: %v", a.target.name, l.what, stamp(l.held[a.target].Until), a.err)
		}
	}
}
