// Package redisstore decides in Redis: a single server, one managed by Sentinel, or a
// Cluster. A shard is one master with its own stack of layers, so that a failing master
// does not delay another master's keys.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore/redirect"
)

// stateReloadEvery is how often the cluster's topology is reloaded. An unannounced
// failover is noticed within this time.
const stateReloadEvery = time.Second

// How long a shard that is no longer a master keeps its layers: another node with a stale
// topology may still send requests there, but not if it does not answer.
const (
	forgetAfter     = time.Minute
	forgetDownAfter = 4 * stateReloadEvery
)

// errNoTopology: the cluster's topology is not yet known.
var errNoTopology = errors.New("no cluster node answered yet")

// Store routes the checks of one slot to the shard that owns it.
type Store struct {
	config  Config
	single  *redis.Client        // modes single and sentinel
	cluster *redis.ClusterClient // mode cluster
	servers *redirect.Servers    // mode cluster
	byKey   *limiter.Spread      // mode cluster

	ready    atomic.Bool // the topology is known
	shards   atomic.Pointer[map[*redis.Client]*shard]
	mu       sync.Mutex // guards changes of shards
	ctx      context.Context
	stop     context.CancelFunc
	ended    chan struct{}
	answered chan struct{} // closed once the topology has been asked for

	watching sync.WaitGroup // of shards
}

// shard is one master with the layers in front of it.
type shard struct {
	client  *redis.Client
	node    *node
	combine *limiter.Combine
	breaker *limiter.Breaker
	seen    time.Time   // when it was last a master
	refuses atomic.Bool // it answers but accepts no writes
	unwatch context.CancelFunc
}

var _ limiter.FullStore = (*Store)(nil)

// Open prepares a Store without waiting for Redis: while Redis is unreachable, Take
// returns an error immediately, and the store recovers automatically.
func Open(c Config) (*Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{config: c, ctx: ctx, stop: cancel, ended: make(chan struct{}), answered: make(chan struct{})}
	s.shards.Store(&map[*redis.Client]*shard{})
	switch c.Mode {
	case Single:
		s.single = c.single()
	case Sentinel:
		s.single = c.sentinel()
	case Cluster:
		s.cluster, s.servers = c.cluster(), redirect.NewServers(c.server)
		s.byKey = limiter.NewApart(routed{s}, c.Timeout)
		go s.follow(ctx)
		return s, nil
	}
	s.ready.Store(true)
	close(s.answered)
	close(s.ended)
	if _, err := s.newShard(s.single); err != nil {
		return nil, err
	}
	return s, nil
}

// Slots reports whether checks of different subjects may live in different slots, so that
// no single script can decide them together.
func (s *Store) Slots() bool { return s.cluster != nil }

// Take decides the checks, which must all live in one slot. While that slot moves and two
// masters have some of their keys each, Take decides key by key, all or nothing.
func (s *Store) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	if s.byKey == nil || len(checks) < 2 {
		return routed{s}.Take(ctx, checks, d)
	}
	began := time.Now()
	err := routed{s}.Take(ctx, checks, d)
	if !redirect.Divides(err) {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(s.config.Timeout))
	defer cancel()
	return s.byKey.Take(ctx, checks, d)
}

// Return gives back what d took.
func (s *Store) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	err := routed{s}.Return(ctx, checks, d)
	if s.byKey != nil && len(checks) > 1 && redirect.Divides(err) {
		return s.byKey.Return(ctx, checks, d)
	}
	return err
}

// Reset deletes the keys of these checks.
func (s *Store) Reset(ctx context.Context, checks []limiter.Check) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.dialTimeout())
	defer cancel()
	for i := range checks {
		if err := s.unlink(ctx, checks[i].Key); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) unlink(ctx context.Context, key []byte) (err error) {
	if s.cluster != nil {
		err = s.cluster.Unlink(ctx, string(key)).Err()
	} else {
		err = s.single.Unlink(ctx, string(key)).Err()
	}
	if err != nil {
		return fmt.Errorf("reset %s: %w", key, err)
	}
	return nil
}

// Close answers the calls in progress, then stops all shards.
func (s *Store) Close() error {
	s.stop()
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready.Store(false)
	for _, sh := range *s.shards.Load() {
		sh.close()
	}
	s.shards.Store(&map[*redis.Client]*shard{})
	s.watching.Wait()
	if s.cluster != nil {
		s.servers.Close()
		return s.cluster.Close()
	}
	return s.single.Close()
}

func (s *Store) shardFor(ctx context.Context, key []byte) (*shard, error) {
	if !s.ready.Load() {
		return nil, errNoTopology
	}
	client := s.single
	if s.cluster != nil {
		var err error
		if client, err = s.cluster.MasterForKey(ctx, string(key)); err != nil {
			return nil, fmt.Errorf("find the master of a key: %w", err)
		}
	}
	if sh := (*s.shards.Load())[client]; sh != nil {
		return sh, nil
	}
	return s.newShard(client)
}

