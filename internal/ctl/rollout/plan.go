package rollout

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Plan is the order in which a change goes through the fleet.
type Plan []Stage

// Stage is a group of regions that change together, or one PoP that tries the change first.
type Stage struct {
	// PoP alone gets the change, and loses it again unless the next stage follows; "": all of
	// the regions get it, and keep it.
	PoP     string
	Regions []string
	Soak    time.Duration // it is judged for that long before the next stage
}

func (s Stage) String() string {
	if s.PoP != "" {
		return s.PoP
	}
	return strings.Join(s.Regions, ", ")
}

// InGroups plans to change groups of these sizes, in the order of the regions; 0 is the size
// of all that are left. left is how many regions are in no group.
func InGroups(regions []string, sizes []int, soak time.Duration) (plan Plan, left int) {
	for _, n := range sizes {
		if n == 0 || n > len(regions) {
			n = len(regions)
		}
		if n > 0 {
			plan = append(plan, Stage{Regions: regions[:n], Soak: soak})
		}
		regions = regions[n:]
	}
	return plan, len(regions)
}

// Tried plans to try a change on the PoP of some regions before all regions change.
func Tried(pop string, homes, regions []string, soak time.Duration) Plan {
	return Plan{{PoP: pop, Regions: homes, Soak: soak}, {Regions: regions}}
}

// Groups returns the regions of each stage but those of a PoP, which are in a later one.
func (p Plan) Groups() (groups [][]string) {
	for _, s := range p {
		if s.PoP == "" {
			groups = append(groups, s.Regions)
		}
	}
	return groups
}

// Staged reports whether something is judged on the way.
func (p Plan) Staged() bool { return len(p) > 0 && p[0].Soak > 0 }

// Stages does what a plan says. An error ends the plan.
type Stages interface {
	// Done reports whether a stage has the change, from an earlier run.
	Done(s Stage) bool
	// Write makes the change in a stage. In the last one it does not wait for the nodes.
	Write(ctx context.Context, i int) error
	// Judge watches a stage, and those before it, for its soak. again says that an earlier run
	// changed it.
	Judge(ctx context.Context, i int, again bool) error
	// Finish waits for the nodes of all regions.
	Finish(ctx context.Context) error
}

// Run carries out a plan. Stages that have the change are skipped, but the last of those is
// judged: an earlier run may not have watched it to the end.
func (p Plan) Run(ctx context.Context, do Stages) error {
	judged := 0
	for i, s := range p {
		if do.Done(s) {
			continue
		}
		if judged < i {
			if err := do.Judge(ctx, i-1, true); err != nil {
				return err
			}
		}
		if err := do.Write(ctx, i); err != nil {
			return err
		}
		if !slices.ContainsFunc(p[i+1:], func(s Stage) bool { return !do.Done(s) }) {
			break
		}
		if err := do.Judge(ctx, i, false); err != nil {
			return err
		}
		judged = i + 1
	}
	return do.Finish(ctx)
}
