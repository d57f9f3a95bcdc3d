package exchange

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

const leasedLine = escrowLine + " leased"

// spent is how much the nodes spent from leases.
func (w *world) spent() (units int64) {
	for _, n := range w.nodes {
		for _, u := range n.leases.Usages() {
			units += u.Spent
		}
	}
	return units
}

// Take is the store's, for a node that lives and asks for a lease. Return gives back what it did
// not spend, and Reset is not called.
func (n *node) Take(ctx context.Context, c []limiter.Check, d *limiter.Decision) error {
	if n.dead.Load() {
		return errLost
	}
	return n.region.store.Take(ctx, c, d)
}

func (n *node) Return(ctx context.Context, c []limiter.Check, d *limiter.Decision) error {
	if n.dead.Load() {
		return errLost
	}
	return n.region.store.Return(ctx, c, d)
}

func (n *node) Reset(context.Context, []limiter.Check) error { return errLost }

// Nodes lease units of their region's part. What they hold is spent for other regions until
// they give it back.
func TestEscrowLeased(t *testing.T) {
	inWorld(t, leasedLine, 2, func(w *world) {
		w.demand(100, 59*time.Second, "k")
		t.Logf("%d of 6000 passed, %d of them leased", w.total(), w.spent())
		w.requireNoneOver()
		require.GreaterOrEqual(t, w.total(), int64(5820), "under-use of 3% at most")
		require.Greater(t, w.spent(), w.total()/2)
	})
	if race {
		return // the others run the same code
	}
	inWorld(t, leasedLine, 2, func(w *world) {
		passed := w.only(w.regions[1], 200, 59*time.Second, "k")
		t.Logf("%d of 6000 passed in one region, %d of them leased", passed, w.spent())
		w.requireNoneOver()
		require.GreaterOrEqual(t, passed, int64(5820), "one region gets what the others do not need")
	})
	inWorld(t, leasedLine, 2, func(w *world) {
		w.losing(0.2)
		w.demand(100, 20*time.Second, "k")
		w.regions[1].nodes[0].kill()
		w.list()
		w.demand(100, 10*time.Second, "k")
		w.flush(w.regions[2])
		w.demand(100, 60*time.Second, "k")
		w.requireNoneOver()
		t.Logf("%d passed in two windows with lost messages, a dead node and a lost store", w.total())
	})
}
