package redisstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Mode is the kind of Redis deployment.
type Mode string

// The modes.
const (
	Single   Mode = "single"
	Sentinel Mode = "sentinel"
	Cluster  Mode = "cluster"
)

// Config says where Redis is. All fields but Mode and Addrs may be zero.
type Config struct {
	Mode Mode
	// Addrs are host:port of the server, of the sentinels, or of some cluster nodes.
	Addrs []string
	// MasterName is what the sentinels call the master; Sentinel only.
	MasterName string
	Username   string
	// Password is asked for at each new connection, so that it may change.
	Password func() string
	// SentinelUsername and SentinelPassword open the sentinels themselves.
	SentinelUsername string
	SentinelPassword func() string
	TLS              *tls.Config
	// Timeout bounds a decision from the outside, waiting for Redis included.
	// 0 means DefaultTimeout.
	Timeout time.Duration
	// Clock returns Unix microseconds and is for tests; production leaves it nil
	// and counts by the server's clock, the only one that all nodes share.
	Clock func() int64
	Hooks Hooks
}

// DefaultTimeout is the time budget of a decision unless Config says otherwise.
const DefaultTimeout = 25 * time.Millisecond

// Hooks let a program count what happens. Any may be nil; they are called from
// several goroutines and must not block.
type Hooks struct {
	// Batch hears how many calls went to a shard in one round trip.
	Batch func(calls int)
	// Shard hears that a shard stopped answering, or is back.
	Shard func(addr string, up bool)
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
	return nil
}

func (c *Config) credentials() (string, string) {
	if c.Password == nil {
		return c.Username, ""
	}
	return c.Username, c.Password()
}

// A script is never retried by the client: after a time-out it may have run, and
// would charge twice. Dials are short and few, for a host that swallows packets
// must not hold its place in the pool.
const (
	noRetries   = -1
	poolSize    = 4 // one for the batches, the rest for probes, resets and redirects
	minDialTime = 250 * time.Millisecond
)

func (c *Config) dialTimeout() time.Duration { return max(minDialTime, c.Timeout) }

func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // Redis 7.0 refuses them
}

func (c *Config) single() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: c.Addrs[0], CredentialsProvider: c.credentials, TLSConfig: c.TLS,
		MaxRetries: noRetries, DialTimeout: c.dialTimeout(), DialerRetries: 1,
		ReadTimeout: c.Timeout, WriteTimeout: c.Timeout,
		PoolSize: poolSize, PoolTimeout: c.Timeout, MinIdleConns: 1,
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noMaintNotifications(),
	})
}

func (c *Config) sentinel() *redis.Client {
	o := &redis.FailoverOptions{
		MasterName: c.MasterName, SentinelAddrs: c.Addrs, SentinelUsername: c.SentinelUsername,
		CredentialsProvider: c.credentials, TLSConfig: c.TLS,
		MaxRetries: noRetries, DialTimeout: c.dialTimeout(), DialerRetries: 1,
		ReadTimeout: c.Timeout, WriteTimeout: c.Timeout,
		PoolSize: poolSize, PoolTimeout: c.Timeout, MinIdleConns: 1,
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
		MaxRetries: noRetries, MaxRedirects: 3, DialTimeout: c.dialTimeout(), DialerRetries: 1,
		ReadTimeout: c.Timeout, WriteTimeout: c.Timeout,
		PoolSize: poolSize, PoolTimeout: c.Timeout, MinIdleConns: 1,
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: noMaintNotifications(),
		ClusterStateReloadInterval: stateReloadEvery,
	})
}
