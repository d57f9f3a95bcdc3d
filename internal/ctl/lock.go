package ctl

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

const (
	// lockWait is how long a change waits for others, longer than a lock of some regions
	// lasts whose holder died.
	lockWait = time.Minute
	// lockLook is how often it looks.
	lockLook = 100 * time.Millisecond
)

// locks are what this program has locked.
type locks struct {
	p    *program
	what string
	by   string
	held map[*target]region.Lock
}

// lock has all others who change the same wait until unlock is called, or for a while if
// that never happens. Everybody locks in the order of the fleet file, so nobody waits for
// one who waits for him. Without the lock of each region nothing may be changed.
func (p *program) lock(ctx context.Context, targets []*target, what, by string) (unlock func(), err error) {
	l := &locks{p, what, by, map[*target]region.Lock{}}
	longest := 15*time.Second + time.Duration(len(targets))*5*time.Second
	deadline := time.Now().Add(p.lockWait)
	for _, t := range targets {
		if err := l.take(ctx, t, longest, deadline); err != nil {
			l.free()
			return nil, err
		}
	}
	return l.free, nil
}

func (l *locks) take(ctx context.Context, t *target, longest time.Duration, deadline time.Time) error {
	for told := false; ; told = true {
		l.held[t] = region.NewLock(l.by, longest) // also if the answer is lost
		brief, cancel := l.p.bounded(ctx)
		other, err := t.consul.Lock(brief, l.what, l.held[t])
		cancel()
		switch {
		case ctx.Err() != nil:
			return interrupted("interrupted; nothing was changed")
		case err != nil:
			return failed("nothing was changed: %s: %w", t.name, err)
		case other == nil:
			return nil
		case !time.Now().Before(deadline):
			return conflict("nothing was changed: %s: %s is changing the %s since %s; should that never end, because its regionctl was killed, the way is free at %s",
				t.name, orDash(other.By), l.what, stamp(other.Since), stamp(other.Until))
		case !told:
			l.p.say("%s: waiting for %s, who is changing the %s, at the latest until %s", t.name, orDash(other.By), l.what, stamp(other.Until))
		}
		select {
		case <-ctx.Done():
		case <-time.After(lockLook):
		}
	}
}

// free is also done for a person who waits no longer.
func (l *locks) free() {
	targets := slices.Collect(maps.Keys(l.held))
	for _, a := range ask(context.Background(), l.p, targets, func(ctx context.Context, t *target) (struct{}, error) {
		return struct{}{}, t.consul.Unlock(ctx, l.what, l.held[t])
	}) {
		if a.err != nil {
			l.p.warn("%s: the lock was not given back; others can change the %s from %s on: %v", a.target.name, l.what, stamp(l.held[a.target].Until), a.err)
		}
	}
}
