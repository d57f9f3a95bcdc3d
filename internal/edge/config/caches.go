package config

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/edge/documents"
)

// Clients is about client lists.
type Clients struct {
	Cache string `yaml:"cache"` // with rules.source consul: the last good list; absent: clients.json next to rules.cache
}

// cache is the setting of a file that keeps documents of a kind.
type cache struct {
	kind   string
	file   *string
	needs  string // the setting that must be consul
	source string // its value
}

func (c *cache) path() string { return c.kind + ".cache" }
func (c *cache) used() bool   { return c.source == FromConsul }

func (c *Config) caches() []cache {
	return []cache{
		{"rules", &c.Rules.Cache, "rules.source", c.Rules.Source},
		{"shedder", &c.Shedder.Cache, "shedder.source", c.Shedder.Source},
		{"policy", &c.Policy.Cache, "policy.source", c.Policy.Source},
		{clientlist.Kind, &c.Clients.Cache, "rules.source", c.Rules.Source},
	}
}

// validateCaches checks the caches, and places those that are not set next to the rules'.
func (c *Config) validateCaches(f *faults) {
	list := c.caches()
	for i, x := range list[1:] {
		if !x.used() {
			if *x.file != "" {
				f.add(x.path(), "is only for %s consul; remove it", x.needs)
			}
			continue
		}
		*x.file = cmp.Or(*x.file, filepath.Join(filepath.Dir(c.Rules.Cache), x.kind+".json"))
		for _, other := range list[:i+1] {
			if other.used() && filepath.Clean(*x.file) == filepath.Clean(*other.file) {
				f.add(x.path(), "must be a different file from %s, %s", other.path(), *other.file)
			}
		}
	}
}

// LockCaches keeps other nodes from using this node's caches while it runs.
func (c *Config) LockCaches() (unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, release := range held {
			release()
		}
	}
	for _, x := range c.caches() {
		if !x.used() {
			continue
		}
		release, err := documents.Lock(*x.file)
		if err != nil {
			unlock()
			return nil, fmt.Errorf("%s: %w", x.path(), err)
		}
		held = append(held, release)
	}
	return unlock, nil
}
