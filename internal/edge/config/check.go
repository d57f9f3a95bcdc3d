package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// CheckFile is Load and Check. Its error names every fault of the file, or else of what it names, with
// their lines.
func CheckFile(name string) (c *Config, warnings []string, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, fmt.Errorf("read configuration: %w", err)
	}
	c, root, own := parse(data)
	if own == nil {
		warnings, err = Check(c)
	} else { // the rest may depend on what is wrong
		err = c.checkURLs()
		if !c.FollowsConsul() && c.Rules.File != "" {
			_, wrong := c.loadRules()
			err = errors.Join(err, wrong)
		}
	}
	var others field.Errors
	for _, one := range each(err) {
		if list, ok := one.(field.Errors); ok { // of another file, with its lines
			others = append(others, list...)
			continue
		}
		path, text, _ := strings.Cut(one.Error(), ": ")
		own.Add(path, "%s", text)
	}
	return c, warnings, append(root.Locate(own).In(name), others...).Err()
}

// each returns the errors that err joins.
func each(err error) (list []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if _, faults := err.(field.Errors); !ok || faults {
		return []error{err}
	}
	for _, one := range joined.Unwrap() {
		list = append(list, each(one)...)
	}
	return list
}

// Check reports everything that would keep a node of this configuration from starting, without
// starting anything.
func Check(c *Config) (warnings []string, err error) {
	add := func(wrong error) { err = errors.Join(err, wrong) }
	if file := c.Listen.AdminTokenFile; file != "" && secretFile(file)() == "" {
		add(fmt.Errorf("listen.admin_token_file: %s holds no token, so that every request to the admin side gets 401; write one into it", file))
	}
	_, wrong := c.Shedder.ReadSecret()
	add(wrong)
	_, wrong = c.Documents.Keys()
	add(wrong)
	warnings, wrong = c.CheckRules()
	add(wrong)
	listeners, wrong := c.Listen.Certificates()
	add(wrong)
	add(c.CheckPeer(listeners.Peer))
	pools, wrong := c.Pools(func(string) proxy.Observer { return nil }, proxy.Loop{})
	add(wrong)
	if wrong == nil {
		ClosePools(pools)
	}
	if c.Store.Kind == "redis" {
		_, wrong = c.Store.RedisConfig()
		add(wrong)
		if c.Shedder.SecretFile == "" {
			warnings = append(warnings, "shedder.secret_file is not set, so a client with many addresses can compute which of them are not shed; name a file with the same secret on every node")
		}
		if c.Store.Nodes == nil && !c.FollowsConsul() {
			warnings = append(warnings, "store.nodes is not set, so each node passes the whole of a limit while Redis is unreachable; set it to the number of nodes, 1 for a single one")
		}
	}
	if err != nil {
		return nil, err
	}
	return append(c.Warnings(), warnings...), nil
}

// checkURLs reports what Pools reports of the upstreams' URLs.
func (c *Config) checkURLs() (err error) {
	for i, u := range c.Upstreams {
		if _, wrong := proxy.ParseURL(u.URL); wrong != nil {
			err = errors.Join(err, &proxy.URLError{Index: i, URL: u.URL, Err: wrong})
		}
	}
	return err
}

// loadRules reads the file of rules, and warns of those that cannot work.
func (c *Config) loadRules() (warnings []string, err error) {
	data, err := c.Rules.Read()
	if err != nil {
		return nil, err
	}
	set, err := rules.Load(data)
	if err != nil {
		return nil, field.All(err).In(c.Rules.File)
	}
	return c.ruleWarnings(set), nil
}

// ruleWarnings lists the rules that cannot work, those with limits of tiers that no header states
// included.
func (c *Config) ruleWarnings(set *rules.Set) []string {
	list := set.Warnings()
	for _, r := range set.Rules() {
		for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
			if !strings.HasPrefix(tier, "risk:") && c.TierHeader == "" {
				list = append(list, fmt.Sprintf("rule %s: tiers.%s: no request has a tier, because tier_header is not set; set it to the header in which your proxy states the tier", r.ID, tier))
				break
			}
		}
	}
	return list
}

// CheckRules reports what would keep the rules and the policy from being loaded, and warns of rules
// that cannot work. It does not ask Consul.
func (c *Config) CheckRules() (warnings []string, err error) {
	policies := c.checkPolicy()
	if !c.FollowsConsul() {
		warnings, err = c.loadRules()
		return warnings, errors.Join(policies, err)
	}
	client, err := consul.Open(c.Consul.Config)
	if err != nil {
		return nil, errors.Join(policies, fmt.Errorf("consul: %w", err))
	}
	client.Close()
	err = errors.Join(policies, c.checkCache("rules", c.Rules.Cache, func(document []byte) error {
		set, err := rules.Load(document)
		if err == nil {
			warnings = c.ruleWarnings(set)
		}
		return err
	}))
	if c.Shedder.Source == FromConsul {
		err = errors.Join(err, c.checkCache("shedder", c.Shedder.Cache, func(document []byte) error {
			_, err := shedding.Parse(document)
			return err
		}))
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
