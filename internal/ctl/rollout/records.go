package rollout

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Records are those of regions, by name.
type Records map[string]Record

// Record is the record of a rollout in one region, nil if it cannot be read, with its index.
type Record struct {
	*consul.Rollout
	Index uint64
}

// RecordsIn returns the records of the regions that hold one. A region that does not answer is
// not among them: readers compare its record with what the regions run.
func RecordsIn(ctx context.Context, targets []*fleet.Target) Records {
	records := Records{}
	if targets[0].Kind.Temporary {
		return records
	}
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (r Record, err error) {
		r.Rollout, r.Index, err = t.Docs.Rollout(ctx)
		return r, err
	}) {
		if a.Value.Index != 0 {
			records[a.Target.Name] = a.Value
		}
	}
	return records
}

// Rollouts returns those that the records are of, the latest first.
func (records Records) Rollouts() (list []*consul.Rollout) {
	for _, region := range slices.Sorted(maps.Keys(records)) {
		if r := records[region].Rollout; r != nil {
			list = append(list, r)
		}
	}
	// The word of the process that it halted may have reached some regions only.
	slices.SortStableFunc(list, func(a, b *consul.Rollout) int {
		return cmp.Or(b.BeganAt.Compare(a.BeganAt), strings.Compare(b.Halted, a.Halted))
	})
	var distinct []*consul.Rollout
	for _, r := range list {
		if !slices.ContainsFunc(distinct, r.SameRollout) {
			distinct = append(distinct, r)
		}
	}
	return distinct
}

// Of returns the records of one rollout.
func (records Records) Of(r *consul.Rollout) Records {
	of := maps.Clone(records)
	maps.DeleteFunc(of, func(_ string, other Record) bool { return other.Rollout == nil || !r.SameRollout(other.Rollout) })
	return of
}

// Forget deletes the records of rollouts. A region that does not answer keeps its own, which
// readers compare with what the regions run.
func Forget(ctx context.Context, targets []*fleet.Target, is func(*fleet.Target, *consul.Rollout) bool) {
	fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (bool, error) {
		r, index, err := t.Docs.Rollout(ctx)
		if err != nil || r == nil || !is(t, r) {
			return false, err
		}
		return t.Docs.EndRollout(ctx, index)
	})
}
