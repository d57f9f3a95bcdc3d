package edge

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/follow"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Where rules come from.
const (
	fromFile   = adminapi.SourceFile
	fromConsul = adminapi.SourceConsul
)

// RulesConfig says where the rules come from.
type RulesConfig struct {
	Source string `yaml:"source"`
	File   string `yaml:"file"`
	// Cache is the file that keeps the last good document of Consul, so that the
	// node can start while Consul is unreachable.
	Cache string `yaml:"cache"`
	// Bootstrap is a URL of a rule document, for a node that starts without a cached
	// one while Consul is unreachable.
	Bootstrap string `yaml:"bootstrap"`
	// BootstrapSignatures is a URL of its signatures.
	BootstrapSignatures string `yaml:"bootstrap_signatures"`
	// Required keeps a node that has never had rules from serving. Only with
	// Consul: without a good file no node starts.
	Required bool `yaml:"required"`
}

// ConsulConfig says which Consul the node follows and how it is registered there.
type ConsulConfig struct {
	consul.Config `yaml:",inline"`

	Register bool `yaml:"register"`
	// Advertise and AdvertiseAdmin are where others reach the node, if not at the
	// addresses that it listens on: host or host:port.
	Advertise      string `yaml:"advertise"`
	AdvertiseAdmin string `yaml:"advertise_admin"`
}

func (c *Config) followsConsul() bool { return c.Rules.Source == fromConsul }

func (c *Config) validateRules(f *faults) {
	switch c.Rules.Source {
	case fromFile:
		if c.Rules.File == "" {
			f.add("rules.file", "must name a rule document when rules.source is file")
		}
		if c.Rules.Bootstrap != "" || c.Rules.BootstrapSignatures != "" {
			f.add("rules.bootstrap", "is for rules.source consul; remove it")
		}
	case fromConsul:
		if c.Rules.File != "" {
			f.add("rules.file", "is for rules.source file, and is not used while Consul is unreachable, rules.cache is; remove it")
		}
		if c.Rules.Cache == "" {
			f.add("rules.cache", "must name a file when rules.source is consul: without it the node cannot start while Consul is unreachable")
		}
		if c.Rules.Bootstrap != "" && !bootstrapURL(c.Rules.Bootstrap) {
			f.add("rules.bootstrap", "must be an https:// URL such as https://bucket.s3.eu-west-1.amazonaws.com/rules.yaml; http:// is for this machine only")
		}
		if c.Rules.BootstrapSignatures != "" && (c.Rules.Bootstrap == "" || !bootstrapURL(c.Rules.BootstrapSignatures)) {
			f.add("rules.bootstrap_signatures", "must be an https:// URL such as https://bucket.s3.eu-west-1.amazonaws.com/rules.yaml.sig, alongside rules.bootstrap; http:// is for this machine only")
		}
		c.validateConsul(f)
	default:
		f.add("rules.source", "must be file or consul (got %q)", c.Rules.Source)
	}
}

func (c *Config) validateConsul(f *faults) {
	// They become part of keys and of the registration.
	if err := consul.CheckName(c.Node.Region); err != nil {
		f.add("node.region", "%v", err)
	}
	if err := consul.CheckName(c.Node.PoP); err != nil {
		f.add("node.pop", "%v", err)
	}
	f.list.Take("consul", c.Consul.Validate())
	if !c.Consul.Register {
		return
	}
	c.validateAdvertised(f, "consul.advertise", c.Consul.Advertise, "listen.public", c.Listen.Public)
	c.validateAdvertised(f, "consul.advertise_admin", c.Consul.AdvertiseAdmin, "listen.admin", c.Listen.Admin)
	if err := consul.CheckNodeID(c.Node.ID); err != nil {
		f.add("node.id", "%v", err)
	}
}

// validateAdvertised checks an address at which others reach the node.
func (c *Config) validateAdvertised(f *faults, path, given, listenPath, listen string) {
	host, _, err := advertised(given, listen)
	if err != nil {
		return // the fault of listen is already reported
	}
	if given == "" {
		if unspecified(host) {
			f.add(path, "must say where others reach this node: %s is %s, every address there is", listenPath, listen)
		}
		return
	}
	good := hostName(host) && !unspecified(host)
	if _, port, err := net.SplitHostPort(given); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		good = good && err == nil && n > 0
	}
	if !good {
		f.add(path, "must be a host or host:port that others reach (got %q)", given)
	}
}

