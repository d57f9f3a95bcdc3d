package redisstore

import (
	"context"

	"github.com/weir-edge/weir/pkg/limiter"
)

var _ limiter.LoadStore = (*Store)(nil)

// Loads reports how busy upstream groups are and fetches the utilization that the region's
// limits follow. The script may be sent again: a node's report replaces its last one, and
// all nodes get the same value within a second.
func (s *Store) Loads(ctx context.Context, node string, loads []limiter.Load) {
	calls := make([]mergeCall, len(loads))
	for i := range loads {
		l := &loads[i]
		calls[i] = mergeCall{
			keys: []string{"weir:{~load:" + l.Group + "}"},
			args: []any{l.Own},
			fail: func(err error) { l.Err = err },
			answer: func(now int64, reply []int64) {
				if l.Err, l.Now, l.Value, l.Nodes = nil, now, reply[0], reply[1]; l.Value < 0 {
					l.Err = errForeign
				}
			},
		}
	}
	s.mergeAll(ctx, &batch{script: allScripts().load, head: []any{nodeField + node}, numbers: 2}, calls)
}
