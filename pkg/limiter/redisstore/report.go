package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Reports are plain commands, which cost Redis a tenth of a script: INCRBY adds to the
// counter of a window and returns the sum, GET only reads it. A bucket also drains over
// time, so it needs a script. All reports to one master go in one pipeline.

// maxReports bounds one pipeline, and thus how long it keeps a master busy: a few
// milliseconds, during which Redis also serves other clients.
const maxReports = 4096

var _ limiter.Reporter = (*Store)(nil)

// Report answers the reports.
func (s *Store) Report(ctx context.Context, reports []limiter.Report) {
	for i := range reports {
		reports[i].Err, reports[i].Lost = nil, false
	}
	toMasters(ctx, s, reports, func(r *limiter.Report) []byte { return r.Key }, func(r *limiter.Report, err error) { r.Err = err },
		func(n *node, list []*limiter.Report) error { return n.report(ctx, list) })
}

// bucketPack is a script call that answers for some buckets.
type bucketPack struct {
	cmd  *redis.IntSliceCmd
	list []*limiter.Report
}

// report makes one round trip, unless keys have moved to another master. It returns why this
// one did not answer.
func (n *node) report(ctx context.Context, list []*limiter.Report) (failure error) {
	clock := redis.NewTimeCmd(ctx, "time")
	cmds := []redis.Cmder{clock}
	type window struct{ count, before redis.Cmder }
	windows := make([]window, len(list))
	var packs []bucketPack
	for i, r := range list {
		if r.Limit.Algorithm == limiter.TokenBucket {
			packs = n.packBucket(packs, r)
			continue
		}
		windows[i].count, cmds = add(ctx, cmds, r.Key, r.Units, r.Expire)
		if r.Earlier != nil {
			windows[i].before, cmds = add(ctx, cmds, r.Earlier, r.Late, r.Expire-r.Limit.Window)
		}
	}
	for i := range packs {
		packs[i].cmd = redis.NewIntSliceCmd(ctx, n.bucketArgs(packs[i].list)...)
		cmds = append(cmds, packs[i].cmd)
	}
	failure = n.sender.Run(ctx, n.client, cmds, 0)

	now := clock.Val().UnixMicro()
	if n.clock != nil {
		now = n.clock()
	}
	failed := func(r *limiter.Report, err error) { r.Err, r.Lost = clean(err), maySent(err) }
	for i, r := range list {
		if windows[i].count == nil {
			continue
		}
		var err error
		r.Now = now
		if r.Count, err = value(windows[i].count); err == nil && windows[i].before != nil {
			r.Before, err = value(windows[i].before)
		}
		if err == nil {
			err = clock.Err()
		}
		if err != nil {
			failed(r, err)
			r.Lost = r.Lost || windows[i].count.Err() == nil // counted, although another command failed
		}
	}
	for _, p := range packs {
		levels, err := p.cmd.Result()
		if err == nil && len(levels) != 1+len(p.list) {
			err = fmt.Errorf("the script returned %d numbers instead of %d", len(levels), 1+len(p.list))
		}
		for i, r := range p.list {
			switch {
			case err != nil:
				failed(r, err)
			case levels[1+i] < 0:
				r.Err = errForeign
			default:
				_, unit := r.Limit.Rate()
				r.Err, r.Lost = nil, false
				r.Now, r.Level = levels[0], float64(levels[1+i])/float64(unit)
			}
		}
	}
	return failure
}

// add appends the command that adds units to a window's counter, or only reads it.
func add(ctx context.Context, cmds []redis.Cmder, key []byte, units int64, expire time.Duration) (redis.Cmder, []redis.Cmder) {
	if units == 0 {
		cmd := redis.NewStringCmd(ctx, "get", key)
		return cmd, append(cmds, cmd)
	}
	cmd := redis.NewIntCmd(ctx, "incrby", key, units)
	cmds = append(cmds, cmd)
	if expire > 0 {
		cmds = append(cmds, redis.NewBoolCmd(ctx, "pexpire", key, max(1, expire.Milliseconds())))
	}
	return cmd, cmds
}

func value(cmd redis.Cmder) (int64, error) {
	switch c := cmd.(type) {
	case *redis.IntCmd:
		return c.Result()
	case *redis.StringCmd:
		text, err := c.Result()
		if errors.Is(err, redis.Nil) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, errForeign
		}
		return n, nil
	}
	return 0, cmd.Err()
}

// maySent reports whether a failed command may have run: it has not if the server refused
// it or no connection was made.
func maySent(err error) bool {
	var reply redis.Error
	var network *net.OpError
	return !errors.As(err, &reply) && !(errors.As(err, &network) && network.Op == "dial")
}

// packBucket puts a report into a pack with room for it. In a cluster, those of different
// slots cannot share a script.
func (n *node) packBucket(packs []bucketPack, r *limiter.Report) []bucketPack {
	if last := len(packs) - 1; last >= 0 && int64(len(packs[last].list)) < n.maxWeight {
		packs[last].list = append(packs[last].list, r)
		return packs
	}
	return append(packs, bucketPack{list: []*limiter.Report{r}})
}

func (n *node) bucketArgs(list []*limiter.Report) []any {
	args := append(make([]any, 0, 5+4*len(list)), "evalsha", n.scripts.report.sha, len(list))
	for _, r := range list {
		args = append(args, r.Key)
	}
	index := map[*limiter.Limit]int{}
	var rules []any
	for _, r := range list {
		if index[r.Limit] == 0 {
			rules = append(rules, r.Limit.Encoded())
			index[r.Limit] = len(rules)
		}
	}
	args = append(append(args, n.now(), len(rules)), rules...)
	for _, r := range list {
		args = append(args, index[r.Limit], r.Units)
	}
	return args
}

// Forget deletes counters.
func (s *Store) Forget(ctx context.Context, keys [][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.dialTimeout())
	defer cancel()
	for _, key := range keys {
		if err := s.unlink(ctx, key); err != nil {
			return err
		}
	}
	return nil
}
