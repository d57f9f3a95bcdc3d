package edge

import (
	"fmt"
	"time"
)

func (c *Config) validateStore(f *faults) {
	s := &c.Store
	if s.Nodes != nil && *s.Nodes < 1 {
		f.add("store.nodes", "must be at least 1 (got %d)", *s.Nodes)
	}
	if s.DeniedMemory < 1 {
		f.add("store.denied_memory", "must be at least 1 (got %d)", s.DeniedMemory)
	}
	if s.MaxKeys < 1 {
		f.add("store.max_keys", "must be at least 1 (got %d)", s.MaxKeys)
	}
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
			f.add("store.redis.master_name", "only mode sentinel has one; remove it")
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
	f.file("store.redis.password_file", r.PasswordFile)
	f.file("store.redis.sentinel_password_file", r.SentinelPasswordFile)
	f.list.Take("store.redis.tls", r.TLS.Validate())
}