// advertised returns the address at which others reach a listener: the configured host and
// port, completed from the address it listens on.
func advertised(given, listen string) (host, port string, err error) {
	if host, port, err = net.SplitHostPort(listen); err != nil || given == "" {
		return host, port, err
	}
	if h, p, err := net.SplitHostPort(given); err == nil {
		return h, p, nil
	}
	return strings.Trim(given, "[]"), port, nil
}

func unspecified(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

// hostName reports whether host is an address or could be a name.
func hostName(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	for _, b := range []byte(host) {
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '.' || b == '_') {
			return false
		}
	}
	return host != ""
}

// registration returns the node's registration in Consul, given the addresses of its
// listeners.
func (c *Config) registration(public, admin net.Addr) (consul.Registration, error) {
	r := consul.Registration{ID: c.Node.ID, Region: c.Node.Region, PoP: c.Node.PoP}
	host, port, err := advertised(c.Consul.Advertise, listening(c.Listen.Public, public))
	if err != nil {
		return r, err
	}
	if r.Port, err = strconv.Atoi(port); err != nil {
		return r, fmt.Errorf("consul.advertise: port: %w", err)
	}
	r.Address = host
	adminHost, adminPort, err := advertised(c.Consul.AdvertiseAdmin, listening(c.Listen.Admin, admin))
	if err != nil {
		return r, err
	}
	r.Admin = net.JoinHostPort(adminHost, adminPort)
	// The agent that runs the check is local, so it gets the address on which the node
	// listens, unless that is the unspecified address.
	check := listening(c.Listen.Admin, admin)
	if h, _, err := net.SplitHostPort(check); err != nil || unspecified(h) {
		check = r.Admin
	}
	r.CheckURL = "http://" + check + "/readyz"
	if c.Listen.AdminTLS != nil {
		r.Admin, r.CheckURL = "https://"+r.Admin, "https://"+check+"/readyz"
	}
	return r, nil
}

// listening is the host as configured with the port that was taken.
func listening(configured string, taken net.Addr) string {
	host, _, err := net.SplitHostPort(configured)
	if t, ok := taken.(*net.TCPAddr); ok && err == nil {
		return net.JoinHostPort(host, strconv.Itoa(t.Port))
	}
	return configured
}

// nodes returns how many nodes share the store when Consul does not count them.
func (s *StoreConfig) nodes() int {
	if s.Nodes == nil {
		return 1
	}
	return *s.Nodes
}

// checkRules reports what would keep the rules from being loaded, and warns of rules that
// cannot work. It does not ask Consul.
func (c *Config) checkRules() (warnings []string, err error) {
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
	if !c.followsConsul() {
		data, err := os.ReadFile(c.Rules.File)
		if err != nil {
			return nil, fmt.Errorf("rules.file: %w", err)
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
	if err == nil && c.Shedder.Source == fromConsul {
		err = c.checkCache("shedder", c.Shedder.Cache, func(document []byte) error {
			_, err := shedding.Parse(document)
			return err
		})
	}
	return warnings, err
}

// lockCaches keeps other nodes from using this node's caches while it runs.
func (c *Config) lockCaches() (unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, release := range held {
			release()
		}
	}
	lock := func(path, file string) {
		if err != nil {
			return
		}
		release, fault := follow.Lock(file)
		if fault != nil {
			err = fmt.Errorf("%s: %w", path, fault)
			return
		}
		held = append(held, release)
	}
	if c.followsConsul() {
		lock("rules.cache", c.Rules.Cache)
	}
	if c.Shedder.Source == fromConsul {
		lock("shedder.cache", c.Shedder.Cache)
	}
	if c.followsConsul() {
		lock("clients.cache", c.Clients.Cache)
	}
	if c.Policy.Source == fromConsul {
		lock("policy.cache", c.Policy.Cache)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// cacheOwner identifies the fleet whose documents this node caches.
func (c *Config) cacheOwner() follow.Owner {
	return follow.Owner{Region: c.Node.Region, Datacenter: c.Consul.Datacenter, Prefix: cmp.Or(c.Consul.Prefix, consul.DefaultPrefix)}
}

// checkCache reports what is wrong with a cached document of a kind, if there is one.
func (c *Config) checkCache(kind, file string, load func([]byte) error) error {
	cached, err := follow.ReadCache(file, c.cacheOwner())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && c.Documents.RequireSigned {
		err = c.verify().Check(kind, cached)
	}
	if err == nil {
		err = load(cached.Document)
	}
	if err != nil {
		return fmt.Errorf("%s.cache: %s: %w; delete the file, the node writes it again", kind, file, err)
	}
	return nil
}
