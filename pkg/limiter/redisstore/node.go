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
	"github.com/weir-edge/weir/pkg/limiter/redisstore/redirect"
)

// maxWeight bounds the calls that share one script (limiter.Call.Weight), and thus how long
// a script blocks the server: about 1 ms. Sharing saves Redis most of the cost of starting
// scripts.
const maxWeight = 200

// node runs batches on one master.
type node struct {
	client    *redis.Client
	patient   *redis.Client        // the same, which also hears answers that come late
	cluster   *redis.ClusterClient // nil unless mode is cluster
	sender    *redirect.Sender
	clock     func() int64
	scripts   *scripts
	maxWeight int64        // of calls that need not be in one slot
	slots     bool         // calls of different slots may share a script; see severalslots.go
	apart     atomic.Int64 // until then they may not; since born
	spare     sync.Pool    // *packing
	born      time.Time
	watching  sync.Mutex // guards watch
	watch     ClockWatch
	clockSet  func(by time.Duration) // nil if not needed
}

func newNode(client *redis.Client, cluster *redis.ClusterClient, servers *redirect.Servers, clock func() int64) *node {
	n := &node{
		client: client, patient: client, cluster: cluster, clock: clock, born: time.Now(), maxWeight: maxWeight, scripts: allScripts(),
		sender: redirect.NewSender(cluster, servers, allScripts().sources),
		spare:  sync.Pool{New: func() any { return &packing{} }},
	}
	if cluster != nil {
		n.maxWeight, n.slots = 0, true
	}
	return n
}

// Do runs the calls in one round trip. It leaves to Follow those whose keys this master does
// not have.
func (n *node) Do(ctx context.Context, calls []*limiter.Call, by time.Time) (rest func()) {
	m := n.spare.Get().(*packing)
	packs := n.pack(m, calls)
	from := time.Since(n.born)
	if by.IsZero() {
		_ = n.sender.Send(ctx, n.patient, m.commands(ctx, packs), 0) // each command holds its error
	} else if rest := n.sender.Lead(ctx, n.patient, m.commands(ctx, packs), by); rest != nil {
		return func() { rest(); n.answer(m, packs, from) }
	}
	n.answer(m, packs, from)
	return nil
}

// answer distributes the replies.
func (n *node) answer(m *packing, packs []*pack, from time.Duration) {
	n.watchClock(packs[0], from)
	for _, p := range packs {
		n.leave(p)
		p.answer()
	}
	n.spare.Put(m)
}

// Follow runs each call in a script of its own, on the master of its keys.
func (n *node) Follow(ctx context.Context, calls []*limiter.Call) {
	var m packing
	for _, c := range calls {
		p := &pack{}
		p.add(c)
		p.prepare(n.now(), n)
		m.packs = append(m.packs, p)
	}
	cmds := m.commands(ctx, m.packs)
	for i, c := range calls {
		cmds[i].SetErr(c.Elsewhere)
		c.Elsewhere = nil
	}
	n.sender.Follow(ctx, cmds, 0)
	for i, c := range calls {
		if m.packs[i].answer(); c.Err != nil && !errors.Is(c.Err, limiter.ErrReply) {
			c.Err = fmt.Errorf("%w: %w", limiter.ErrElsewhere, c.Err)
		}
	}
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

func (n *node) load(ctx context.Context) error {
	var errs []error
	for _, sc := range n.scripts.all() {
		errs = append(errs, n.client.ScriptLoad(ctx, sc.src).Err())
	}
	if n.slots {
		errs = append(errs, n.loadSeveralSlots(ctx))
	}
	return errors.Join(errs...)
}

// probe runs the script without any checks.
func (n *node) probe(ctx context.Context) error {
	err := n.client.EvalSha(ctx, n.scripts.take.sha, nil, "", "", 0).Err()
	if redirect.NotLoaded(err) {
		return n.load(ctx)
	}
	if n.cluster != nil && err != nil {
		n.cluster.ReloadState(ctx)
	}
	return err
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
	case errors.Is(err, limiter.ErrReply) && redirect.Failure(err):
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
