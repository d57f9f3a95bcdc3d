package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore/redirect"
)

var _ limiter.Merger = (*Store)(nil)

// Fields of the hash that counts a key and window: nodeField prefixes what each node of
// this region admitted, regionField what was merged from another region.
const (
	nodeField   = "n:"
	regionField = "r:"
	ownField    = "own"
)

// batch is what the calls of one script have in common.
type batch struct {
	script *script
	head   []any
	// numbers are in the reply of each call.
	numbers int
	// opened is set if the script checks since when the store has kept its data.
	opened bool
	// confirm waits until a replica, if there is one, has received the scripts' writes.
	confirm bool
}

// mergeCall is one tally or merge within a script call. The script may be sent again,
// because neither counts twice.
type mergeCall struct {
	keys   []string
	args   []any
	limit  *limiter.Limit // nil for a tally
	answer func(now int64, reply []int64)
	fail   func(error)
}

// Tally records what a node has admitted.
func (s *Store) Tally(ctx context.Context, node string, tallies []limiter.Tally) {
	calls := make([]mergeCall, len(tallies))
	for i := range tallies {
		t := &tallies[i]
		calls[i] = mergeCall{
			keys: []string{string(limiter.AppendCounters(nil, t.Key, t.Start))},
			args: []any{t.Count, t.Start, t.Width},
			fail: func(err error) { t.Err = err },
			answer: func(_ int64, reply []int64) {
				if t.Err, t.Known, t.Total = nil, reply[0], reply[1]; t.Known < 0 {
					t.Err = errForeign
				}
			},
		}
	}
	s.mergeAll(ctx, &batch{script: allScripts().tally, head: []any{nodeField + node}, numbers: 2}, calls)
}

// Merge charges what other regions have admitted.
func (s *Store) Merge(ctx context.Context, merges []limiter.Merge) {
	calls := make([]mergeCall, len(merges))
	for i := range merges {
		m := &merges[i]
		calls[i] = mergeCall{
			keys:  []string{string(m.Key), string(limiter.AppendCounters(nil, m.Key, m.Start))},
			args:  []any{regionField + m.Region, m.Count, m.Start, m.Width},
			limit: m.Limit,
			fail:  func(err error) { m.Err = err },
			answer: func(_ int64, reply []int64) {
				m.Err, m.Known, m.Early = nil, max(0, reply[0]), reply[0] == -2
				if reply[0] == -1 {
					m.Err = errForeign
				}
			},
		}
	}
	s.mergeAll(ctx, &batch{script: allScripts().merge, numbers: 1}, calls)
}

// mergeAll sends the calls.
func (s *Store) mergeAll(ctx context.Context, b *batch, calls []mergeCall) {
	toMasters(ctx, s, calls, func(c *mergeCall) []byte { return []byte(c.keys[0]) }, func(c *mergeCall, err error) { c.fail(err) },
		func(n *node, list []*mergeCall) error { return n.merge(ctx, b, list) })
}

// toMasters sends each call to the master of its key, maxReports at once; different masters receive
// theirs concurrently. send returns why a master did not answer.
func toMasters[C any](ctx context.Context, s *Store, calls []C, key func(*C) []byte, fail func(*C, error), send func(*node, []*C) error) {
	byShard := map[*shard][]*C{}
	for i := range calls {
		c := &calls[i]
		if sh, err := s.shardFor(ctx, key(c)); err != nil {
			fail(c, err)
		} else {
			byShard[sh] = append(byShard[sh], c)
		}
	}
	var group sync.WaitGroup
	for sh, list := range byShard {
		group.Go(func() {
			for part := range slices.Chunk(list, maxReports) {
				if !sh.breaker.Open() {
					sh.breaker.Record(clean(send(sh.node, part)))
					continue
				}
				for _, c := range part {
					fail(c, limiter.ErrBroken)
				}
			}
		})
	}
	group.Wait()
}

// merge makes one round trip, unless keys have moved to another master. It returns why this
// one did not answer.
func (n *node) merge(ctx context.Context, b *batch, list []*mergeCall) (failure error) {
	size := int(max(1, n.maxWeight)) // in a cluster, different slots cannot share a script
	var cmds []redis.Cmder
	for from := 0; from < len(list); from += size {
		cmds = append(cmds, redis.NewIntSliceCmd(ctx, n.mergeArgs(b, list[from:min(len(list), from+size)])...))
	}
	how := redirect.Manner(0)
	if b.confirm {
		how = redirect.Confirmed
	}
	failure = n.sender.Run(ctx, n.client, cmds, how)
	for i, cmd := range cmds {
		part := list[i*size : min(len(list), (i+1)*size)]
		values, err := cmd.(*redis.IntSliceCmd).Result()
		if err == nil && len(values) != 1+b.numbers*len(part) {
			err = fmt.Errorf("the script returned %d numbers instead of %d", len(values), 1+b.numbers*len(part))
		}
		for j, c := range part {
			if err != nil {
				c.fail(clean(err))
			} else {
				c.answer(values[0], values[1+b.numbers*j:1+b.numbers*(j+1)])
			}
		}
	}
	return failure
}

func (n *node) mergeArgs(b *batch, list []*mergeCall) []any {
	keys := 0
	if b.opened {
		keys = 1
	}
	for _, c := range list {
		keys += len(c.keys)
	}
	args := append(make([]any, 0, 6+7*len(list)), "evalsha", b.script.sha, keys)
	for _, c := range list {
		for _, key := range c.keys {
			args = append(args, key)
		}
	}
	if b.opened {
		args = append(args, n.opened(list[0].keys[0]))
	}
	args = append(append(args, n.now()), b.head...)
	index := map[*limiter.Limit]int{}
	var rules []any
	for _, c := range list {
		if c.limit != nil && index[c.limit] == 0 {
			rules = append(rules, c.limit.Encoded())
			index[c.limit] = len(rules)
		}
	}
	if rules != nil {
		args = append(append(args, len(rules)), rules...)
	}
	for _, c := range list {
		if c.limit != nil {
			args = append(args, index[c.limit])
		}
		args = append(args, c.args...)
	}
	return args
}

// Counters returns the counts of a key and window: this region's own, and those merged from
// others.
func (s *Store) Counters(ctx context.Context, key []byte, start int64) (own int64, others map[string]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.dialTimeout())
	defer cancel()
	name := string(limiter.AppendCounters(nil, key, start))
	var fields map[string]string
	if s.cluster != nil {
		fields, err = s.cluster.HGetAll(ctx, name).Result()
	} else {
		fields, err = s.single.HGetAll(ctx, name).Result()
	}
	if err != nil {
		return 0, nil, err
	}
	return readCounters(fields)
}

func readCounters(fields map[string]string) (own int64, others map[string]int64, err error) {
	others = map[string]int64{}
	for field, text := range fields {
		region, other := strings.CutPrefix(field, regionField)
		if !other && field != ownField {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, nil, errForeign
		}
		if other {
			others[region] = n
		} else {
			own = n
		}
	}
	return own, others, nil
}