// newShard builds the layers in front of one master.
func (s *Store) newShard(client *redis.Client) (*shard, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.shards.Load()
	if sh := old[client]; sh != nil {
		return sh, nil
	}
	if !s.ready.Load() {
		return nil, limiter.ErrClosed
	}
	addr := client.Options().Addr
	node := newNode(client, s.cluster, s.servers, s.config.Clock)
	node.patient = client.WithTimeout(s.config.late())
	if set := s.config.Hooks.Clock; set != nil {
		node.clockSet = func(by time.Duration) { set(addr, by) }
	}
	combine := limiter.NewCombine(node, s.config.Timeout, s.config.MaxBatchesInFlight, s.config.Linger, s.config.Hooks.Batch)
	down := false
	breaker := limiter.NewBreaker(combine, s.config.Timeout, node.probe, func(err error) {
		s.tell(addr, err)
		if was := down; s.cluster != nil && was != (err != nil) {
			down = !was
			s.cluster.ReloadState(context.Background()) // another node may have taken over
		}
	})
	ctx, cancel := context.WithCancel(s.ctx)
	sh := &shard{client: client, node: node, combine: combine, breaker: breaker, seen: time.Now(), unwatch: cancel}
	shards := make(map[*redis.Client]*shard, len(old)+1)
	for k, v := range old {
		shards[k] = v
	}
	shards[client] = sh
	s.shards.Store(&shards)
	s.watching.Go(func() { sh.watch(ctx, node, s) })
	return sh, nil
}

// tell reports why a shard, or the topology, is down; nil when it recovers.
func (s *Store) tell(addr string, err error) {
	if s.config.Hooks.Shard != nil {
		if err != nil && strings.Contains(err.Error(), "cluster support disabled") {
			err = fmt.Errorf("%w; for a single server set store.redis.mode to single", err)
		}
		s.config.Hooks.Shard(addr, err)
	}
}

// follow keeps the topology current, watches every master, whether or not a request needs
// it, and forgets shards that are no longer masters.
func (s *Store) follow(ctx context.Context) {
	defer close(s.ended)
	tick := time.NewTicker(stateReloadEvery / 4)
	defer tick.Stop()
	known := true // until proven otherwise
	answered := sync.OnceFunc(func() { close(s.answered) })
	defer answered()
	for {
		var mu sync.Mutex
		masters := map[*redis.Client]bool{}
		// This reads the topology, and reloads it once it is older than the interval.
		err := s.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			masters[c] = true
			return nil
		})
		if err == nil && len(masters) == 0 {
			err = errNoTopology
		}
		if now := err == nil; now != known && ctx.Err() == nil {
			known = now
			s.tell("cluster topology", err)
		}
		if known && ctx.Err() == nil {
			s.ready.Store(true)
			for client := range masters {
				_, _ = s.newShard(client) // fails only while the store closes
			}
			s.forget(masters, time.Now())
			s.servers.Forget(time.Now())
		}
		answered()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Store) forget(masters map[*redis.Client]bool, now time.Time) {
	for _, sh := range s.drop(masters, now) {
		if sh.breaker.Open() || sh.refuses.Load() {
			s.tell(sh.client.Options().Addr, nil) // no longer a shard, so not a failing one
		}
		if s.config.Hooks.Eviction != nil {
			s.config.Hooks.Eviction(sh.client.Options().Addr, nil)
		}
		sh.close()
	}
}

// drop removes the shards that have stopped being masters.
func (s *Store) drop(masters map[*redis.Client]bool, now time.Time) []*shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := map[*redis.Client]*shard{}
	var gone []*shard
	for client, sh := range *s.shards.Load() {
		if masters[client] {
			sh.seen = now
		}
		if idle := now.Sub(sh.seen); idle > forgetAfter || idle > forgetDownAfter && sh.breaker.Open() {
			gone = append(gone, sh)
		} else {
			kept[client] = sh
		}
	}
	if len(gone) > 0 {
		s.shards.Store(&kept)
	}
	return gone
}

// lookEvery is the pause between health checks of a shard; it is down after
// looksUntilDown consecutive failures.
const (
	lookEvery      = time.Second
	looksUntilDown = 3
)

// watch detects the loss of a master even without requests: immediately if it is
// unreachable from the start, otherwise after a few checks. A master that answers only
// with errors, for example because it rejects the password, is down too.
func (sh *shard) watch(ctx context.Context, n *node, s *Store) {
	evicts := s.config.Hooks.Eviction
	var inspected time.Time
	if err := n.probe(ctx); err == nil {
		inspected = time.Now()
		sh.inspect(ctx, evicts)
	} else if ctx.Err() == nil {
		sh.breaker.Trip(err)
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	failed := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if sh.breaker.Open() {
			failed = 0
			sh.refuses.Store(false)
			continue // it probes separately, and reports its recovery
		}
		err := sh.client.Ping(ctx).Err()
		switch {
		case ctx.Err() != nil || errors.Is(err, redis.ErrClosed): // the node left the cluster
			return
		case err == nil:
			failed = 0
			if refused := s.write(ctx, sh.client); (refused != nil) != sh.refuses.Load() && ctx.Err() == nil {
				sh.refuses.Store(refused != nil)
				s.tell(sh.client.Options().Addr, refused)
			}
			if now := time.Now(); now.Sub(inspected) >= inspectEvery {
				inspected = now
				sh.inspect(ctx, evicts)
			}
		default:
			failed++
		}
		sh.breaker.Record(clean(err))
		if failed >= looksUntilDown {
			sh.breaker.Trip(err)
		}
	}
}

// write returns the error of a master that answers but accepts no writes, such as a full
// or read-only one. The next health check finds any other error.
func (s *Store) write(ctx context.Context, master *redis.Client) error {
	const tries = 1000
	for i := range tries {
		key := fmt.Sprintf("weir:{~health%d}", i)
		if s.cluster != nil {
			if owner, err := s.cluster.MasterForKey(ctx, key); err != nil || owner != master {
				continue
			}
		}
		err := master.Set(ctx, key, 1, time.Second).Err()
		for _, code := range []string{"OOM", "READONLY", "MISCONF", "NOREPLICAS"} {
			if redis.HasErrorPrefix(err, code) {
				return clean(err)
			}
		}
		return nil
	}
	return nil
}

func (sh *shard) close() {
	sh.unwatch()
	sh.breaker.Close()
	sh.combine.Close()
}
