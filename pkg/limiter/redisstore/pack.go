package redisstore

import (
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
)

// pack is a group of calls that share one script, and its arguments. See take.lua and
// return.lua for their order.
type pack struct {
	script *script
	calls  []*limiter.Call
	cmd    *redis.IntSliceCmd
	args   []any
	rules  []*limiter.Limit
	checks int // answered in the reply
	weight int64
}

type script struct{ sha, src string }

// errForeign fails a call if another program wrote one of its keys.
var errForeign = clean(replyError("WRONGTYPE a key holds what no rule has written; delete it"))

// replyError is a fault that a script reports in its reply.
type replyError string

var _ redis.Error = replyError("")

func (e replyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (replyError) RedisError() {}

func newScript(src string) *script {
	return &script{sha: redis.NewScript(src).Hash(), src: src}
}

// pack groups the calls into scripts, reusing the last batch's memory.
func (n *node) pack(calls []*limiter.Call) []*pack {
	used := 0
	open := func(sc *script) *pack {
		if used == len(n.packs) {
			n.packs = append(n.packs, &pack{})
		}
		p := n.packs[used]
		used++
		p.script, p.calls, p.rules, p.checks, p.weight = sc, p.calls[:0], p.rules[:0], 0, 0
		return p
	}
	var taking, returning *pack
	for _, c := range calls {
		target, sc := &taking, n.takeScript
		if c.Return {
			target, sc = &returning, n.returnScript
		}
		weight := c.Weight()
		if *target == nil || (*target).weight+weight > n.maxWeight {
			*target = open(sc)
		}
		(*target).add(c)
		(*target).weight += weight
	}
	clock := n.now()
	for _, p := range n.packs[:used] {
		p.encode(clock)
	}
	return n.packs[:used]
}

func (p *pack) add(c *limiter.Call) {
	p.calls = append(p.calls, c)
	p.checks += len(c.Checks)
	for i := range c.Checks {
		if p.rule(c.Checks[i].Limit) == 0 {
			p.rules = append(p.rules, c.Checks[i].Limit)
		}
	}
}

// rule returns the index of a limit in the pack, from 1, or 0 if it is not there.
func (p *pack) rule(l *limiter.Limit) int {
	for i, known := range p.rules {
		if known == l {
			return i + 1
		}
	}
	return 0
}

// encode writes the arguments, without allocating for pointers and small numbers.
func (p *pack) encode(clock string) {
	clear(p.args)
	a := append(p.args[:0], "evalsha", p.script.sha, p.checks)
	for _, c := range p.calls {
		for i := range c.Checks {
			a = append(a, c.Checks[i].Key)
		}
	}
	a = append(a, clock, len(p.rules))
	for _, l := range p.rules {
		a = append(a, l.Encoded())
	}
	for _, c := range p.calls {
		if c.Return {
			for i := range c.Checks {
				check := &c.Checks[i]
				a = append(a, p.rule(check.Limit), check.Cost, c.TakenAt[i], slotText(check.Slot))
			}
			continue
		}
		a = append(a, c.Times, len(c.Checks))
		for i := range c.Checks {
			check := &c.Checks[i]
			a = append(a, p.rule(check.Limit), int(check.Cost))
			if check.Limit.Algorithm == limiter.Concurrency {
				a = append(a, slotText(check.Slot))
			}
		}
	}
	p.args = a
}

func slotText(slot uint64) string { return strconv.FormatUint(slot, 36) }

// answer distributes the reply to the calls.
func (p *pack) answer() {
	reply, err := p.cmd.Result()
	if err == nil && !p.calls[0].Return && len(reply) != 1+4*p.checks {
		err = fmt.Errorf("the script returned %d numbers instead of %d", len(reply), 1+4*p.checks)
	}
	if err = clean(err); err != nil || p.calls[0].Return {
		for _, c := range p.calls {
			c.Err = err
		}
		return
	}
	now, rest := reply[0], reply[1:]
	for _, c := range p.calls {
		c.Now = now
		for range c.Checks {
			c.Answers = append(c.Answers, limiter.Answer{Fits: rest[0], Remaining: rest[1], Retry: rest[2], Reset: rest[3]})
			rest = rest[4:]
		}
		if len(c.Answers) > 0 && c.Answers[0].Fits < 0 {
			c.Answers, c.Err = c.Answers[:0], errForeign
		}
	}
}
