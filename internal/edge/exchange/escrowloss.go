package exchange

import (
	"context"
	"sync"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/tally"
)

// burns are keys whose spending the store has forgotten, kept until all that is left of them is
// charged.
type burns struct {
	mu   sync.Mutex
	keys map[string]tally.Total
	busy bool
}

// burn charges all that is left of every key that this node admitted, because the store has
// forgotten what was spent. What cannot be charged now is charged later.
func (x *Exchange) burn(ctx context.Context, lost bool) {
	b := &x.burns
	b.mu.Lock()
	defer b.mu.Unlock()
	if lost {
		x.config.Tallies.Visit(func(t tally.Total) {
			if t.Limit.Global.Escrow {
				if b.keys == nil {
					b.keys = map[string]tally.Total{}
				}
				b.keys[t.Key] = t
			}
		})
	}
	if len(b.keys) == 0 || b.busy {
		return
	}
	var moves []limiter.Move
	wall := x.config.Wall()
	for key, t := range b.keys {
		part := x.part(t.Limit, key, t.Start)
		if part == nil || t.Start+t.Width+limiter.MaxClockBack.Microseconds() < wall {
			delete(b.keys, key)
			continue
		}
		moves = append(moves, limiter.Move{Limit: part, Key: []byte(key), Start: t.Start, Burn: true})
	}
	b.busy = true
	x.calls.Go(func() {
		x.move(ctx, moves)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.busy = false
		for i := range moves {
			if moves[i].Err == nil {
				delete(b.keys, string(moves[i].Key))
			}
		}
	})
}
