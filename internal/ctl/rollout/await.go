package rollout

import (
	"context"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// lookEvery is how often nodes that have not arrived are asked.
	lookEvery = 250 * time.Millisecond
	// refusedFor is how long a node must keep refusing before that is final: one that
	// refused the same version before may be about to check again.
	refusedFor = 2 * time.Second
	// afterwards is how long the other regions have once one has failed.
	afterwards = 2 * time.Second
)

// Waiter waits for the nodes of some regions to run what they should.
type Waiter struct {
	// View looks at a region, at the nodes that are waited for.
	View func(context.Context, *fleet.Target) (*fleet.RegionView, error)
	// Moved reports that a region no longer wants that version.
	Moved func(*fleet.Target, *fleet.RegionView) bool
	// Registering is how long nodes may take to return to the catalog, for example after
	// Consul lost its data.
	Registering time.Duration
	// Seen receives the result of a look at region i. Its calls do not overlap.
	Seen func(i int, a *Arrival)
}

// Arrival is how the wait ended in one region.
type Arrival struct {
	Target  *fleet.Target
	State   State
	View    fleet.RegionView // the last look that succeeded; empty while Unseen
	Err     error            // why the last look failed
	Refused []fleet.NodeView // that will not run it
}

// State is what is known of the nodes of a region that are waited for.
type State int

// The states. The last four are final.
const (
	Unseen     State = iota // no look has succeeded yet
	Behind                  // not all nodes run it yet
	Arrived                 // all nodes run it
	Superseded              // someone else changed what the nodes should run
	Refusing                // nodes refuse it
	NoNodes                 // no node is registered, and none came
)

// Run waits until all nodes run the version, it is clear that they will not, limit has
// passed, or ctx ends.
func (w *Waiter) Run(ctx context.Context, targets []*fleet.Target, limit time.Duration) []Arrival {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var (
		mu       sync.Mutex
		all      sync.WaitGroup
		arrivals = make([]Arrival, len(targets))
	)
	for i, t := range targets {
		a := &arrivals[i]
		a.Target = t
		all.Go(func() {
			w.follow(ctx, a, func() {
				mu.Lock()
				defer mu.Unlock()
				if a.State == Superseded || a.State == Refusing {
					time.AfterFunc(afterwards, cancel)
				}
				w.Seen(i, a)
			})
		})
	}
	all.Wait()
	return arrivals
}

// follow repeatedly looks at one region.
func (w *Waiter) follow(ctx context.Context, a *Arrival, changed func()) {
	refusing := map[string]time.Time{}
	began := time.Now()
	for {
		view, err := w.View(ctx, a.Target)
		if ctx.Err() != nil {
			return // what was seen last is better than half a look
		}
		a.Err = err
		if err == nil {
			a.View = *view
			a.Refused = nil
			for _, n := range view.Nodes {
				if !n.Refuses() {
					delete(refusing, n.ID)
					continue
				}
				if _, before := refusing[n.ID]; !before {
					refusing[n.ID] = time.Now()
				}
				if time.Since(refusing[n.ID]) >= refusedFor {
					a.Refused = append(a.Refused, n)
				}
			}
			switch a.State = Behind; {
			case w.Moved(a.Target, view):
				a.State = Superseded
			case len(a.Refused) > 0:
				a.State = Refusing
			case view.Converged:
				a.State = Arrived
			case len(view.Nodes) == 0 && time.Since(began) >= w.Registering:
				a.State = NoNodes
			}
		}
		changed()
		if a.State >= Arrived || consul.Pause(ctx, lookEvery) != nil {
			return
		}
	}
}
