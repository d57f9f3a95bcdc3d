package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter/redisstore/redirect"
)

// In a Cluster, calls of different slots of a master share a script too (lua.SeveralSlots). Such
// a script answers `elsewhere` for a key that the master does not have, because its slot has
// moved or is moving; that request charges nothing and goes to the key's owner in a script of its own.

// How long calls of different slots do not share scripts after a server refused most keys
// of one, as while many slots move, or refused the script, as Redis before 7.0 does.
const (
	apartWhileMoving = time.Second
	apartIfRefused   = time.Minute
)

// sharesSlots reports whether calls of different slots may share a script now.
func (n *node) sharesSlots() bool {
	return n.slots && int64(time.Since(n.born)) >= n.apart.Load()
}

func (n *node) keepApart(d time.Duration) { n.apart.Store(int64(time.Since(n.born) + d)) }

// loadSeveralSlots loads the scripts that serve several slots, if the server accepts them.
func (n *node) loadSeveralSlots(ctx context.Context) error {
	for _, sc := range n.scripts.severalSlots {
		if err := n.client.ScriptLoad(ctx, sc.src).Err(); refusesSeveralSlots(err) {
			n.keepApart(apartIfRefused)
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// leave marks the calls of a pack that another master has to decide.
func (n *node) leave(p *pack) {
	reply, err := p.cmd.Result()
	if n.cluster == nil || err == nil && (!p.severalSlots || len(reply) != 1+4*p.checks) {
		return
	}
	if err != nil {
		n.leaveAll(p, err)
		return
	}
	left, rest := 0, reply[1:]
	for _, c := range p.calls {
		if isElsewhere(rest[:4*len(c.Checks)]) {
			c.Elsewhere = redirect.ErrElsewhere
			left++
		}
		rest = rest[4*len(c.Checks):]
	}
	if 2*left > len(p.calls) {
		n.keepApart(apartWhileMoving)
	}
}

// leaveAll does so for a pack that the server refused as a whole, before running anything.
func (n *node) leaveAll(p *pack, why error) {
	switch {
	case p.severalSlots && refusesSeveralSlots(why):
		n.keepApart(apartIfRefused)
	case !redirect.Moved(why) || p.cmd.Divisible() && redirect.Divides(why):
		return
	}
	if p.severalSlots {
		why = redirect.ErrElsewhere
	}
	for _, c := range p.calls {
		c.Elsewhere = why
	}
}

// isElsewhere reports whether another master has a key of a call with these answers.
func isElsewhere(answers []int64) bool {
	for i := 0; i < len(answers); i += 4 {
		if answers[i] == elsewhere {
			return true
		}
	}
	return false
}

// refusesSeveralSlots reports whether the server cannot run scripts that serve several slots.
func refusesSeveralSlots(err error) bool {
	return redis.HasErrorPrefix(err, "Error compiling script") || redis.HasErrorPrefix(err, "Unexpected ")
}
