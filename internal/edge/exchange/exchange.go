// Package exchange maintains limits that regions share. It sends other regions what this region's
// nodes admitted, and charges what other regions admitted to this region's store. All of it
// runs off the request path.
//
// Keys are divided into partitions. In each region a partition has an owner, found by
// rendezvous hashing among the region's nodes. Every global.Period
//
//	each node    lets the store count what it let pass, and reports the totals to the owners
//	each owner   sends the owners of its partitions in other regions what they lack
//	an answer    brings back what the caller lacks
//
// and the owners charge what arrives immediately. Counts only grow and are merged by maximum,
// in memory and in the store, so two nodes that both claim a partition, messages that are lost,
// duplicated or late, and the death of an owner do no harm.
package exchange

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/tally"
)

// Partitions is how many parts keys are divided into, the same in every region.
const Partitions = 64

// Topics of messages.
const (
	TopicTotals = "totals" // from a node to an owner in its region
	TopicCounts = "counts" // from an owner to one in another region
	TopicReset  = "reset"  // of a key, by an operator
	TopicShort  = "short"  // from a node to an owner in its region: keys in escrow that run short
	TopicRights = "rights" // from an owner to one in another region
	TopicTerms  = "terms"  // from a node to one in another region: promises of windows
)

// Directory lists the nodes, as peer.Directory does.
type Directory interface {
	IsSelf(peer.Node) bool
	Regions() []string
	Owner(region, key string) (peer.Node, bool)
}

// Caller sends a message and returns the reply, as peer.Links does.
type Caller interface {
	Call(ctx context.Context, to peer.Node, topic string, body []byte) ([]byte, error)
}

// Config of an Exchange.
type Config struct {
	Region, Node string // this node's
	Directory    Directory
	Caller       Caller
	Store        limiter.Merger
	Tallies      *tally.Store
	Escrow       Escrow
	// Limit returns the limit of a rule and tier, or nil if there is no such limit.
	Limit func(rule, tier string) *limiter.Limit
	// Needed reports whether any limit is shared; nil means yes. While none is, this node
	// only answers.
	Needed func() bool
	// Reset clears the state of a key, as an operator's request does.
	Reset func(ctx context.Context, checks []limiter.Check) error
	// Incarnation exceeds that of every earlier process of this node.
	Incarnation int64
	// Clock returns monotonic time, by default the system's; Wall returns Unix time in
	// microseconds.
	Clock func() time.Duration
	Wall  func() int64
}

// Exchange is one node's side of the exchange.
type Exchange struct {
	config Config
	born   time.Duration
	parts  [Partitions]part
	wake   chan struct{} // signals work for charge
	calls  sync.WaitGroup
	usages sync.Map // *usage by rule

	holdings       [Partitions]holdings
	gave, received atomic.Int64 // units of rights
	burns          burns
	tenure         tenure

	// Used only by the ticking goroutine:
	ticks  int
	needed bool
	owners [Partitions]peer.Node // in this region
	losses int64                 // of the store, as last reported
	flush  chan flushed          // of a flush in progress; nil if there is none

	mu       sync.Mutex
	heard    time.Duration // when this region last heard from another, as far as this node knows
	inFlight map[errand]int
}

// New returns an Exchange; Run starts it.
func New(c Config) *Exchange {
	if c.Clock == nil {
		born := time.Now()
		c.Clock = func() time.Duration { return time.Since(born) }
	}
	if c.Wall == nil {
		c.Wall = func() int64 { return time.Now().UnixMicro() }
	}
	x := &Exchange{config: c, born: c.Clock(), wake: make(chan struct{}, 1), inFlight: map[errand]int{}}
	x.heard = x.born
	return x
}

// Run exchanges until ctx ends.
func (x *Exchange) Run(ctx context.Context) {
	var charging sync.WaitGroup
	defer charging.Wait()
	defer x.calls.Wait()
	charging.Go(func() { x.charge(ctx) })
	tick := time.NewTicker(global.Period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if x.needed {
				if x.flush != nil {
					<-x.flush // ends with ctx
					x.flush = nil
				}
				x.exchange(last, time.Second) // what was admitted since
				x.calls.Wait()
			}
			return
		case <-tick.C:
			x.tick(ctx)
		}
	}
}

func partitionOf(key string) int { return int(xxhash.Sum64String(key) % Partitions) }

// names identifies partitions when finding their owners.
var names = func() (names [Partitions]string) {
	for i := range names {
		names[i] = "partition/" + string(rune('0'+i/10)) + string(rune('0'+i%10))
	}
	return names
}()

