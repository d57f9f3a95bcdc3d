package redisstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
)

// maxWeight bounds the calls that share one script (limiter.Call.Weight), and thus how long
// a script blocks the server: about 1 ms. Sharing saves Redis most of the cost of starting
// scripts.
const maxWeight = 200

// node runs batches on one master.
type node struct {
	client    *redis.Client
	cluster   *redis.ClusterClient // nil unless mode is cluster
	clock     func() int64
	scripts   *scripts
	maxWeight int64        // of calls that need not be in one slot
	slots     bool         // calls of different slots may share a script; see across.go
	apart     atomic.Int64 // until then they may not; since born
	spare     sync.Pool    // *packing
	born      time.Time
	watching  sync.Mutex // guards watch
	watch     limiter.ClockWatch
	clockSet  func(by time.Duration) // nil if not needed
	givenUp   atomic.Int64           // until then, do not wait for an owner of slots; since born
}

func newNode(client *redis.Client, cluster *redis.ClusterClient, clock func() int64) *node {
	n := &node{
		client: client, cluster: cluster, clock: clock, born: time.Now(), maxWeight: maxWeight, scripts: allScripts(),
		spare: sync.Pool{New: func() any { return &packing{} }},
	}
	if cluster != nil {
		n.maxWeight, n.slots = 0, true
	}
	return n
}

// Do runs the calls in one round trip. Calls that Redis refused before running them (no
// such script, moved, no owner) are sent again; others never are, since they may have been charged.
func (n *node) Do(ctx context.Context, calls []*limiter.Call) {
	memory := n.spare.Get().(*packing)
	defer n.spare.Put(memory)
	packs := n.pack(memory, calls)
	from := time.Since(n.born)
	n.exec(ctx, packs, n.client.Pipeline())
	n.watchClock(packs[0], from)

	for range maxLoads {
		unloaded := failing(packs, notLoaded)
		if len(unloaded) == 0 {
			break
		}
		teach(unloaded)
		n.exec(ctx, unloaded, n.client.Pipeline())
	}
	if n.cluster != nil {
		packs = n.follow(ctx, packs)
	}
	for _, p := range packs {
		p.answer()
	}
}

// While a replica takes over, a third node may know of no owner for a few milliseconds,
// because it hears from the old master and the new one separately. While a slot moves, two
// masters may each have some keys of a request. The last pause is 64 ms.
// If that is not enough, the slots are down, and for a while no call waits for them.
const (
	maxFollows  = 8
	firstFollow = time.Millisecond
	givenUpFor  = time.Second
)

// follow sends packs whose slots have moved to their new owner. It returns all packs that
// have answers.
func (n *node) follow(ctx context.Context, packs []*pack) []*pack {
	packs, lone := n.part(packs)
	moved := append(failing(packs, movedAway), lone...)
	packs = append(packs, lone...)
	for i := 0; len(moved) > 0; i++ {
		if i > 0 && !n.waitForOwner(ctx, i) {
			break // the packs keep the reason
		}
		n.cluster.ReloadState(ctx)
		for _, p := range moved {
			p.withSource() // the new owner may lack the script
		}
		n.exec(ctx, moved, n.cluster.Pipeline()) // follows MOVED and ASK
		moved = failing(moved, unsettled)
	}
	if len(failing(packs, isFailure)) > 0 {
		n.cluster.ReloadState(ctx)
	}
	return packs
}

