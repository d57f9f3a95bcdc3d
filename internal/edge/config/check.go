package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Check reports what would keep a node of this configuration from starting, without
// starting anything.
func Check(c *Config) (warnings []string, err error) {
	if file := c.Listen.AdminTokenFile; file != "" && secretFile(file)() == "" {
		return nil, fmt.Errorf("listen.admin_token_file: %s holds no token, so that every request to the admin side gets 401; write one into it", file)
	}
	if _, err := c.Shedder.ReadSecret(); err != nil {
		return nil, err
	}
	if _, err := c.Documents.Keys(); err != nil {
		return nil, err
	}
	if warnings, err = c.CheckRules(); err != nil {
		return nil, err
	}
	listeners, err := c.Listen.Certificates()
	if err != nil {
		return nil, err
	}
	if err := c.CheckPeer(listeners.Peer); err != nil {
		return nil, err
	}
	pools, err := c.Pools(func(string) proxy.Observer { return nil }, proxy.Loop{})
	if err != nil {
		return nil, err
	}
	ClosePools(pools)
	if c.Store.Kind == "redis" {
		_, err = c.Store.RedisConfig()
		if c.Shedder.SecretFile == "" {
			warnings = append(warnings, "shedder.secret_file is not set, so a client with many addresses can compute which of them are not shed; name a file with the same secret on every node")
		}
		if c.Store.Nodes == nil && !c.FollowsConsul() {
			warnings = append(warnings, "store.nodes is not set, so each node passes the whole of a limit while Redis is unreachable; set it to the number of nodes, 1 for a single one")
		}
	}
	return append(c.Warnings(), warnings...), err
}

// CheckRules reports what would keep the rules from being loaded, and warns of rules that
// cannot work. It does not ask Consul.
func (c *Config) CheckRules() (warnings []string, err error) {
	if err := c.checkPolicy(); err != nil {
		return nil, err
	}
	load := func(document []byte) error {
		set, err := rules.Load(document)
		if err == nil {
			warnings = set.Warnings()
		}
		return err
	}
	if !c.FollowsConsul() {
		data, err := c.Rules.Read()
		if err != nil {
			return nil, err
		}
		if err := load(data); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Rules.File, err)
		}
		return warnings, nil
	}
	client, err := consul.Open(c.Consul.Config)
	if err != nil {
		return nil, fmt.Errorf("consul: %w", err)
	}
	client.Close()
	err = c.checkCache("rules", c.Rules.Cache, load)
	if err == nil && c.Shedder.Source == FromConsul {
		err = c.checkCache("shedder", c.Shedder.Cache, func(document []byte) error {
			_, err := shedding.Parse(document)
			return err
		})
	}
	return warnings, err
}

// CacheOwner identifies the fleet whose documents this node caches.
func (c *Config) CacheOwner() documents.Owner {
	return documents.Owner{Region: c.Node.Region, Datacenter: c.Consul.Datacenter, Prefix: cmp.Or(c.Consul.Prefix, consul.DefaultPrefix)}
}

// checkCache reports what is wrong with a cached document of a kind, if there is one.
func (c *Config) checkCache(kind, file string, load func([]byte) error) error {
	cached, err := documents.ReadCache(file, c.CacheOwner())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && c.Documents.RequireSigned {
		err = c.Verify().Check(kind, cached)
	}
	if err == nil {
		err = load(cached.Document)
	}
	if err != nil {
		return fmt.Errorf("%s.cache: %s: %w; delete the file, the node writes it again", kind, file, err)
	}
	return nil
}
