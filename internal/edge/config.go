package edge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// Config is the configuration file of an edge node. docs/CONFIG.md describes it.
type Config struct {
	Node           NodeConfig       `yaml:"node"`
	Listen         ListenConfig     `yaml:"listen"`
	Server         ServerConfig     `yaml:"server"`
	Upstreams      []UpstreamConfig `yaml:"upstreams"`
	Routes         []RouteConfig    `yaml:"routes"`
	Upstream       ForwardConfig    `yaml:"upstream"`
	TrustedProxies []string         `yaml:"trusted_proxies"`
	TierHeader     string           `yaml:"tier_header"`
	LegacyHeaders  bool             `yaml:"legacy_headers"`
	Store          StoreConfig      `yaml:"store"`
	Rules          RulesConfig      `yaml:"rules"`
	Consul         ConsulConfig     `yaml:"consul"`
	Shedder        ShedderConfig    `yaml:"shedder"`
	Log            LogConfig        `yaml:"log"`
	Shutdown       ShutdownConfig   `yaml:"shutdown"`

	trusted []netip.Prefix
}

// NodeConfig says which node this is.
type NodeConfig struct {
	ID     string `yaml:"id"`
	Region string `yaml:"region"`
	PoP    string `yaml:"pop"`
}

// ListenConfig says where the node listens.
type ListenConfig struct {
	Public         string     `yaml:"public"`
	Admin          string     `yaml:"admin"`
	AdminTokenFile string     `yaml:"admin_token_file"`
	TLS            *TLSConfig `yaml:"tls"`
}

// TLSConfig names the certificate of the public listener.
type TLSConfig struct {
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
}

// ServerConfig bounds what a client may send, and how slowly.
type ServerConfig struct {
	MaxHeaderBytes int           `yaml:"max_header_bytes"`
	MaxBodyBytes   int64         `yaml:"max_body_bytes"`
	MaxConnections int           `yaml:"max_connections"`
	ReadTimeout    time.Duration `yaml:"read_timeout"`
	WriteTimeout   time.Duration `yaml:"write_timeout"`
	IdleTimeout    time.Duration `yaml:"idle_timeout"`
}

// UpstreamConfig is one origin.
type UpstreamConfig struct {
	URL   string `yaml:"url"`
	Group string `yaml:"group"` // "" is defaultGroup
}

// ForwardConfig is how requests are forwarded.
type ForwardConfig struct {
	DialTimeout   time.Duration `yaml:"dial_timeout"`
	Timeout       time.Duration `yaml:"timeout"`
	StreamTimeout time.Duration `yaml:"stream_timeout"`
	IdleTimeout   time.Duration `yaml:"idle_timeout"`
	MaxConns      int           `yaml:"max_conns"`
	FailAfter     int           `yaml:"fail_after"`
	FailFor       time.Duration `yaml:"fail_for"`
	CAFile        string        `yaml:"ca_file"`
}

// StoreConfig says where counters are kept.
type StoreConfig struct {
	Kind    string        `yaml:"kind"`
	Timeout time.Duration `yaml:"timeout"`
	// Nodes is how many edge nodes share the store: each takes its part of a
	// limit while the store is away. nil: those in Consul's catalogue, or 1.
	Nodes        *int        `yaml:"nodes"`
	DeniedMemory int         `yaml:"denied_memory"`
	MaxKeys      int         `yaml:"max_keys"`
	Redis        RedisConfig `yaml:"redis"`
}

// RedisConfig says where Redis is.
type RedisConfig struct {
	Mode                 string          `yaml:"mode"`
	Addrs                []string        `yaml:"addrs"`
	MasterName           string          `yaml:"master_name"`
	Username             string          `yaml:"username"`
	PasswordFile         string          `yaml:"password_file"`
	SentinelUsername     string          `yaml:"sentinel_username"`
	SentinelPasswordFile string          `yaml:"sentinel_password_file"`
	TLS                  *RedisTLSConfig `yaml:"tls"`
}

// RedisTLSConfig turns TLS to Redis on; all fields are optional.
type RedisTLSConfig struct {
	CAFile     string `yaml:"ca_file"`
	CertFile   string `yaml:"cert_file"`
	KeyFile    string `yaml:"key_file"`
	ServerName string `yaml:"server_name"`
}

