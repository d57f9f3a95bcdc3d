// Package config reads and checks the configuration file of an edge node, and makes of it
// what the node's parts take.
package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/weir-edge/weir/internal/edge/accesslog"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/edge/recent"
	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// Config is the configuration file of an edge node. docs/CONFIG.md describes it; make reference lists its fields.
type Config struct {
	Node           Node              `yaml:"node"`            // which node this is
	Listen         Listen            `yaml:"listen"`          // where the node listens
	Server         Server            `yaml:"server"`          // what clients may send, and how slowly
	Upstreams      []Upstream        `yaml:"upstreams"`       // the origins, 1 to 64 in a group, which share its load; default must have one
	Routes         []Route           `yaml:"routes"`          // which requests go to which group: the first match wins; all others go to default
	Upstream       Forward           `yaml:"upstream"`        // how requests are forwarded
	TrustedProxies []string          `yaml:"trusted_proxies"` // networks of proxies whose X-Forwarded-For, tier and cost headers count; any: every peer, for a node that only proxies can reach
	TierHeader     string            `yaml:"tier_header"`     // the header in which a trusted proxy states the client's tier, in place of the client's own; a client that sends it twice has no tier
	LegacyHeaders  bool              `yaml:"legacy_headers"`  // also send X-RateLimit-Limit, -Remaining and -Reset, for the rule with the least left
	Store          Store             `yaml:"store"`           // where counters are kept
	Rules          Rules             `yaml:"rules"`           // where rules come from
	Consul         Consul            `yaml:"consul"`          // the region's Consul; for rules.source consul
	Documents      Documents         `yaml:"documents"`       // whose signatures documents need; for rules.source consul
	Shedder        Shedder           `yaml:"shedder"`         // how requests are shed
	Policy         Policy            `yaml:"policy"`          // the behavior policy, which evaluates clients
	Clients        Clients           `yaml:"clients"`         // the networks that operators block or allow
	Peer           Peer              `yaml:"peer"`            // the other nodes, for listen.peer
	Log            Log               `yaml:"log"`             // the node's own log
	AccessLog      *accesslog.Config `yaml:"access_log"`      // a line for each request; absent: none
	Recent         recent.Config     `yaml:"recent"`          // the latest requests, kept in memory
	Shutdown       Shutdown          `yaml:"shutdown"`        // how the node stops

	Trusted []netip.Prefix `yaml:"-"`
}

// Node says which node this is.
type Node struct {
	ID     string `yaml:"id"`     // unique in Consul: letters, digits and ._:-; absent: the host name
	Region string `yaml:"region"` // with rules.source consul required: at most 64 lower-case letters, digits and -; otherwise a label
	PoP    string `yaml:"pop"`    // the site, named like the region
}

// Server bounds what a client may send, and how slowly.
type Server struct {
	MaxHeaderBytes          int           `yaml:"max_header_bytes"`           // of request line and header together, 1024 to 1048576; beyond: 431
	MaxBodyBytes            int64         `yaml:"max_body_bytes"`             // beyond: 413
	MaxConnections          int           `yaml:"max_connections"`            // further ones are closed; each may need two open files; the node warns unless it may open these and 1000 more
	MaxConnectionsPerClient int           `yaml:"max_connections_per_client"` // of one IPv4 address or IPv6 /64; further ones are closed; 0: no limit
	ReadTimeout             time.Duration `yaml:"read_timeout"`               // for a request's header to arrive; beyond: 408
	WriteTimeout            time.Duration `yaml:"write_timeout"`              // for the client to accept a response that is not streamed
	IdleTimeout             time.Duration `yaml:"idle_timeout"`               // closes an unused connection
	Paths                   string        `yaml:"paths"`                      // how to handle a path that origins may read in several ways: match_all, strict or normalized
}

// The values of server.paths: what to do with a path that origins may read in several ways.
const (
	PathsMatchAll   = "match_all"  // forward it as received, if all readings are decided alike
	PathsStrict     = "strict"     // refuse it
	PathsNormalized = "normalized" // forward its normal form, and decide about that like match_all
)

// Store says where counters are kept.
type Store struct {
	Kind    string        `yaml:"kind"`    // redis, or memory: in this process alone
	Timeout time.Duration `yaml:"timeout"` // 1ms to 10s, the longest that a decision waits; beyond: on_store_failure
	// Nodes is how many edge nodes share the store: each enforces its part of a
	// limit while the store is unreachable; absent: those in Consul's catalog, or 1.
	Nodes        *int  `yaml:"nodes"`
	DeniedMemory int   `yaml:"denied_memory"` // how many refusals a node remembers, to keep floods away from Redis
	MaxKeys      int   `yaml:"max_keys"`      // counters kept in the process; beyond: those that expire soonest are dropped
	Redis        Redis `yaml:"redis"`         // where Redis is
	// Clock tells the store in memory the Unix time in microseconds; nil: the system's.
	Clock func() int64 `yaml:"-"`
}

