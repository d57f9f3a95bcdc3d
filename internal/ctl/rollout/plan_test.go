package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// doer notes what a plan does.
type doer struct {
	plan  Plan
	has   []string // regions with the change
	fails string
	did   []string
}

func (d *doer) note(format string, args ...any) error {
	d.did = append(d.did, fmt.Sprintf(format, args...))
	if d.did[len(d.did)-1] == d.fails {
		return errors.New("no")
	}
	return nil
}

func (d *doer) Done(s Stage) bool {
	return s.PoP == "" && !slices.ContainsFunc(s.Regions, func(r string) bool { return !slices.Contains(d.has, r) })
}

func (d *doer) Write(_ context.Context, i int) error {
	err := d.note("write %s", d.plan[i])
	if err == nil && d.plan[i].PoP == "" {
		d.has = append(d.has, d.plan[i].Regions...)
	}
	return err
}

func (d *doer) Judge(_ context.Context, i int, again bool) error {
	return d.note("judge %s %v", d.plan[i], again)
}

func (d *doer) Finish(context.Context) error { return d.note("finish") }

// What a plan is made of, and what it does: skipping, judging again and stopping.
func TestPlan(t *testing.T) {
	regions := []string{"eu", "us", "ap"}
	waves, left := InGroups(regions, []int{1, 1, 0}, time.Minute)
	require.Zero(t, left)
	require.Equal(t, Plan{{Regions: []string{"eu"}, Soak: time.Minute}, {Regions: []string{"us"}, Soak: time.Minute}, {Regions: []string{"ap"}, Soak: time.Minute}}, waves)
	_, left = InGroups(regions, []int{1, 1}, time.Minute)
	require.Equal(t, 1, left)
	two, _ := InGroups(regions, []int{2, 4, 0}, time.Minute)
	require.Len(t, two, 2)
	canary := Tried("ams1", []string{"eu"}, regions, time.Minute)
	require.Equal(t, [][]string{regions}, canary.Groups())
	require.True(t, canary.Staged())
	require.False(t, Plan{{Regions: regions}}.Staged())

	f := func(plan Plan, has []string, fails string, want ...string) {
		t.Helper()
		d := &doer{plan: plan, has: has, fails: fails}
		err := plan.Run(t.Context(), d)
		require.Equal(t, fails != "", err != nil)
		require.Equal(t, want, d.did)
	}
	f(Plan{{Regions: regions}}, nil, "", "write eu, us, ap", "finish")
	f(canary, nil, "", "write ams1", "judge ams1 false", "write eu, us, ap", "finish")
	f(canary, nil, "judge ams1 false", "write ams1", "judge ams1 false")
	f(waves, nil, "", "write eu", "judge eu false", "write us", "judge us false", "write ap", "finish")
	f(waves, nil, "write us", "write eu", "judge eu false", "write us")
	f(waves, []string{"eu"}, "", "judge eu true", "write us", "judge us false", "write ap", "finish")
	f(waves, []string{"eu", "us"}, "", "judge us true", "write ap", "finish")
	f(waves, []string{"us"}, "", "write eu", "judge eu false", "judge us true", "write ap", "finish")
	f(waves, []string{"us", "ap"}, "", "write eu", "finish")
	f(waves, regions, "", "finish")
}
