package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore/redirect"
)

// Mode is the kind of Redis deployment.
type Mode string

// The modes.
const (
	Single   Mode = "single"
	Sentinel Mode = "sentinel"
	Cluster  Mode = "cluster"
)

// Config describes the Redis deployment. All fields but Mode and Addrs may be zero.
type Config struct {
	Mode Mode
	// Addrs are host:port of the server, of the sentinels, or of some cluster nodes.
	Addrs []string
	// MasterName is the sentinels' name for the master; Sentinel only.
	MasterName string
	Username   string
	// Password is called for each new connection, so the password may change.
	Password func() string
	// SentinelUsername and SentinelPassword authenticate to the sentinels themselves.
	SentinelUsername string
	SentinelPassword func() string
	TLS              *tls.Config
	// Timeout bounds a whole decision, including the wait for Redis. 0 means
	// DefaultTimeout.
	Timeout time.Duration
	// MaxBatchesInFlight is how many batches may be in flight to a master at a time, at most
	// limiter.MaxBatchesInFlight; 0 means that maximum.
	MaxBatchesInFlight int
	// Linger is how long a decision waits for others to share its round trip; see
	// limiter.NewCombine.
	Linger time.Duration
	// Clock returns Unix microseconds, for tests only; nil uses the server's clock, the
	// only one that all nodes share.
	Clock func() int64
	Hooks Hooks
}

// DefaultTimeout is the time budget of a decision unless Config says otherwise.
const DefaultTimeout = 25 * time.Millisecond

// Hooks let a program observe the store. Any may be nil; several goroutines call them, so
// they must not block.
type Hooks struct {
	// Batch receives how many calls went to a shard in one round trip.
	Batch func(calls int)
	// Shard receives why a shard or the cluster's topology stopped answering, again when
	// the reason changes, and nil when it recovers.
	Shard func(addr string, err error)
	// Clock receives how far a master's clock was adjusted.
	Clock func(addr string, by time.Duration)
	// Eviction receives, each minute, what a master does when its memory is full, and nil
	// once it is no longer a master.
	Eviction func(addr string, e *Eviction)
}

func (c *Config) validate() error {
	if len(c.Addrs) == 0 {
		return errors.New("redis addrs: must name at least one host:port")
	}
	switch c.Mode {
	case Single:
		if len(c.Addrs) > 1 {
			return fmt.Errorf("redis addrs: mode single takes one address (got %d); use mode cluster or sentinel", len(c.Addrs))
		}
	case Sentinel:
		if c.MasterName == "" {
			return errors.New("redis master_name: must be set in mode sentinel")
		}
	case Cluster:
	default:
		return fmt.Errorf("redis mode %q: must be single, sentinel or cluster", c.Mode)
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxBatchesInFlight == 0 {
		c.MaxBatchesInFlight = limiter.MaxBatchesInFlight
	}
	return nil
}

func (c *Config) credentials() (string, string) {
	if c.Password == nil {
		return c.Username, ""
	}
	return c.Username, c.Password()
}

// The client never retries a script: after a timeout it may have run, and a retry would
// charge twice. Dials are short and few, because a host that drops packets must not
// occupy the pool.
const (
	noRetries   = -1
	spareConns  = 3 // connections for probes, resets and reports
	poolSize    = limiter.MaxBatchesUnanswered + spareConns
	idleSize    = limiter.MaxBatchesInFlight + spareConns
	minDialTime = 250 * time.Millisecond
)

// late is how long a batch waits for its answer. Callers have left by then, but what was charged for
// requests that were refused can still be given back.
func (c *Config) late() time.Duration { return c.Timeout + min(3*c.Timeout, time.Second) }

func (c *Config) dialTimeout() time.Duration { return max(minDialTime, c.Timeout) }

func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // Redis 7.0 rejects them
}

func (c *Config) single() *redis.Client {
	o := c.server(c.Addrs[0])
	o.MinIdleConns = 1
	return redis.NewClient(o)
}

func (c *Config) server(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, CredentialsProvider: c.credentials, TLSConfig: c.TLS,
		Dialer: redirect.Dialer(&redis.Options{DialTimeout: c.dialTimeout(), TLSConfig: c.TLS}), ContextTimeoutEnabled: true, MaxRetries: noRetries, DialTimeout: c.dialTimeout(), DialerRetries: 1,
		ReadTimeout: c.Timeout, WriteTimeout: c.Timeout,
		PoolSize: poolSize, MaxIdleConns: idleSize, PoolTimeout: c.Timeout,
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noMaintNotifications(),
	}
}

func (c *Config) sentinel() *redis.Client {
	o := &redis.FailoverOptions{
		MasterName: c.MasterName, SentinelAddrs: c.Addrs, SentinelUsername: c.SentinelUsername,
		CredentialsProvider: c.credentials, TLSConfig: c.TLS,
		Dialer: redirect.Dialer(&redis.Options{DialTimeout: c.dialTimeout(), TLSConfig: c.TLS}), ContextTimeoutEnabled: true, MaxRetries: noRetries, DialTimeout: c.dialTimeout(), DialerRetries: 1,
		ReadTimeout: c.Timeout, WriteTimeout: c.Timeout,
		PoolSize: poolSize, MaxIdleConns: idleSize, PoolTimeout: c.Timeout, MinIdleConns: 1,
		Protocol: 2, DisableIdentity: true,
	}
	if c.SentinelPassword != nil {
		o.SentinelPassword = c.SentinelPassword()
	}
	return redis.NewFailoverClient(o)
}

func (c *Config) cluster() *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs, CredentialsProvider: c.credentials, TLSConfig: c.TLS,
		Dialer: redirect.Dialer(&redis.Options{DialTimeout: c.dialTimeout(), TLSConfig: c.TLS}), ContextTimeoutEnabled: true, MaxRetries: noRetries, MaxRedirects: 3, DialTimeout: c.dialTimeout(), DialerRetries: 1,
		ReadTimeout: c.Timeout, WriteTimeout: c.Timeout,
		PoolSize: poolSize, MaxIdleConns: idleSize, PoolTimeout: c.Timeout, MinIdleConns: 1,
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noMaintNotifications(),
		ClusterStateReloadInterval: stateReloadEvery,
	})
}
