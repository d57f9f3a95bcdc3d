// Package redirect sends commands to a Redis server, and to other masters of its Cluster those
// whose keys these have.
package redirect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sender sends commands. go-redis would wait 10 ms or more before it follows a redirect in a
// pipeline, on the connections that decisions use.
type Sender struct {
	cluster *redis.ClusterClient // nil: redirects are errors
	servers *Servers
	sources map[string]string // of scripts, by SHA-1
	born    time.Time
	givenUp atomic.Int64 // until then, do not wait for an owner of slots; since born
	spare   sync.Pool    // *until
	warming atomic.Bool
}

// NewSender returns a Sender. cluster and servers are nil unless there is a Cluster.
func NewSender(cluster *redis.ClusterClient, servers *Servers, sources map[string]string) *Sender {
	return &Sender{cluster: cluster, servers: servers, sources: sources, born: time.Now()}
}

// Divisible is a command with several keys of a slot, which its caller can also send one by one.
type Divisible interface{ Divisible() bool }

// Manner is how to send commands.
type Manner uint8

const (
	// asking: the server is about to take over the slots of the keys.
	asking Manner = 1 << iota
	// Confirmed: an error unless a replica, if there is one, has received the writes.
	Confirmed
)

// maxLoads bounds how often commands are sent again because Redis lost their scripts in the
// meantime.
const maxLoads = 3

// Run sends commands to this master, and those whose keys another master has to that one. It
// returns why this master did not answer, if it did not; each command holds its own error.
func (s *Sender) Run(ctx context.Context, client *redis.Client, cmds []redis.Cmder, m Manner) (failure error) {
	failure = s.Send(ctx, client, cmds, m)
	if s.cluster != nil {
		s.Follow(ctx, cmds, m)
	}
	return failure
}

// Send sends commands to a server in one pipeline, and again with their sources those whose
// scripts it lacks.
func (s *Sender) Send(ctx context.Context, client *redis.Client, cmds []redis.Cmder, m Manner) (failure error) {
	var to pipeliner = client
	if m&Confirmed != 0 {
		conn := client.Conn() // WAIT refers to what this connection wrote
		defer func() { _ = conn.Close() }()
		defer func() { confirm(ctx, conn, cmds) }()
		to = conn
	}
	return s.settle(ctx, to, cmds, m, exec(ctx, to.Pipeline(), cmds, m))
}

type pipeliner interface{ Pipeline() redis.Pipeliner }

// settle sends commands whose scripts the server lacked.
func (s *Sender) settle(ctx context.Context, to pipeliner, cmds []redis.Cmder, m Manner, failure error) error {
	for range maxLoads {
		unloaded := failing(cmds, NotLoaded)
		if len(unloaded) == 0 {
			break
		}
		s.teach(unloaded)
		failure = exec(ctx, to.Pipeline(), unloaded, m)
	}
	if s.cluster != nil && len(failing(cmds, Failure)) > 0 {
		s.cluster.ReloadState(ctx)
	}
	return failure
}

// exec returns why the server did not answer, if it did not.
func exec(ctx context.Context, pipe redis.Pipeliner, cmds []redis.Cmder, m Manner) error {
	for _, cmd := range cmds {
		if m&asking != 0 {
			pipe.Do(ctx, "asking")
		}
		_ = pipe.Process(ctx, cmd) // queues only
	}
	_, _ = pipe.Exec(ctx)
	last := cmds[len(cmds)-1].Err() // a lost connection fails all that follow
	var reply redis.Error
	if errors.As(last, &reply) {
		return nil
	}
	return last
}

// While a replica takes over, a third node may know of no owner for a few milliseconds,
// because it hears from the old master and the new one separately. While a slot moves, two
// masters may each have some keys of a request. The last pause is 64 ms.
// If that is not enough, the slots are down, and for a while no call waits for them.
const (
	maxPauses  = 7
	firstPause = time.Millisecond
	givenUpFor = time.Second
	// hopsAtOnce is how many redirects are followed without a pause: nodes may disagree.
	hopsAtOnce = 3
)

