package undo

import (
	"context"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// kindToUndo returns the kind with this name or, without one, the kind that was changed last in
// any region that answers.
func kindToUndo(ctx context.Context, p *command.Program, name string, names []string) (found *fleet.Kind, failures error) {
	var last time.Time
	if name != "" {
		return command.KindOf(undoable, name)
	}
	var targets []*fleet.Target
	for _, k := range undoable {
		more, err := p.Targets(k, names)
		if err != nil {
			return nil, err
		}
		targets = append(targets, more...)
	}
	answers := fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (versions.History, error) {
		return versions.ReadHistory(func(h *versions.History) bool {
			p, _ := h.Made()
			return (p == nil || byHand(h) != nil) && h.PassIdle(ctx, t)
		})(ctx, t)
	})
	failures = command.Unanswered(answers[:len(answers)/len(undoable)])
	failed := map[string]int{}
	for _, a := range answers {
		if a.Err != nil {
			if failed[a.Target.Name]++; failed[a.Target.Name] == len(undoable) && ctx.Err() == nil {
				p.LeaveOut(a.Target.Name, a.Err)
			}
		}
		if pointer := byHand(&a.Value); a.Err == nil && pointer != nil && pointer.AppliedAt.After(last) {
			last, found = pointer.AppliedAt, a.Target.Kind
		}
	}
	if k, began := lastRollout(ctx, p, answers); began.After(last) {
		found = k
	}
	switch {
	case found == nil && failures != nil:
		return nil, term.Failed("nothing was changed: %w", failures)
	case found == nil:
		return nil, term.Misused("nothing was changed: no region has anything to undo")
	}
	return found, nil
}

// lastRollout returns the kind of the latest rollout that is not finished and that nodes run, perhaps
// only those of a canary, and when it began.
func lastRollout(ctx context.Context, p *command.Program, answers []fleet.Answer[versions.History]) (kind *fleet.Kind, began time.Time) {
	found := make([]*unfinished.Rollout, len(undoable))
	fleet.Each(undoable, func(i int, k *fleet.Kind) {
		var targets []*fleet.Target
		for _, a := range answers {
			if a.Err == nil && a.Target.Kind == k && !k.Temporary {
				targets = append(targets, a.Target)
			}
		}
		if len(targets) > 0 {
			found[i], _ = unfinished.Find(ctx, p, targets, nil)
		}
	})
	for i, u := range found {
		if u != nil && u.Active() && u.BeganAt.After(began) {
			kind, began = undoable[i], u.BeganAt
		}
	}
	return kind, began
}

// byHand returns what made the active version or, if a list that is followed did, the newest change
// before that; nil: unknown.
func byHand(h *versions.History) *consul.Pointer {
	p, _ := h.Made()
	if p == nil || !synced(h.Kind, p) {
		return p
	}
	for i := range h.Changes {
		if p = &h.Changes[i].Pointer; !synced(h.Kind, p) {
			return p
		}
	}
	return nil
}

// synced reports whether a list that is followed made a change.
func synced(k *fleet.Kind, p *consul.Pointer) bool {
	return k == kinds.Clients && strings.HasPrefix(p.AppliedBy, clientlist.ByList(""))
}
