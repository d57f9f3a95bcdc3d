// Package versions reads, compares and removes the versions of documents that regions have, and
// had.
package versions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// History is a region's pointer and the changes before it, as far as they were read.
type History struct {
	Kind    *fleet.Kind
	now     time.Time // by the region's clock
	Pointer *consul.Pointer
	Changes []consul.Change // the newest, newest first
	Wrong   error           // some of them cannot be read
	idle    int             // how many of the newest changed nothing that could be put back
}

// ReadHistory reads the pointer, and pages of the history until enough returns true.
func ReadHistory(enough func(*History) bool) func(context.Context, *fleet.Target) (History, error) {
	return func(ctx context.Context, t *fleet.Target) (History, error) {
		s, err := fleet.LookAtPointer(ctx, t)
		h := History{Kind: t.Kind, now: s.At, Pointer: s.Pointer, Wrong: s.Damage}
		if err != nil || enough(&h) {
			return h, err
		}
		wrong, err := t.Docs.EachPage(ctx, func(page []consul.Change) bool {
			h.Changes = append(h.Changes, page...)
			return !enough(&h)
		})
		h.Wrong = errors.Join(append(wrong, h.Wrong)...)
		if h.Lost() != nil && err == nil { // unless its first change came in the meantime
			if now, err := fleet.LookAtPointer(ctx, t); err == nil && now.Pointer != nil {
				return ReadHistory(enough)(ctx, t)
			}
		}
		return h, err
	}
}

// ReadPointer is ReadHistory without the history.
var ReadPointer = ReadHistory(func(*History) bool { return true })

// ReadBefore is ReadHistory for what a rollback needs to know.
func ReadBefore(ctx context.Context, t *fleet.Target) (History, error) {
	recorded, compared := false, false
	var failure error
	h, err := ReadHistory(func(h *History) bool {
		if p := h.Pointer; p != nil && !p.Expired(h.now) && !compared {
			compared = true
			recorded, failure = t.Docs.Recorded(ctx, *p)
		}
		if h.Pointer == nil { // its loss can be undone
			return h.Kind.Back == nil || h.Lost() != nil
		}
		return failure != nil || h.Version() == "" || h.knows(recorded || h.Pointer.Expired(h.now)) && h.PassIdle(ctx, t)
	})(ctx, t)
	return h, errors.Join(err, failure)
}

// PassIdle passes by the newest changes that changed nothing which could be put back, such as an undrain
// that only tells regions which are away that drains are over. It returns false if it needs more of the
// history.
func (h *History) PassIdle(ctx context.Context, t *fleet.Target) bool {
	for h.Kind.Back != nil && h.Pointer != nil {
		c := h.current()
		switch {
		case c == nil: // while the history has none of it, or what made it active was never recorded
			return h.idle == 0 && len(h.Changes) > 0
		case !idle(ctx, t, c):
			return true
		}
		h.idle++
	}
	return true
}

// idle reports whether the reversal of a change would change nothing. If its documents cannot be read,
// that is unknown, and it counts.
func idle(ctx context.Context, t *fleet.Target, c *consul.Change) bool {
	if c.Replaced == "" {
		return false
	}
	is, err := t.Load(ctx, consul.Named{Version: c.Version, SHA256: c.SHA256})
	if err != nil {
		return false
	}
	p, err := t.Stored(ctx, c.Replaced)
	if err != nil {
		return false
	}
	before, err := t.Load(ctx, consul.Named{Version: p.Version, SHA256: p.SHA256})
	return err == nil && t.Kind.Back(is, before, c.AppliedAt).Version() == c.Version
}

// readAfter is ReadHistory for what a rollback needs to know once something temporary has expired.
var readAfter = ReadHistory(func(h *History) bool {
	after := h.after()
	return after.Version() == "" || after.knows(true)
})

// after returns a region's history as it is once its temporary version has expired.
func (h *History) after() *History {
	if h.Pointer == nil {
		return h
	}
	after, expired := *h, *h.Pointer
	expired.ExpiresAt, after.Pointer = &time.Time{}, &expired
	return &after
}

// isCurrent reports whether a change made the active version. After something temporary has
// ended, that is the change before it.
func (h *History) isCurrent(c consul.Change) bool {
	switch {
	case h.Pointer == nil, c.Canary != "":
		return false
	case !h.Pointer.Expired(h.now):
		return c.Version == h.Pointer.Version && c.AppliedAt.Equal(h.Pointer.AppliedAt)
	}
	return h.Pointer.Successor != nil && c.ExpiresAt == nil && c.Version == h.Pointer.Successor.Version
}

// Version returns the active version, or "".
func (h *History) Version() string {
	if h.Pointer != nil {
		if n := h.Pointer.ActiveAt(h.now); n != nil {
			return n.Version
		}
	}
	return ""
}