// waitForOwner pauses before another attempt, and reports whether to make it.
func (n *node) waitForOwner(ctx context.Context, try int) bool {
	now := int64(time.Since(n.born))
	if now < n.givenUp.Load() {
		return false
	}
	if try < maxFollows && pause(ctx, firstFollow<<(try-1)) {
		return true
	}
	n.givenUp.Store(int64(time.Since(n.born) + givenUpFor))
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

func (n *node) exec(ctx context.Context, packs []*pack, pipe redis.Pipeliner) {
	for _, p := range packs {
		p.cmd = redis.NewIntSliceCmd(ctx, p.args...)
		_ = pipe.Process(ctx, once{p.cmd}) // queues only
	}
	_, _ = pipe.Exec(ctx) // each command holds its own error
}

// watchClock compares the server's clock, from its first answer, with the local clock.
func (n *node) watchClock(p *pack, from time.Duration) {
	if n.clockSet == nil || p.cmd.Err() != nil {
		return
	}
	to := time.Since(n.born)
	n.watching.Lock()
	by := n.watch.See(p.cmd.Val()[0], from, to)
	n.watching.Unlock()
	if by != 0 {
		n.clockSet(by)
	}
}

// once is a command that the client must not retry: after a timeout it may have run. It
// still follows MOVED and ASK, which prove that it has not.
type once struct{ *redis.IntSliceCmd }

// NoRetry implements redis.Cmder.
func (once) NoRetry() bool { return true }

// maxLoads bounds how often a batch is sent again because Redis lost its scripts in the
// meantime.
const maxLoads = 3

// teach makes the first pack of each script carry its source. Redis caches it for the
// rest of the pipeline.
func teach(packs []*pack) {
	taught := map[*script]bool{}
	for _, p := range packs {
		if !taught[p.script] {
			p.withSource()
			taught[p.script] = true
		}
	}
}

func (p *pack) withSource() { p.args[0], p.args[1] = "eval", p.script.src }

func (n *node) load(ctx context.Context) error {
	var errs []error
	for _, sc := range n.scripts.all() {
		errs = append(errs, n.client.ScriptLoad(ctx, sc.src).Err())
	}
	if n.slots {
		errs = append(errs, n.loadAcross(ctx))
	}
	return errors.Join(errs...)
}

// probe runs the script without any checks.
func (n *node) probe(ctx context.Context) error {
	err := n.client.EvalSha(ctx, n.scripts.take.sha, nil, "", "", 0).Err()
	if notLoaded(err) {
		return n.load(ctx)
	}
	if n.cluster != nil && err != nil {
		n.cluster.ReloadState(ctx)
	}
	return err
}

// failing returns the packs whose error is of the given kind.
func failing(packs []*pack, kind func(error) bool) []*pack {
	var found []*pack
	for _, p := range packs {
		if err := p.cmd.Err(); err != nil && kind(err) {
			found = append(found, p)
		}
	}
	return found
}

func notLoaded(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

func movedAway(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || unsettled(err)
}

// unsettled reports whether nobody owns a slot for the moment, or two masters have some of
// its keys each.
func unsettled(err error) bool {
	return redis.HasErrorPrefix(err, "CLUSTERDOWN") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

// isFailure reports whether the shard, not the call, is at fault: another node may have
// taken over.
func isFailure(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return true // network, timeout, pool
	}
	for _, prefix := range []string{
		"READONLY", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "BUSY", "OOM", "NOAUTH", "NOPERM", "WRONGPASS",
		"MISCONF", "NOREPLICAS", "MOVED", "ASK", "TRYAGAIN", "NOSCRIPT", "max number of clients",
		"Protocol error", // a long command before authentication
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// ErrorKind maps a store error to one of a small fixed set of kinds, for a metric.
func ErrorKind(err error) string {
	switch {
	case errors.Is(err, limiter.ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timeout" // the connection's deadline is the budget too, and may expire first; Spread may leave a shard less
	case errors.Is(err, limiter.ErrBroken):
		return "breaker_open"
	case errors.Is(err, limiter.ErrOverloaded):
		return "queue_full"
	case errors.Is(err, errNoTopology):
		return "no_topology"
	case errors.Is(err, limiter.ErrReply) && isFailure(err):
		return "unavailable"
	case errors.Is(err, limiter.ErrReply):
		return "reply"
	}
	return "connection"
}

// ReplyCode returns the first word of an error that Redis sent, such as OOM; "" for any
// other error.
func ReplyCode(err error) string {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return ""
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	return code
}

// clean reduces an error to what a caller needs, with the sentinel to branch on.
func clean(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) {
		return fmt.Errorf("%w: %w", limiter.ErrReply, err)
	}
	return err
}

func (n *node) now() string {
	if n.clock == nil {
		return ""
	}
	return strconv.FormatInt(n.clock(), 10)
}
