package rollout

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
)

// node runs a version and should run "new".
func node(runs string) fleet.NodeView {
	return fleet.NodeView{ID: "n", Version: runs, Expected: "new", Converged: runs == "new"}
}

func viewOf(nodes ...fleet.NodeView) *fleet.RegionView {
	v := &fleet.RegionView{Nodes: nodes}
	v.Converged = len(nodes) > 0 && len(v.Behind()) == 0
	return v
}

func TestAwait(t *testing.T) {
	refuses := node("old")
	refuses.Refused = &adminapi.Refusal{Version: "new"}
	type look func(after time.Duration) (*fleet.RegionView, error)
	always := func(v *fleet.RegionView) look {
		return func(time.Duration) (*fleet.RegionView, error) { return v, nil }
	}
	run := func(t *testing.T, looks ...look) (arrivals []Arrival, took time.Duration) {
		began := time.Now()
		targets := make([]*fleet.Target, len(looks))
		byTarget := map[*fleet.Target]look{}
		for i, l := range looks {
			targets[i] = &fleet.Target{}
			byTarget[targets[i]] = l
		}
		var seen sync.Mutex
		w := Waiter{
			View: func(_ context.Context, t *fleet.Target) (*fleet.RegionView, error) {
				return byTarget[t](time.Since(began))
			},
			Moved:       func(_ *fleet.Target, v *fleet.RegionView) bool { return v.Error == "moved" },
			Registering: 15 * time.Second,
			Seen:        func(int, *Arrival) { require.True(t, seen.TryLock(), "one at a time"); seen.Unlock() },
		}
		arrivals = w.Run(t.Context(), targets, time.Minute)
		return arrivals, time.Since(began)
	}
	for name, test := range map[string]struct {
		look   look
		within time.Duration
		check  func(*testing.T, *Arrival)
	}{
		"there": {always(viewOf(node("new"))), 0, func(t *testing.T, a *Arrival) { require.Equal(t, Arrived, a.State) }},
		"comes": {func(after time.Duration) (*fleet.RegionView, error) {
			if after < 5*time.Second {
				return nil, errors.New("no answer")
			}
			return viewOf(node("new")), nil
		}, 5 * time.Second, func(t *testing.T, a *Arrival) { require.Equal(t, Arrived, a.State) }},
		"behind":     {always(viewOf(node("new"), node("old"))), time.Minute, func(t *testing.T, a *Arrival) { require.Equal(t, Behind, a.State) }},
		"refuses":    {always(viewOf(refuses)), 2 * time.Second, func(t *testing.T, a *Arrival) { require.Equal(t, Refusing, a.State); require.Len(t, a.Refused, 1) }},
		"no node":    {always(viewOf()), 15 * time.Second, func(t *testing.T, a *Arrival) { require.Equal(t, NoNodes, a.State) }},
		"unanswered": {func(time.Duration) (*fleet.RegionView, error) { return nil, errLost }, time.Minute, func(t *testing.T, a *Arrival) { require.ErrorIs(t, a.Err, errLost); require.Equal(t, Unseen, a.State) }},
		"moved":      {always(&fleet.RegionView{Error: "moved"}), 0, func(t *testing.T, a *Arrival) { require.Equal(t, Superseded, a.State) }},
		"refused once": {func(after time.Duration) (*fleet.RegionView, error) { // it keeps polling
			if after < time.Second {
				return viewOf(refuses), nil
			}
			return viewOf(node("new")), nil
		}, time.Second, func(t *testing.T, a *Arrival) { require.Equal(t, Arrived, a.State) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				arrivals, took := run(t, test.look)
				test.check(t, &arrivals[0])
				require.Equal(t, test.within, took)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		arrivals, took := run(t, always(viewOf(refuses)), always(viewOf(node("old"))))
		require.Equal(t, refusedFor+afterwards, took, "after a refusal the others get a moment")
		require.Equal(t, Behind, arrivals[1].State)
	})
}