// position returns the regions and this one's index; false if there is no other.
func (x *Exchange) position() (regions []string, self int, ok bool) {
	regions = x.config.Directory.Regions()
	self = slices.Index(regions, x.config.Region)
	return regions, self, self >= 0 && len(regions) > 1
}

func (x *Exchange) tick(ctx context.Context) {
	x.ticks++
	if x.ticks%10 == 0 {
		x.sweep()
		x.sweepHoldings()
	}
	if x.config.Escrow.Needed == nil || x.config.Escrow.Needed() {
		x.renew(ctx)
	}
	before := x.needed
	x.needed = x.config.Needed == nil || x.config.Needed()
	if x.needed && !before {
		x.noteHeard(x.config.Clock()) // until now there was no reason to ask
		x.config.Tallies.TellAgain(func(string) bool { return true })
	}
	if x.needed || before { // once more, for requests admitted under the last limit
		x.exchange(ctx, flushFor)
	}
	if !x.needed {
		x.config.Tallies.SetAlone(0, 1)
		x.config.Tallies.Sweep(x.config.Wall())
	}
}

// flushed is what a flush of the tallies returned.
type flushed struct {
	totals []tally.Total
	losses int64
}

// flushFor is how long an exchange waits for the store; the last one waits longer.
const flushFor = global.Period / 2

// flushTallies makes the store count. A hanging store does not delay what others receive:
// its answer goes out with the next exchange after it.
func (x *Exchange) flushTallies(ctx context.Context, patience time.Duration) flushed {
	if x.flush == nil {
		done := make(chan flushed, 1)
		x.flush = done
		x.calls.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			totals, losses := x.config.Tallies.Flush(ctx)
			done <- flushed{totals, losses}
		})
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case f := <-x.flush:
		x.flush = nil
		return f
	case <-late.C:
		return flushed{losses: x.losses}
	}
}

// exchange waits for the store at most patience.
func (x *Exchange) exchange(ctx context.Context, patience time.Duration) {
	var moved [Partitions]bool
	changed := false
	for p := range x.owners {
		if owner, ok := x.config.Directory.Owner(x.config.Region, names[p]); ok && owner != x.owners[p] {
			x.owners[p], moved[p], changed = owner, true, true
		}
	}
	if changed {
		x.config.Tallies.TellAgain(func(key string) bool { return moved[partitionOf(key)] })
	}
	f := x.flushTallies(ctx, patience)
	x.config.Tallies.Sweep(x.config.Wall())

	regions, number, others := x.position()
	if !others {
		x.config.Tallies.Confirm(f.totals)
		x.config.Tallies.SetAlone(0, 1)
		return
	}
	x.burn(ctx, f.losses > x.losses)
	x.report(ctx, f.totals, f.losses)
	x.exchangeRights(ctx, regions)
	x.send(ctx, regions, number)
	x.updateLastHeard(regions)
}

// updateLastHeard records when other regions were last heard from.
func (x *Exchange) updateLastHeard(regions []string) {
	now := x.config.Clock()
	for p := range x.parts {
		if heard, ok := x.parts[p].heard(now); ok {
			x.noteHeard(heard)
		}
	}
	x.mu.Lock()
	alone := now - x.heard
	x.mu.Unlock()
	x.config.Tallies.SetAlone(alone, len(regions))
}

func (x *Exchange) noteHeard(at time.Duration) {
	x.mu.Lock()
	x.heard = max(x.heard, at)
	x.mu.Unlock()
}

// errand is the purpose of a message and its receiver. Each errand has its own bound: counts,
// sent every 100 ms, are always in flight to a distant node and must not block promises to it.
type errand struct {
	to    peer.Node
	topic string
}

// maxInFlight bounds an errand's unanswered messages. Later messages repeat the content of
// earlier ones, so no queue is needed.
const maxInFlight = 3

// call sends a message in the background, unless its errand has too many in flight.
func (x *Exchange) call(ctx context.Context, to peer.Node, topic string, body func() []byte, answered func(reply []byte)) {
	e := errand{to, topic}
	x.mu.Lock()
	busy := x.inFlight[e] >= maxInFlight
	if !busy {
		x.inFlight[e]++
	}
	x.mu.Unlock()
	if busy {
		return
	}
	message := body()
	x.calls.Go(func() {
		call, cancel := context.WithTimeout(ctx, callWithin)
		reply, err := x.config.Caller.Call(call, to, topic, message)
		cancel()
		x.mu.Lock()
		if x.inFlight[e]--; x.inFlight[e] == 0 {
			delete(x.inFlight, e)
		}
		x.mu.Unlock()
		if err == nil {
			answered(reply)
		}
	})
}

// callWithin limits the wait for a reply. The content is sent again after a second.
const callWithin = 2 * time.Second
