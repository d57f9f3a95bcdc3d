package ctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// regionHistory is a region's pointer and the changes before it, as far as they were read.
type regionHistory struct {
	kind    *fleet.Kind
	now     time.Time // by the region's clock
	pointer *consul.Pointer
	changes []consul.Change // the newest, newest first
	wrong   error           // some of them cannot be read
}

// readHistory reads the pointer, and pages of the history until enough returns true.
func readHistory(enough func(*regionHistory) bool) func(context.Context, *fleet.Target) (regionHistory, error) {
	return func(ctx context.Context, t *fleet.Target) (regionHistory, error) {
		s, err := fleet.LookAtPointer(ctx, t)
		h := regionHistory{kind: t.Kind, now: s.At, pointer: s.Pointer, wrong: s.Damage}
		if err != nil || enough(&h) {
			return h, err
		}
		wrong, err := t.Docs.EachPage(ctx, func(page []consul.Change) bool {
			h.changes = append(h.changes, page...)
			return !enough(&h)
		})
		h.wrong = errors.Join(append(wrong, h.wrong)...)
		return h, err
	}
}

// readPointer is readHistory without the history.
var readPointer = readHistory(func(*regionHistory) bool { return true })

// readBefore is readHistory for what a rollback needs to know.
func readBefore(ctx context.Context, t *fleet.Target) (regionHistory, error) {
	recorded, asked := false, false
	var failure error
	h, err := readHistory(func(h *regionHistory) bool {
		if p := h.pointer; p != nil && !p.Expired(h.now) && !asked {
			asked = true
			recorded, failure = t.Docs.Recorded(ctx, *p)
		}
		return failure != nil || h.version() == "" || h.knows(recorded || h.pointer.Expired(h.now))
	})(ctx, t)
	return h, errors.Join(err, failure)
}

// readAfter is readHistory for what a rollback needs to know once something temporary has expired.
var readAfter = readHistory(func(h *regionHistory) bool {
	after := h.after()
	return after.version() == "" || after.knows(true)
})

// after returns a region's history as it is once its temporary version has expired.
func (h *regionHistory) after() *regionHistory {
	if h.pointer == nil {
		return h
	}
	after, expired := *h, *h.pointer
	expired.ExpiresAt, after.pointer = &time.Time{}, &expired
	return &after
}

// wrote reports whether a change is the one that wrote a pointer.
func wrote(c consul.Change, p *consul.Pointer) bool {
	return c.Version == p.Version && c.AppliedAt.Equal(p.AppliedAt)
}

// isCurrent reports whether a change made the active version. After something temporary has
// ended, that is the change before it.
func (h *regionHistory) isCurrent(c consul.Change) bool {
	switch {
	case h.pointer == nil:
		return false
	case !h.pointer.Expired(h.now):
		return wrote(c, h.pointer)
	}
	return h.pointer.Then != nil && c.ExpiresAt == nil && c.Version == h.pointer.Then.Version
}

// version returns the active version, or "".
func (h *regionHistory) version() string {
	if h.pointer != nil {
		if n := h.pointer.ActiveAt(h.now); n != nil {
			return n.Version
		}
	}
	return ""
}

// known returns the pointers that a region has.
func (h *regionHistory) known() []consul.Pointer {
	if h.pointer == nil {
		return nil
	}
	list := []consul.Pointer{*h.pointer}
	if then := h.pointer.Then; then != nil {
		list = append(list, consul.Pointer{Version: then.Version, SHA256: then.SHA256, AppliedAt: h.pointer.AppliedAt})
	}
	return list
}

// before returns the version before the active one. It comes from the change that made the
// active one, so that different clocks cannot put the history out of order.
func (h *regionHistory) before() (string, error) {
	if h.version() == "" {
		return "", fmt.Errorf("no %s %s active", h.kind.What, h.kind.Are)
	}
	if version, ok := h.replaced(); ok {
		return version, nil
	}
	return "", fmt.Errorf("the history has no version before %s; name one with rollback --to", h.version())
}

// replaced returns what the active version replaced or, if that was not recorded or was
// temporary, the newest different version.
func (h *regionHistory) replaced() (string, bool) {
	if c := h.current(); c != nil && c.Replaced != "" && c.Replaced != c.Version && !h.wasTemporary(c.Replaced) {
		return c.Replaced, true
	}
	for _, c := range h.changes {
		if c.ExpiresAt == nil && c.Version != h.version() {
			return c.Version, true
		}
	}
	return "", false
}

// current returns the change that made the active version, or nil if it was not read.
func (h *regionHistory) current() *consul.Change {
	if i := slices.IndexFunc(h.changes, h.isCurrent); i >= 0 {
		return &h.changes[i]
	}
	return nil
}

// made returns who made the active version, and when the change before that was made. Something
// that has expired is not active; nil: unknown.
func (h *regionHistory) made() (p *consul.Pointer, since time.Time) {
	i := slices.IndexFunc(h.changes, h.isCurrent)
	if i >= 0 && i+1 < len(h.changes) {
		since = h.changes[i+1].AppliedAt
	}
	switch {
	case h.pointer == nil || !h.pointer.Expired(h.now):
		return h.pointer, since
	case i >= 0:
		return &h.changes[i].Pointer, since
	}
	return nil, since
}

// wasTemporary reports whether a version was temporary when it was last active.
func (h *regionHistory) wasTemporary(version string) bool {
	i := slices.IndexFunc(h.changes, func(c consul.Change) bool { return c.Version == version })
	return i >= 0 && h.changes[i].ExpiresAt != nil
}

// knows reports whether reading more of the history could not change what replaced returns.
// recorded says that the change that made the active version has been read.
func (h *regionHistory) knows(recorded bool) bool {
	_, found := h.replaced()
	c := h.current()
	switch {
	case !found, recorded && c == nil:
		return false
	case c == nil, c.Replaced == "", !h.kind.Temporary:
		return true
	}
	return slices.ContainsFunc(h.changes, func(other consul.Change) bool { return other.Version == c.Replaced })
}
