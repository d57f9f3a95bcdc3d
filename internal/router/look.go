package router

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

// ReadView looks at the fleet once, as a router does, until every region has reported its
// nodes or the limit has passed.
func ReadView(ctx context.Context, c *Config, limit time.Duration) (*region.View, error) {
	follower := region.NewFollower(c.follow())
	if err := c.restore(follower); err != nil {
		return nil, err
	}
	remembered := follower.View().Spill.At
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var complete *region.View
	follower.Run(inner, func(v *region.View) {
		// Topology and drains come by separate watches at about the same time: the look
		// after the first complete one has them all.
		switch {
		case complete != nil && v.At.Sub(complete.At) >= settled:
			cancel()
		case complete == nil && v.Topology != nil && allKnown(v):
			complete = v
		}
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	v := follower.View()
	if v.Topology == nil {
		remedy := "publish one with regionctl topology apply FILE"
		for _, s := range v.Regions {
			if s.Err != nil {
				remedy = "while no Consul has one, --state FILE names the router's copy"
			}
		}
		return nil, fmt.Errorf("there is no topology to choose from: %s; %s", unknown(v), remedy)
	}
	// Which clients routers give away follows from what they heard before, too. A running
	// router's file says more than the record, whose writer may be gone.
	recorded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return follower.Recorded(recorded, v, remembered.Add(unsaved)), nil
}

// unsaved is more than what the time of the last step in a running router's file is behind.
const unsaved = 2 * heardEvery

// settled is how much later than the nodes a region's drains may arrive.
const settled = 300 * time.Millisecond