// server is where commands go, and how.
type server struct {
	client *redis.Client
	manner Manner
}

// Follow sends commands whose keys another master has to that one, as redirects say. Keys of
// one command that two masters have are left to the caller, if it can divide them.
func (s *Sender) Follow(ctx context.Context, cmds []redis.Cmder, m Manner) {
	pauses := 0
	for hop := 0; ; hop++ {
		cmds = slices.DeleteFunc(failing(cmds, Moved), func(cmd redis.Cmder) bool {
			c, ok := cmd.(Divisible)
			return ok && c.Divisible() && Divides(cmd.Err())
		})
		if len(cmds) == 0 {
			return
		}
		if hop >= hopsAtOnce || hop > 0 && len(failing(cmds, unsettled)) == len(cmds) {
			if !s.waitForOwner(ctx, cmds, pauses) {
				return // they keep the reason
			}
			pauses++
		}
		to := map[server][]redis.Cmder{}
		for _, cmd := range cmds {
			if at, err := s.where(ctx, cmd); err != nil {
				cmd.SetErr(err)
			} else {
				at.manner |= m
				to[at] = append(to[at], cmd)
			}
		}
		var group sync.WaitGroup
		for at, list := range to {
			group.Go(func() { _ = s.Send(ctx, at.client, list, at.manner) })
		}
		group.Wait()
	}
}

// where returns the server that a redirect names, or the owner of the command's key.
func (s *Sender) where(ctx context.Context, cmd redis.Cmder) (to server, err error) {
	addr, ask := redis.IsAskError(cmd.Err())
	if ask {
		to.manner = asking
	} else if moved, ok := redis.IsMovedError(cmd.Err()); ok {
		addr = moved
	} else {
		owner, err := s.cluster.MasterForKey(ctx, keyOf(cmd))
		if err != nil {
			return to, err
		}
		addr = owner.Options().Addr
	}
	to.client, err = s.servers.at(dialable(addr))
	return to, err
}

// dialable brackets an IPv6 address, which Redis writes without.
func dialable(addr string) string {
	if i := strings.LastIndexByte(addr, ':'); i > 0 && addr[0] != '[' && strings.Contains(addr[:i], ":") {
		return net.JoinHostPort(addr[:i], addr[i+1:])
	}
	return addr
}

// keyOf returns the first key of a command.
func keyOf(cmd redis.Cmder) string {
	at := 1
	if name := cmd.Name(); name == "evalsha" || name == "eval" {
		at = 3
	}
	return fmt.Sprintf("%s", cmd.Args()[at])
}

// waitForOwner pauses before another attempt, and reports whether to make it.
func (s *Sender) waitForOwner(ctx context.Context, cmds []redis.Cmder, pauses int) bool {
	now := int64(time.Since(s.born))
	if now < s.givenUp.Load() {
		return false
	}
	if pauses < maxPauses {
		return pause(ctx, firstPause<<pauses)
	}
	if len(failing(cmds, Divides)) > 0 { // one open slot, which says nothing about others
		return false
	}
	s.givenUp.Store(int64(time.Since(s.born) + givenUpFor))
	return false
}

// pause waits for d and reports whether ctx is still active.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// teach makes the first command of each script carry its source. Redis caches it for the
// rest of the pipeline.
func (s *Sender) teach(cmds []redis.Cmder) {
	taught := map[any]bool{}
	for _, cmd := range cmds {
		args := cmd.Args()
		if sha := args[1]; !taught[sha] {
			args[0], args[1] = "eval", s.sources[sha.(string)]
			taught[sha] = true
		}
	}
}

// failing returns the commands whose error is of the given kind.
func failing(cmds []redis.Cmder, kind func(error) bool) []redis.Cmder {
	var found []redis.Cmder
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && kind(err) {
			found = append(found, cmd)
		}
	}
	return found
}
