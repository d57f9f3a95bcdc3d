package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// In a Cluster, calls of different slots of a master share a script too (lua.Across). Such
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

// loadAcross loads the scripts that serve several slots, if the server accepts them.
func (n *node) loadAcross(ctx context.Context) error {
	for _, sc := range n.scripts.across {
		if err := n.client.ScriptLoad(ctx, sc.src).Err(); refusesAcross(err) {
			n.keepApart(apartIfRefused)
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// part removes shared packs that the server refused as a whole, before running anything.
// It returns a pack for each call that must be sent again.
func (n *node) part(packs []*pack) (kept, lone []*pack) {
	kept = packs[:0:0]
	for _, p := range packs {
		if !p.across {
			kept = append(kept, p)
			continue
		}
		reply, err := p.cmd.Result()
		switch {
		case refusesAcross(err):
			n.keepApart(apartIfRefused)
			fallthrough
		case err != nil && movedAway(err):
			for i := range p.calls {
				lone = append(lone, n.alone(p, i))
			}
			continue
		case err == nil && len(reply) == 1+4*p.checks:
			before, rest := len(lone), reply[1:]
			for i, c := range p.calls {
				if isElsewhere(rest[:4*len(c.Checks)]) {
					lone = append(lone, n.alone(p, i))
				}
				rest = rest[4*len(c.Checks):]
			}
			if 2*(len(lone)-before) > len(p.calls) {
				n.keepApart(apartWhileMoving)
			}
		}
		kept = append(kept, p)
	}
	return kept, lone
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

// alone returns a pack for one call of another.
func (n *node) alone(p *pack, i int) *pack {
	lone := &pack{}
	lone.add(p.calls[i])
	lone.prepare(n.now(), n)
	return lone
}

// refusesAcross reports whether the server cannot run scripts that serve several slots.
func refusesAcross(err error) bool {
	return redis.HasErrorPrefix(err, "Error compiling script") || redis.HasErrorPrefix(err, "Unexpected ")
}
