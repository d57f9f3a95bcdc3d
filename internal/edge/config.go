package edge

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/edge/accesslog"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/edge/recent"
	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// Config is the configuration file of an edge node. docs/CONFIG.md describes it.
type Config struct {
	Node           NodeConfig        `yaml:"node"`
	Listen         ListenConfig      `yaml:"listen"`
	Server         ServerConfig      `yaml:"server"`
	Upstreams      []UpstreamConfig  `yaml:"upstreams"`
	Routes         []RouteConfig     `yaml:"routes"`
	Upstream       ForwardConfig     `yaml:"upstream"`
	TrustedProxies []string          `yaml:"trusted_proxies"`
	TierHeader     string            `yaml:"tier_header"`
	LegacyHeaders  bool              `yaml:"legacy_headers"`
	Store          StoreConfig       `yaml:"store"`
	Rules          RulesConfig       `yaml:"rules"`
	Consul         ConsulConfig      `yaml:"consul"`
	Documents      DocumentsConfig   `yaml:"documents"`
	Shedder        ShedderConfig     `yaml:"shedder"`
	Policy         PolicyConfig      `yaml:"policy"`
	Clients        ClientsConfig     `yaml:"clients"`
	Peer           PeerConfig        `yaml:"peer"`
	Log            LogConfig         `yaml:"log"`
	AccessLog      *accesslog.Config `yaml:"access_log"`
	Recent         recent.Config     `yaml:"recent"`
	Shutdown       ShutdownConfig    `yaml:"shutdown"`

	trusted []netip.Prefix
}

// NodeConfig says which node this is.
type NodeConfig struct {
	ID     string `yaml:"id"`
	Region string `yaml:"region"`
	PoP    string `yaml:"pop"`
}

// ServerConfig bounds what a client may send, and how slowly.
type ServerConfig struct {
	MaxHeaderBytes int   `yaml:"max_header_bytes"`
	MaxBodyBytes   int64 `yaml:"max_body_bytes"`
	MaxConnections int   `yaml:"max_connections"`
	// MaxConnectionsPerClient is for each IPv4 address or IPv6 /64; 0 for no bound.
	MaxConnectionsPerClient int           `yaml:"max_connections_per_client"`
	ReadTimeout             time.Duration `yaml:"read_timeout"`
	WriteTimeout            time.Duration `yaml:"write_timeout"`
	IdleTimeout             time.Duration `yaml:"idle_timeout"`
	// Paths says what to do with a path that origins may read in several ways.
	Paths string `yaml:"paths"`
}

// StoreConfig says where counters are kept.
type StoreConfig struct {
	Kind    string        `yaml:"kind"`
	Timeout time.Duration `yaml:"timeout"`
	// Nodes is how many edge nodes share the store: each enforces its part of a
	// limit while the store is unreachable. nil: those in Consul's catalog, or 1.
	Nodes        *int        `yaml:"nodes"`
	DeniedMemory int         `yaml:"denied_memory"`
	MaxKeys      int         `yaml:"max_keys"`
	Redis        RedisConfig `yaml:"redis"`
}

// RedisConfig says where Redis is.
type RedisConfig struct {
	Mode                 string        `yaml:"mode"`
	Addrs                []string      `yaml:"addrs"`
	MasterName           string        `yaml:"master_name"`
	Username             string        `yaml:"username"`
	PasswordFile         string        `yaml:"password_file"`
	SentinelUsername     string        `yaml:"sentinel_username"`
	SentinelPasswordFile string        `yaml:"sentinel_password_file"`
	TLS                  *certs.Client `yaml:"tls"` // empty: with the system's authorities
}

// LogConfig is what is logged.
type LogConfig struct {
	Level string `yaml:"level"`
}

// ShutdownConfig is how a node stops. Both together stay under 5 s by default.
type ShutdownConfig struct {
	// Delay between /readyz failing and the listener closing, so that
	// load balancers notice first.
	Delay time.Duration `yaml:"delay"`
	// Timeout is how long requests in flight may take to finish.
	Timeout time.Duration `yaml:"timeout"`
}

// Defaults returns the configuration before a file changes it.
func Defaults() Config {
	host, _ := os.Hostname()
	return Config{
		Node:   NodeConfig{ID: host},
		Listen: ListenConfig{Public: "127.0.0.1:8080", Admin: "127.0.0.1:8081", HTTP2: HTTP2Config{MaxStreams: 100}},
		Server: ServerConfig{
			MaxHeaderBytes: 16 << 10, MaxBodyBytes: 1 << 30, MaxConnections: 100_000,
			ReadTimeout: 10 * time.Second, WriteTimeout: 60 * time.Second, IdleTimeout: 75 * time.Second,
			Paths: pathsMatchAll,
		},
		Upstream: ForwardConfig{
			DialTimeout: 2 * time.Second, Timeout: 30 * time.Second, StreamTimeout: 60 * time.Second,
			IdleTimeout: 30 * time.Second, MaxConns: 1024, FailAfter: 3, FailFor: 5 * time.Second,
			MaxHeaderBytes: 16 << 10, Upgrade: []string{"websocket"}, TunnelTimeout: 5 * time.Minute, Loop: "via",
			HealthCheck: proxy.HealthCheck{Interval: 5 * time.Second, Timeout: time.Second, Healthy: 2, Unhealthy: 3},
		},
		Store: StoreConfig{
			Kind: "redis", Timeout: redisstore.DefaultTimeout, DeniedMemory: 100_000, MaxKeys: 1_000_000,
			Redis: RedisConfig{Mode: "cluster"},
		},
		Rules:    RulesConfig{Source: fromFile, Cache: "/var/lib/weir/rules.json", Required: true},
		Consul:   ConsulConfig{Register: true},
		Policy:   PolicyConfig{Source: fromFile, Subjects: 100_000},
		Log:      LogConfig{Level: "info"},
		Recent:   recent.Config{Share: 1},
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
		return nil, field.All(err).In(file)
	}
	return c, nil
}

