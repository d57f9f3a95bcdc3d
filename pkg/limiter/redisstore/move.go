package redisstore

import (
	"context"

	"github.com/weir-edge/weir/pkg/limiter"
)

var _ limiter.Mover = (*Store)(nil)

// Move moves rights of limits in escrow. A gift reaches a replica, if there is one, before
// it is reported.
func (s *Store) Move(ctx context.Context, moves []limiter.Move) {
	var calls, loans []mergeCall
	for i := range moves {
		if m := &moves[i]; m.Limit.Portion != nil {
			loans = append(loans, loanCall(m))
		} else {
			calls = append(calls, moveCall(m))
		}
	}
	s.mergeAll(ctx, &batch{script: allScripts().move, numbers: 4, opened: true, confirm: true}, calls)
	head := []any{limiter.LoanLasts.Microseconds(), limiter.LoanHeld.Microseconds()}
	s.mergeAll(ctx, &batch{script: allScripts().lend, head: head, numbers: 6, opened: true, confirm: true}, loans)
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

// loanCall is a move of a bucket's tokens.
func loanCall(m *limiter.Move) mergeCall {
	upto := max(0, m.Upto)
	if m.Step == limiter.LoanTake {
		upto = m.Got
	}
	return mergeCall{
		keys:  []string{string(m.Key), string(limiter.AppendCounters(nil, m.Key, 0))},
		args:  []any{int(m.Step), m.Region, m.ID, m.Asked, m.Closed, upto, max(0, m.Keep)},
		limit: m.Limit,
		fail:  func(err error) { m.Err = err },
		answer: func(now int64, reply []int64) {
			m.Err, m.At, m.Gave, m.Closed, m.Left, m.Known, m.ID = nil, now, reply[0], reply[1], reply[2], reply[3], reply[4]
			if m.Step == limiter.LoanAsk {
				m.Asked = now
			}
			if reply[5] < 0 {
				m.Err = errForeign
			}
		},
	}
}
