package rollout

import (
	"context"
	"errors"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// cleanupTime bounds taking a canary back.
const cleanupTime = 10 * time.Second

// Canary is a version that one site follows on trial. If someone else ended it or began
// another, errors are a *Stop with reason Moved.
type Canary struct {
	PoP     string
	Pointer consul.Pointer
	Homes   []*fleet.Target          // the regions that have the site
	Before  map[*fleet.Target]uint64 // the index of what the site followed on its own
}

// Set makes the site follow the version in one home, unless someone else was faster.
func (c *Canary) Set(ctx context.Context, home *fleet.Target, under consul.Fence) error {
	ctx, cancel := home.Bounded(ctx)
	defer cancel()
	done, err := home.Docs.Under(under).SetCanary(ctx, c.PoP, c.Pointer, c.Before[home])
	var lost *consul.Displaced
	switch {
	case errors.As(err, &lost):
		return err
	case err != nil:
		return &Stop{Why: Unanswered, Region: home.Name, Err: err}
	case !done:
		return &Stop{Why: Moved, Region: home.Name}
	}
	return nil
}

// Mine reports whether p is this canary.
func (c *Canary) Mine(p *consul.Pointer) bool {
	return p != nil && p.Version == c.Pointer.Version && p.AppliedAt.Equal(c.Pointer.AppliedAt)
}

// Check verifies that a home still has it.
func (c *Canary) Check(ctx context.Context, home *fleet.Target) error {
	p, index, err := home.Docs.Canary(ctx, c.PoP)
	switch {
	case err != nil && index == 0:
		return err
	case !c.Mine(p):
		return &Stop{Why: Moved, Region: home.Name}
	}
	return nil
}

// Remove ends it wherever it is set, even if ctx has ended. A canary that someone else has set
// instead is left alone.
func (c *Canary) Remove(ctx context.Context, end func(ctx context.Context, home *fleet.Target, p *consul.Pointer, index uint64) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	_, err := fleet.Failures(fleet.Ask(ctx, c.Homes, func(ctx context.Context, home *fleet.Target) (struct{}, error) {
		p, index, err := home.Docs.Canary(ctx, c.PoP)
		if err == nil && c.Mine(p) {
			err = end(ctx, home, p, index)
		}
		return struct{}{}, err
	}))
	return err
}