// configForm is the accepted form of a configuration file.
var configForm = field.Form{MaxBytes: 1 << 20, Empty: "name upstreams and rules at least", Lenient: true, Aliases: true, Exponents: true}

// ParseConfig reads and checks a configuration. The error is field.Errors.
func ParseConfig(data []byte) (*Config, error) {
	c := Defaults()
	root, faults := field.Load(data, &c, &configForm)
	if faults == nil {
		faults = root.Locate(field.All(c.validate()))
	}
	if faults != nil {
		return nil, faults
	}
	return &c, nil
}

// faults collects what is wrong, each with its path.
type faults struct{ list field.Errors }

func (f *faults) add(path, format string, args ...any) { f.list.Add(path, format, args...) }

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

func (f *faults) file(path, name string) { f.list.File(path, name) }

// word reports a value that is not among a field's names.
func (f *faults) word(path, got string, names ...string) {
	if !slices.Contains(names, got) {
		f.add(path, "must be %s%s (got %q)", field.OneOf(names...), field.Suggest(got, names...), got)
	}
}

func (c *Config) validate() error {
	var f faults
	if c.Node.ID == "" {
		f.add("node.id", "must be set: this machine has no host name")
	}
	c.validateListen(&f)
	c.validateServer(&f)
	c.validateForward(&f)
	c.validateGroups(&f)
	c.trusted = f.networks("trusted_proxies", c.TrustedProxies)
	c.validateStore(&f)
	c.validateRules(&f)
	c.validateShedder(&f)
	c.validatePolicy(&f)
	c.validateClients(&f)
	c.validateDocuments(&f)
	c.validatePeer(&f)
	if _, err := c.Log.level(); err != nil {
		f.add("log.level", "must be debug, info, warn or error (got %q)", c.Log.Level)
	}
	if c.AccessLog != nil {
		c.AccessLog.Validate(func(path, format string, args ...any) { f.add("access_log."+path, format, args...) })
	}
	c.Recent.Validate(func(path, format string, args ...any) { f.add("recent."+path, format, args...) })
	if c.Shutdown.Delay < 0 {
		f.add("shutdown.delay", "must not be negative (got %s)", c.Shutdown.Delay)
	}
	f.positive("shutdown.timeout", c.Shutdown.Timeout)
	return f.list.Err()
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
	if n := c.Server.MaxConnectionsPerClient; n < 0 {
		f.add("server.max_connections_per_client", "must not be negative (got %d); 0 for no limit", n)
	}
	if p := c.Server.Paths; p != pathsMatchAll && p != pathsStrict && p != pathsNormalized {
		f.add("server.paths", "must be match_all, strict or normalized (got %q)", p)
	}
	f.positive("server.read_timeout", c.Server.ReadTimeout)
	f.positive("server.write_timeout", c.Server.WriteTimeout)
	f.positive("server.idle_timeout", c.Server.IdleTimeout)
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
func Check(c *Config) (warnings []string, err error) {
	if file := c.Listen.AdminTokenFile; file != "" && secretFile(file)() == "" {
		return nil, fmt.Errorf("listen.admin_token_file: %s holds no token, so that every request to the admin side gets 401; write one into it", file)
	}
	if _, err := c.Shedder.readSecret(); err != nil {
		return nil, err
	}
	if _, err := c.Documents.keys(); err != nil {
		return nil, err
	}
	if warnings, err = c.checkRules(); err != nil {
		return nil, err
	}
	listeners, err := c.Listen.certificates()
	if err != nil {
		return nil, err
	}
	if err := c.checkPeer(listeners.peer); err != nil {
		return nil, err
	}
	pools, err := c.pools(func(string) proxy.Observer { return nil }, proxy.Loop{})
	if err != nil {
		return nil, err
	}
	closePools(pools)
	if c.Store.Kind == "redis" {
		_, err = c.Store.redis()
		if c.Shedder.SecretFile == "" {
			warnings = append(warnings, "shedder.secret_file is not set, so a client with many addresses can compute which of them are not shed; name a file with the same secret on every node")
		}
		if c.Store.Nodes == nil && !c.followsConsul() {
			warnings = append(warnings, "store.nodes is not set, so each node passes the whole of a limit while Redis is unreachable; set it to the number of nodes, 1 for a single one")
		}
	}
	return append(c.warnings(), warnings...), err
}
