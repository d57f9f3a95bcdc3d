package redisstore

import (
	"context"
	"strings"

	"github.com/weir-edge/weir/pkg/limiter"
)

var _ limiter.TermStore = (*Store)(nil)

// promisesKey holds what this region's store has promised.
const promisesKey = "weir:{~terms}"

// Renew promises windows to regions, and answers once a replica, if there is one, has the
// promises too.
func (s *Store) Renew(ctx context.Context, terms []limiter.Term) {
	calls := make([]mergeCall, len(terms))
	for i := range terms {
		t := &terms[i]
		calls[i] = mergeCall{
			keys: []string{promisesKey},
			args: []any{t.Division, t.Part, t.Holder, t.Until, t.Life, t.Draw, int(t.Settle), others(t.Others)},
			fail: func(err error) { t.Err = err },
			answer: func(_ int64, reply []int64) {
				t.Err, t.Promised, t.From, t.To, t.Sure = nil, reply[0] == 1, reply[1], reply[2], reply[3]
				t.Own, t.Settled, t.First = reply[4], limiter.Settling(reply[5]), reply[6] == 1
				if reply[0] < 0 {
					t.Err = errForeign
				}
			},
		}
	}
	head := []any{limiter.LongestTerm.Microseconds(), limiter.TermSilence.Microseconds(), limiter.TermForgotten.Microseconds()}
	s.mergeAll(ctx, &batch{script: allScripts().term, head: head, numbers: 7, confirm: true}, calls)
}

// others joins the names, each followed by a comma.
func others(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return strings.Join(names, ",") + ","
}