type Redis struct {
	Mode                 string        `yaml:"mode"`                   // single, sentinel or cluster
	Addrs                []string      `yaml:"addrs"`                  // host:port of the server, of the sentinels, or of some nodes of the cluster
	MasterName           string        `yaml:"master_name"`            // the sentinels' name for the master; with mode sentinel only, and required there
	Username             string        `yaml:"username"`               // ACL user
	PasswordFile         string        `yaml:"password_file"`          // holds its password, read at each connection
	SentinelUsername     string        `yaml:"sentinel_username"`      // ACL user of the sentinels
	SentinelPasswordFile string        `yaml:"sentinel_password_file"` // holds its password, read at the start
	TLS                  *certs.Client `yaml:"tls"`                    // absent: none; {}: with the system's authorities
	// Linger is how long a decision waits for others to share its round trip: 0 to a quarter of
	// store.timeout. 2ms halves what a decision costs a large Cluster, and adds about 2 ms to its p99.
	Linger time.Duration `yaml:"linger"`
}

// Log is what is logged.
type Log struct {
	Level string `yaml:"level"` // debug, info, warn or error
}

// Shutdown is how a node stops. Both together stay under 5 s by default.
type Shutdown struct {
	// Delay between /readyz failing and the listener closing, so that load balancers notice first; 0
	// for none.
	Delay time.Duration `yaml:"delay"`
	// Timeout is how long requests in flight may take to finish.
	Timeout time.Duration `yaml:"timeout"`
}

// Defaults returns the configuration that a file overrides.
func Defaults() Config {
	host, _ := os.Hostname()
	return Config{
		Node:   Node{ID: host},
		Listen: Listen{Public: "127.0.0.1:8080", Admin: "127.0.0.1:8081", HTTP2: HTTP2{MaxStreams: 100}},
		Server: Server{
			MaxHeaderBytes: 16 << 10, MaxBodyBytes: 1 << 30, MaxConnections: 100_000,
			ReadTimeout: 10 * time.Second, WriteTimeout: 60 * time.Second, IdleTimeout: 75 * time.Second,
			Paths: PathsMatchAll,
		},
		Upstream: Forward{
			DialTimeout: 2 * time.Second, Timeout: 30 * time.Second, StreamTimeout: 60 * time.Second,
			IdleTimeout: 30 * time.Second, MaxConns: 1024, FailAfter: 3, FailFor: 5 * time.Second,
			MaxHeaderBytes: 16 << 10, Upgrade: []string{"websocket"}, TunnelTimeout: 5 * time.Minute, Loop: "via",
			HealthCheck: proxy.HealthCheck{Interval: 5 * time.Second, Timeout: time.Second, Healthy: 2, Unhealthy: 3},
		},
		Store: Store{
			Kind: "redis", Timeout: redisstore.DefaultTimeout, DeniedMemory: 100_000, MaxKeys: 1_000_000,
			Redis: Redis{Mode: "cluster"},
		},
		Rules:    Rules{Source: FromFile, Cache: "/var/lib/weir/rules.json", Required: true},
		Consul:   Consul{Register: true},
		Policy:   Policy{Source: FromFile, Subjects: 100_000},
		Log:      Log{Level: "info"},
		Recent:   recent.Config{Share: 1},
		Shutdown: Shutdown{Delay: time.Second, Timeout: 3 * time.Second},
	}
}

// Load reads and checks a configuration file. The error names every fault
// with its path in the file.
func Load(file string) (*Config, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return nil, field.All(err).In(file)
	}
	return c, nil
}

// configForm is the accepted form of a configuration file.
var configForm = field.Form{MaxBytes: 1 << 20, Empty: "name upstreams and rules at least", Lenient: true, Aliases: true, Exponents: true}

// Parse reads and checks a configuration. The error is field.Errors.
func Parse(data []byte) (*Config, error) {
	c, _, faults := parse(data)
	if faults != nil {
		return nil, faults
	}
	return c, nil
}

// parse also returns what could be read of a configuration with faults, and the document.
func parse(data []byte) (*Config, *field.Node, field.Errors) {
	c := Defaults()
	root, faults := field.Load(data, &c, &configForm)
	if root != nil {
		faults = faults.With(root.Locate(field.All(c.Validate())))
	}
	return &c, root, faults
}

func (c *Config) Validate() error {
	var f faults
	if c.Node.ID == "" {
		f.add("node.id", "must be set: this machine has no host name")
	}
	c.validateListen(&f)
	c.validateServer(&f)
	c.validateForward(&f)
	c.validateGroups(&f)
	c.Trusted = f.networks("trusted_proxies", c.TrustedProxies)
	c.validateStore(&f)
	c.validateRules(&f)
	c.validateShedder(&f)
	c.validatePolicy(&f)
	c.validateCaches(&f)
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
	f.atLeastOne("server.max_body_bytes", c.Server.MaxBodyBytes)
	f.atLeastOne("server.max_connections", int64(c.Server.MaxConnections))
	if n := c.Server.MaxConnectionsPerClient; n < 0 {
		f.add("server.max_connections_per_client", "must not be negative (got %d); 0 for no limit", n)
	}
	if p := c.Server.Paths; p != PathsMatchAll && p != PathsStrict && p != PathsNormalized {
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

func (l Log) level() (slog.Level, error) {
	var level slog.Level
	err := level.UnmarshalText([]byte(l.Level))
	return level, err
}
