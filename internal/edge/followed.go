package edge

import (
	"errors"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

// followed is what is known of one pointer in Consul. Its follower's goroutine owns it.
type followed[T any] struct {
	asked   error // why Consul could not be asked for the pointer, nil if it answered
	known   bool  // there is a finding
	finding finding[T]
	good    *published // that the pointer named last and that was good
	made    *T         // good compiled; nil if it was in force
	refused *refusal

	// Of a pointer that ends: the one that was seen last, and when it is over by this
	// node's monotonic clock. A clock that is behind, or set back, must not prolong it.
	seen region.Pointer
	ends time.Time
}

// errNoAnswer stands for the time before the first answer.
var errNoAnswer = errors.New("has not answered yet")

// note takes an event, and reports whether it was a finding.
func (f *followed[T]) note(ev event[T], now time.Time) bool {
	if ev.finding == nil {
		f.asked = ev.asked
		return false
	}
	found := *ev.finding
	f.known, f.finding = true, found
	if found.pointer != nil && found.pointer.ExpiresAt != nil {
		f.see(found.pointer, now)
	}
	if found.good != nil {
		f.good = found.good
		if found.made != nil {
			f.made = found.made
		}
	}
	return true
}

// see notes a pointer that ends: no later after it is first seen than it was to last
// when it was set.
func (f *followed[T]) see(p *region.Pointer, now time.Time) {
	if f.seen.ExpiresAt != nil && f.seen.SHA256 == p.SHA256 && f.seen.AppliedAt.Equal(p.AppliedAt) && f.seen.ExpiresAt.Equal(*p.ExpiresAt) {
		return
	}
	f.seen, f.ends = *p, now.Add(p.ExpiresAt.Sub(p.AppliedAt))
}

// lives reports whether a pointer that ends is there and not over.
func (f *followed[T]) lives(now time.Time) bool { return f.finding.pointer != nil && f.left(now) > 0 }

// left is how long what was seen lasts.
func (f *followed[T]) left(now time.Time) time.Duration {
	if f.seen.ExpiresAt == nil {
		return 0
	}
	return min(f.seen.ExpiresAt.Sub(now), f.ends.Sub(now))
}

// judge notes what is wrong with the finding, once. nothing says that nothing was ever
// published.
func (f *followed[T]) judge(nothing, canary bool) {
	found, version := &f.finding, ""
	if found.pointer != nil {
		version = found.pointer.Version
	}
	switch {
	case errors.Is(found.fault, errNoPointer) && nothing:
		f.refused = nil
	case found.fault != nil:
		f.refused = refused(f.refused, version, canary, found.fault)
	case found.failure != nil && f.refused != nil && f.refused.Version == version:
		// Consul was away when it was looked at again.
	default:
		f.refused = nil
	}
}

// unanswered is why Consul does not answer whatever it is asked, or nil. That it has
// not been asked yet says least.
func unanswered(reasons ...error) (err error) {
	for _, why := range reasons {
		if err == nil || why != nil && errors.Is(err, errNoAnswer) {
			err = why
		}
	}
	return err
}
