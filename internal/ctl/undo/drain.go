package undo

import (
	"context"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// drainsName is what undo calls drains and their ends.
const drainsName = "drains"

// lastDrain returns the last drain, or end of one, among the newest acts of all regions, or nil.
// An error besides says which regions did not answer.
func lastDrain(ctx context.Context, p *command.Program) (last *consul.Change, failures error) {
	targets, err := p.Targets(kinds.Acts, nil)
	if err != nil {
		return nil, err
	}
	const newest = 1000
	answers := fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (*consul.Change, error) {
		acts, _, err := t.Docs.History(ctx, newest)
		if i := slices.IndexFunc(acts, func(c consul.Change) bool { return c.PoP != "" }); i >= 0 {
			return &acts[i], err
		}
		return nil, err
	})
	for _, a := range answers {
		if a.Err == nil && a.Value != nil && (last == nil || a.Value.AppliedAt.After(last.AppliedAt)) {
			last = a.Value
		}
	}
	return last, command.Unanswered(answers)
}

// undoDrain takes back the last drain, or end of one. One region's record of it suffices: all
// regions that answered have it.
func undoDrain(ctx context.Context, c *change.Change, names []string, drain func(ctx context.Context, c *change.Change, pop, reason string) error) error {
	if len(names) > 0 {
		return term.Misused("undo drains: a drain is one of all regions; leave out --region")
	}
	last, failures := lastDrain(ctx, c.Program)
	switch {
	case last == nil && failures != nil:
		return term.Failed("nothing was changed: %w", failures)
	case last == nil:
		return term.Misused("nothing was changed: no drain is recorded")
	case !c.Means(last.Version):
		return term.Conflict("nothing was changed: the last is %s, not %s", last.Version, strings.Join(c.Of, " or "))
	}
	c.Program.Say("%s of %s, %s, is the last change of drains", term.Printable(last.Message), term.Printable(last.AppliedBy), term.Stamp(last.AppliedAt))
	return drain(ctx, c, last.PoP, last.Drained)
}
