package ctl

import (
	"context"

	"github.com/weir-edge/weir/pkg/region"
)

// Two changes that meet while the earlier one has switched only some of its regions. The
// order in which they wrote the first region that both write is the order everywhere:
// the later one replaces what the earlier one writes elsewhere, before or after it came
// there, and the earlier one gives way.

// precedes reports whether the change that wrote p is the one that this change replaced
// in another region.
func (c *change) precedes(p *region.Pointer) bool {
	for _, r := range c.regions {
		if r.renewed && sameChange(r.Before, p) {
			return true
		}
	}
	return false
}

// sameChange reports whether one change wrote both pointers, of whatever versions.
func sameChange(a, b *region.Pointer) bool {
	return a != nil && b != nil && a.AppliedAt.Equal(b.AppliedAt) && a.AppliedBy == b.AppliedBy
}

// aimAgain prepares a region once more that the change before this one has switched
// meanwhile, and reports whether it may be pointed.
func (c *change) aimAgain(ctx context.Context, r *regionChange) bool {
	brief, cancel := c.p.bounded(ctx)
	defer cancel()
	a, err := c.look(brief, r.target)
	if err != nil || a.wrong != nil || !c.precedes(a.pointer) {
		return false
	}
	if _, err := r.target.docs.Put(brief, a.next.bytes); err != nil {
		return false
	}
	r.Result, r.Now, r.Error = untouched, nil, ""
	c.adopt(r, a)
	return true
}

// overtaken finds the regions that the change that wrote p has taken from this one, and
// reports whether the first is among them.
func (c *change) overtaken(ctx context.Context, p *region.Pointer) bool {
	first := true
	for _, r := range c.regions {
		if !r.renewed {
			continue
		}
		brief, cancel := c.p.bounded(ctx)
		now, _, err := r.target.docs.Current(brief)
		cancel()
		if err == nil && sameChange(now, p) {
			r.loseTo(now)
		} else if first {
			return false
		}
		first = false
	}
	return !first
}