// known returns the pointers that a region has.
func (h *History) known() []consul.Pointer {
	if h.Pointer == nil {
		return nil
	}
	list := []consul.Pointer{*h.Pointer}
	if then := h.Pointer.Successor; then != nil {
		list = append(list, consul.Pointer{Version: then.Version, SHA256: then.SHA256, AppliedAt: h.Pointer.AppliedAt})
	}
	return list
}

// Before returns the version before the active one. It comes from the change that made the
// active one, so that different clocks cannot put the history out of order.
func (h *History) Before() (string, error) {
	if h.Version() == "" {
		return "", fmt.Errorf("no %s %s active", h.Kind.What, h.Kind.Are)
	}
	if h.idle > 0 && h.current() == nil {
		return "", fmt.Errorf("no change of the %s did anything that undo could put back", h.Kind.What)
	}
	if version, ok := h.Replaced(); ok {
		return version, nil
	}
	return "", fmt.Errorf("the history has no version before %s; name one with undo --to", h.Version())
}

// First reports whether the active version replaced the edges' own configuration, as far as the history
// goes.
func (h *History) First() bool {
	_, before := h.Replaced()
	return h.Kind.Temporary && h.Wrong == nil && h.current() != nil && !before
}

// Replaced returns what the active version replaced or, if that was not recorded or was
// temporary, the newest different version. It is not found if the edges' configuration was replaced.
func (h *History) Replaced() (string, bool) {
	if i := h.made(); i >= 0 {
		c := &h.Changes[i]
		if c.Replaced != "" && c.Replaced != c.Version && !h.wasTemporary(c.Replaced) {
			return c.Replaced, true
		}
		if i+1 < len(h.Changes) && c.Replaced == "" {
			if ended := &h.Changes[i+1]; ended.Successor == nil && ended.Expired(c.AppliedAt) {
				return "", false
			}
		}
	}
	for _, c := range h.Changes {
		if c.ExpiresAt == nil && c.Version != h.Version() {
			return c.Version, true
		}
	}
	return "", false
}

// current returns the change that made the active version, or nil if it was not read. Idle ones did not.
func (h *History) current() *consul.Change {
	if i := h.made(); i >= 0 {
		return &h.Changes[i]
	}
	return nil
}

// made is the index of current, or -1.
func (h *History) made() int {
	i := slices.IndexFunc(h.Changes, h.isCurrent)
	if i >= 0 && i+h.idle < len(h.Changes) {
		return i + h.idle // such kinds have no canaries
	}
	return -1
}

// Made returns who made the active version, and when the change before that was made. Something
// that has expired is not active; nil: unknown.
func (h *History) Made() (p *consul.Pointer, since time.Time) {
	i := h.made()
	if before := slices.IndexFunc(h.Changes[i+1:], func(c consul.Change) bool { return c.Canary == "" }); i >= 0 && before >= 0 {
		since = h.Changes[i+1+before].AppliedAt
	}
	switch {
	case h.idle == 0 && (h.Pointer == nil || !h.Pointer.Expired(h.now)):
		return h.Pointer, since
	case i >= 0:
		return &h.Changes[i].Pointer, since
	}
	return nil, since
}

// Lost returns what a region had last whose pointer is gone or cannot be read; nil: nothing, or
// unknown.
func (h *History) Lost() *consul.Change {
	if i := slices.IndexFunc(h.Changes, func(c consul.Change) bool { return c.Canary == "" }); h.Pointer == nil && i >= 0 {
		return &h.Changes[i]
	}
	return nil
}

// Message says why the active version was made active; "": unknown.
func (h *History) Message() string {
	if c := h.current(); c != nil {
		return c.Message
	}
	return ""
}

// ID identifies the change that made the active version; "": unknown.
func (h *History) ID() string {
	if c := h.current(); c != nil {
		return c.ID
	}
	return ""
}

// wasTemporary reports whether a version was temporary when it was last active.
func (h *History) wasTemporary(version string) bool {
	i := slices.IndexFunc(h.Changes, func(c consul.Change) bool { return c.Version == version && c.Canary == "" })
	return i >= 0 && h.Changes[i].ExpiresAt != nil
}

// knows reports whether reading more of the history could not change what replaced returns.
// recorded says that the change that made the active version has been read.
func (h *History) knows(recorded bool) bool {
	_, found := h.Replaced()
	c := h.current()
	switch {
	case !found, recorded && c == nil:
		return false
	case c == nil, c.Replaced == "", !h.Kind.Temporary:
		return true
	}
	return slices.ContainsFunc(h.Changes, func(other consul.Change) bool { return other.Version == c.Replaced && other.Canary == "" })
}
