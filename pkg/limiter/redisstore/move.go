package redisstore

import (
	"context"

	"github.com/weir-edge/weir/pkg/limiter"
)

var _ limiter.Mover = (*Store)(nil)

// Move moves rights of limits in escrow. A gift reaches a replica, if there is one, before
// it is reported.
func (s *Store) Move(ctx context.Context, moves []limiter.Move) {
	calls := make([]mergeCall, len(moves))
	for i := range moves {
		calls[i] = moveCall(&moves[i])
	}
	s.mergeAll(ctx, &batch{script: allScripts().move, numbers: 4, opened: true, confirm: true}, calls)
}

func moveCall(m *limiter.Move) mergeCall {
	upto := max(0, m.Upto)
	if m.Burn {
		upto = -1
	}
	return mergeCall{
		keys:  []string{string(m.Key), string(limiter.AppendCounters(nil, m.Key, m.Start))},
		args:  []any{m.Region, m.Start, m.Got, upto, max(0, m.Keep)},
		limit: m.Limit,
		fail:  func(err error) { m.Err = err },
		answer: func(_ int64, reply []int64) {
			m.Err, m.Gave, m.Left, m.Known, m.Burned = nil, reply[0], reply[1], max(0, reply[2]), reply[3] == 1
			if reply[2] < 0 {
				m.Err = errForeign
			}
		},
	}
}
