package redisstore

import (
	"context"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Parameters of FollowLoad.
const (
	loadUp   = 16 // seconds in which limits follow a rise of utilization
	loadDown = 48 // a fall
	loadBand = 45 // changes within this many thousandths are ignored
)

// Following is the utilization, in thousandths, that limits follow.
type Following struct {
	Mean  int64 // over some seconds
	Value int64 // what limits follow: Mean when it last changed by more than chance
}

// FollowLoad returns what limits follow in the next second, after one with utilization u.
// Lowering limits makes utilization fall, and under most algorithms only after a window. So
// utilization is averaged, limits rise three times as slowly as they fall, and noise leaves
// them alone. lua/load.lua is its twin.
func FollowLoad(f Following, u int64) Following {
	if u > f.Mean {
		f.Mean += (u - f.Mean + loadUp - 1) / loadUp
	} else {
		f.Mean -= (f.Mean - u + loadDown - 1) / loadDown
	}
	off := f.Mean - f.Value
	if off > loadBand || off < -loadBand || f.Mean == 0 || f.Mean == limiter.FullLoad {
		f.Value = f.Mean
	}
	return f
}

// Load is a node's report of the utilization of one upstream group, and the answer.
type Load struct {
	Group string
	Own   int64 // in thousandths; negative if it is unknown

	// Err says why there is no answer.
	Err error
	// Value is what the region's limits follow in this second of the store's clock.
	Value int64
	// Nodes is how many nodes reported in the last three seconds.
	Nodes int64
	// Now is the store's clock, in Unix microseconds.
	Now int64
}

// Loads reports how busy upstream groups are and fetches the utilization that the region's
// limits follow. The script may be sent again: a node's report replaces its last one, and
// all nodes get the same value within a second.
func (s *Store) Loads(ctx context.Context, node string, loads []Load) {
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
