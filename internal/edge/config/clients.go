package config

import (
	"path/filepath"

	"github.com/weir-edge/weir/internal/clientlist"
)

// Clients is about the networks of clients that operators block or allow by hand.
type Clients struct {
	// Cache is the file that keeps those of Consul.
	Cache string `yaml:"cache"`
}

func (c *Config) validateClients(f *faults) {
	cache := &c.Clients.Cache
	if !c.FollowsConsul() {
		if *cache != "" {
			f.add("clients.cache", "is only for rules.source consul; remove it")
		}
		return
	}
	if *cache == "" {
		*cache = filepath.Join(filepath.Dir(c.Rules.Cache), clientlist.Kind+".json")
	}
	for path, other := range map[string]string{"rules.cache": c.Rules.Cache, "shedder.cache": c.Shedder.Cache, "policy.cache": c.Policy.Cache} {
		if other != "" && filepath.Clean(*cache) == filepath.Clean(other) {
			f.add("clients.cache", "must be a different file from %s, %s", path, other)
		}
	}
}
