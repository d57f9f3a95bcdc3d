package exchange

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// Reset makes every other region clear the state of these keys, and returns those that did not.
// Counts stay, so nothing admitted before is charged again.
func (x *Exchange) Reset(ctx context.Context, checks []limiter.Check) error {
	regions, _, ok := x.position()
	if !ok {
		return nil
	}
	var failed []error
	for i := range checks {
		c := &checks[i]
		if c.Limit.Global == nil {
			continue
		}
		m := global.Message{Counts: []global.Count{{Key: string(c.Key), Tier: c.Limit.Global.Tier, Width: global.Width(c.Limit)}}}
		body := m.Append(nil)
		for _, region := range regions {
			owner, found := x.config.Directory.Owner(region, names[partitionOf(string(c.Key))])
			err := errors.New("no node of it is known")
			switch {
			case found && x.config.Directory.IsSelf(owner):
				err = x.reset(ctx, &m)
			case found:
				_, err = x.config.Caller.Call(ctx, owner, TopicReset, body)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("region %s: %w", region, err))
			}
		}
	}
	if failed != nil {
		return fmt.Errorf("reset in this region, but not in all others; try again: %w", errors.Join(failed...))
	}
	return nil
}

// Resets answers a node that resets keys.
func (x *Exchange) Resets(ctx context.Context, _ peer.Node, body []byte) ([]byte, error) {
	var m global.Message
	if err := m.Parse(body); err != nil {
		return nil, err
	}
	return nil, x.reset(ctx, &m)
}

func (x *Exchange) reset(ctx context.Context, m *global.Message) error {
	for i := range m.Counts {
		n := &m.Counts[i]
		l := x.limit(n.Key, n.Tier, n.Width)
		if l == nil {
			continue // no such rule is active here
		}
		p := &x.parts[partitionOf(n.Key)]
		p.mu.Lock()
		if p.excused != nil {
			p.excused[n.Key] = x.config.Wall() + 2*n.Width
		}
		p.mu.Unlock()
		if err := x.config.Reset(ctx, []limiter.Check{{Limit: l, Key: []byte(n.Key), Cost: 1}}); err != nil {
			return err
		}
	}
	return nil
}
