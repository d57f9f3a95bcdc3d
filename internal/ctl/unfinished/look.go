package unfinished

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// Unmoved checks that nobody has resumed, replaced or ended the rollout since it was looked at.
func (u *Rollout) Unmoved(ctx context.Context, targets []*fleet.Target) error {
	holders := fleet.Filter(targets, func(t *fleet.Target) bool { return u.marks[t.Name] != 0 })
	for _, a := range fleet.Ask(ctx, holders, func(ctx context.Context, t *fleet.Target) (uint64, error) {
		_, index, err := t.Docs.Rollout(ctx)
		return index, err
	}) {
		switch {
		case a.Err != nil && a.Value == 0:
			return term.Failed("nothing was changed: %s: %w", a.Target.Name, a.Err)
		case a.Value != u.marks[a.Target.Name]:
			return Overtook(a.Target.Name, a.Target.Kind)
		}
	}
	return nil
}

// Leftover says whose rollout is unfinished, and which regions have what.
func (u *Rollout) Leftover() string {
	where := fleet.Map(slices.Concat(u.Waves...), func(r rolloutRegion) string { return r.Region + " has " + term.OrDash(r.Version) })
	return fmt.Sprintf("the rollout of %s, which %s began at %s%s, is not finished: %s", u.Version, term.Printable(u.By), term.Stamp(u.BeganAt), term.Reason(u.Message), strings.Join(where, ", "))
}

func Overtook(region string, k *fleet.Kind) error {
	return term.Conflict("nothing was changed: %s: someone else began or ended a rollout meanwhile; see regionctl %s rollout", region, k.Name)
}