// LogConfig is what is logged.
type LogConfig struct {
	Level string `yaml:"level"`
}

// ShutdownConfig is how a node stops. Both together stay under 5 s by default.
type ShutdownConfig struct {
	// Delay between /readyz failing and the listener closing, so that whoever
	// sends traffic here can notice first.
	Delay time.Duration `yaml:"delay"`
	// Timeout is how long requests in flight may take to finish.
	Timeout time.Duration `yaml:"timeout"`
}

// Defaults returns the configuration that a file changes.
func Defaults() Config {
	host, _ := os.Hostname()
	return Config{
		Node:   NodeConfig{ID: host},
		Listen: ListenConfig{Public: "127.0.0.1:8080", Admin: "127.0.0.1:8081"},
		Server: ServerConfig{
			MaxHeaderBytes: 16 << 10, MaxBodyBytes: 1 << 30, MaxConnections: 100_000,
			ReadTimeout: 10 * time.Second, WriteTimeout: 60 * time.Second, IdleTimeout: 75 * time.Second,
		},
		Upstream: ForwardConfig{
			DialTimeout: 2 * time.Second, Timeout: 30 * time.Second, StreamTimeout: 60 * time.Second,
			IdleTimeout: 30 * time.Second, MaxConns: 1024, FailAfter: 3, FailFor: 5 * time.Second,
		},
		Store: StoreConfig{
			Kind: "redis", Timeout: redisstore.DefaultTimeout, DeniedMemory: 100_000, MaxKeys: 1_000_000,
			Redis: RedisConfig{Mode: "cluster"},
		},
		Rules:    RulesConfig{Source: fromFile, Cache: "/var/lib/weir/rules.json", Required: true},
		Consul:   ConsulConfig{Register: true},
		Log:      LogConfig{Level: "info"},
		Shutdown: ShutdownConfig{Delay: time.Second, Timeout: 3 * time.Second},
	}
}

// LoadConfig reads and checks a configuration file. The error names every fault
// with its path in the file.
func LoadConfig(file string) (*Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	c, err := ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

// ParseConfig reads and checks a configuration.
func ParseConfig(data []byte) (*Config, error) {
	c := Defaults()
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict(), yaml.DisallowUnknownField(), yaml.CustomUnmarshaler(parseDuration))
	if err := dec.Decode(&c); errors.Is(err, io.EOF) {
		return nil, errors.New("is empty; name upstreams and rules at least")
	} else if err != nil {
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if dec.Decode(&yaml.MapSlice{}) != io.EOF {
		return nil, errors.New("holds a second document; remove what follows --- or ...")
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &c, nil
}

func parseDuration(d *time.Duration, text []byte) error {
	value := strings.Trim(string(bytes.TrimSpace(text)), `"'`)
	v, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf("%q is no duration; write a number with its unit, as in 250ms, 10s or 1h30m", value)
	}
	*d = v
	return nil
}

// faults collects what is wrong, each with its path.
type faults []error

func (f *faults) add(path, format string, args ...any) {
	*f = append(*f, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
}

func (f *faults) address(path, value string) {
	if _, port, err := net.SplitHostPort(value); err != nil || port == "" {
		f.add(path, "must be host:port (got %q)", value)
	}
}

func (f *faults) positive(path string, d time.Duration) {
	if d <= 0 {
		f.add(path, "must be longer than 0 (got %s), as in 5s", d)
	}
}

func (f *faults) file(path, name string) {
	if name == "" {
		return
	}
	if _, err := os.Stat(name); err != nil {
		f.add(path, "%v", err)
	}
}

func (c *Config) validate() error {
	var f faults
	if c.Node.ID == "" {
		f.add("node.id", "must be set: this machine has no host name")
	}
	c.validateListen(&f)
	c.validateServer(&f)
	c.validateGroups(&f)
	for i, text := range c.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			if a, aerr := netip.ParseAddr(text); aerr == nil {
				p, err = netip.PrefixFrom(a, a.BitLen()), nil
			}
		}
		if err != nil {
			f.add(fmt.Sprintf("trusted_proxies[%d]", i), "must be an address or a network such as 10.0.0.0/8 (got %q)", text)
			continue
		}
		if p != p.Masked() {
			f.add(fmt.Sprintf("trusted_proxies[%d]", i), "%s has bits set beyond the network; write %s, or the address alone", text, p.Masked())
			continue
		}
		c.trusted = append(c.trusted, p)
	}
	c.validateStore(&f)
	c.validateRules(&f)
	c.validateShedder(&f)
	if _, err := c.Log.level(); err != nil {
		f.add("log.level", "must be debug, info, warn or error (got %q)", c.Log.Level)
	}
	if c.Shutdown.Delay < 0 {
		f.add("shutdown.delay", "must not be negative (got %s)", c.Shutdown.Delay)
	}
	f.positive("shutdown.timeout", c.Shutdown.Timeout)
	return errors.Join(f...)
}

