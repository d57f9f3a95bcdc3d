package config

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

func (c *Config) validateStore(f *faults) {
	s := &c.Store
	f.atLeastOne("store.nodes", int64(s.NodeCount()))
	f.atLeastOne("store.denied_memory", int64(s.DeniedMemory))
	f.atLeastOne("store.max_keys", int64(s.MaxKeys))
	switch s.Kind {
	case "memory":
		return
	case "redis":
	default:
		f.add("store.kind", "must be redis or memory (got %q)", s.Kind)
		return
	}
	if s.Timeout < time.Millisecond || s.Timeout > 10*time.Second {
		f.add("store.timeout", "must be between 1ms and 10s (got %s)", s.Timeout)
	}
	r := &s.Redis
	switch r.Mode {
	case "single", "cluster":
		if r.MasterName != "" {
			f.add("store.redis.master_name", "is only for mode sentinel; remove it")
		}
	case "sentinel":
		if r.MasterName == "" {
			f.add("store.redis.master_name", "must be set in mode sentinel")
		}
	default:
		f.add("store.redis.mode", "must be single, sentinel or cluster (got %q)", r.Mode)
	}
	if len(r.Addrs) == 0 {
		f.add("store.redis.addrs", "must name at least one host:port")
	}
	if r.Mode == "single" && len(r.Addrs) > 1 {
		f.add("store.redis.addrs", "mode single takes one address (got %d); use mode cluster or sentinel", len(r.Addrs))
	}
	for i, a := range r.Addrs {
		f.address(fmt.Sprintf("store.redis.addrs[%d]", i), a)
	}
	if r.Linger < 0 || r.Linger > s.Timeout/4 {
		f.add("store.redis.linger", "must be between 0 and a quarter of store.timeout, %s (got %s)", s.Timeout/4, r.Linger)
	}
	f.file("store.redis.password_file", r.PasswordFile)
	f.file("store.redis.sentinel_password_file", r.SentinelPasswordFile)
	f.list.Take("store.redis.tls", r.TLS.Validate())
}

func (c *Store) RedisConfig() (redisstore.Config, error) {
	r := &c.Redis
	rc := redisstore.Config{
		Mode: redisstore.Mode(r.Mode), Addrs: r.Addrs, MasterName: r.MasterName, Timeout: c.Timeout, Linger: r.Linger,
		Username: r.Username, Password: secretFile(r.PasswordFile),
		SentinelUsername: r.SentinelUsername, SentinelPassword: secretFile(r.SentinelPasswordFile),
	}
	if r.TLS == nil {
		return rc, nil
	}
	var err error
	if rc.TLS, err = r.TLS.Load(); err != nil {
		return rc, fmt.Errorf("store.redis.tls.%w", err)
	}
	return rc, nil
}

// secretFile returns a reader of the file's content, asked at each new connection
// so that the secret can be changed under a running node. It is nil without a file.
func secretFile(file string) func() string {
	if file == "" {
		return nil
	}
	return func() string {
		b, err := os.ReadFile(file)
		if err != nil {
			return "" // the server's refusal names the user and is logged
		}
		return strings.TrimSpace(string(b))
	}
}

// NodeCount returns how many nodes share the store when Consul does not count them.
func (s *Store) NodeCount() int {
	if s.Nodes == nil {
		return 1
	}
	return *s.Nodes
}