func (c *Config) validateListen(f *faults) {
	f.address("listen.public", c.Listen.Public)
	f.address("listen.admin", c.Listen.Admin)
	f.file("listen.admin_token_file", c.Listen.AdminTokenFile)
	if host, _, err := net.SplitHostPort(c.Listen.Admin); err == nil && c.Listen.AdminTokenFile == "" && !loopback(host) {
		f.add("listen.admin", "%s can be reached from outside; listen on 127.0.0.1 or set listen.admin_token_file", c.Listen.Admin)
	}
	if t := c.Listen.TLS; t != nil {
		if t.CertFile == "" || t.KeyFile == "" {
			f.add("listen.tls", "must name both cert_file and key_file")
		}
		f.file("listen.tls.cert_file", t.CertFile)
		f.file("listen.tls.key_file", t.KeyFile)
	}
}

func (c *Config) validateServer(f *faults) {
	if n := c.Server.MaxHeaderBytes; n < 1<<10 || n > 1<<20 {
		f.add("server.max_header_bytes", "must be between 1024 and 1048576 (got %d)", n)
	}
	if n := c.Server.MaxBodyBytes; n < 1 {
		f.add("server.max_body_bytes", "must be at least 1 (got %d)", n)
	}
	if n := c.Server.MaxConnections; n < 1 {
		f.add("server.max_connections", "must be at least 1 (got %d)", n)
	}
	f.positive("server.read_timeout", c.Server.ReadTimeout)
	f.positive("server.write_timeout", c.Server.WriteTimeout)
	f.positive("server.idle_timeout", c.Server.IdleTimeout)
	f.positive("upstream.dial_timeout", c.Upstream.DialTimeout)
	f.positive("upstream.timeout", c.Upstream.Timeout)
	f.positive("upstream.stream_timeout", c.Upstream.StreamTimeout)
	f.positive("upstream.idle_timeout", c.Upstream.IdleTimeout)
	f.positive("upstream.fail_for", c.Upstream.FailFor)
	f.file("upstream.ca_file", c.Upstream.CAFile)
	if c.Upstream.MaxConns < 1 {
		f.add("upstream.max_conns", "must be at least 1 (got %d)", c.Upstream.MaxConns)
	}
	if c.Upstream.FailAfter < 1 {
		f.add("upstream.fail_after", "must be at least 1 (got %d)", c.Upstream.FailAfter)
	}
}

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
	if t := r.TLS; t != nil {
		f.file("store.redis.tls.ca_file", t.CAFile)
		f.file("store.redis.tls.cert_file", t.CertFile)
		f.file("store.redis.tls.key_file", t.KeyFile)
		if (t.CertFile == "") != (t.KeyFile == "") {
			f.add("store.redis.tls", "must name both cert_file and key_file, or neither")
		}
	}
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// LogLevel is the least severe level to log.
func (c *Config) LogLevel() slog.Level {
	level, _ := c.Log.level()
	return level
}

func (l LogConfig) level() (slog.Level, error) {
	var level slog.Level
	err := level.UnmarshalText([]byte(l.Level))
	return level, err
}

// Check reports what would keep a node of this configuration from starting, without
// starting anything.
func Check(c *Config) error {
	if err := c.checkRules(); err != nil {
		return err
	}
	if c.Listen.TLS != nil {
		if _, err := newCertificate(*c.Listen.TLS); err != nil {
			return err
		}
	}
	pools, err := c.pools(nil)
	if err != nil {
		return err
	}
	closePools(pools)
	if c.Store.Kind == "redis" {
		_, err = c.Store.redis()
	}
	return err
}
