package router

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/dns"
	"github.com/weir-edge/weir/pkg/sign"
)

// Config is what a router answers for, and where.
type Config struct {
	Regions []region.FollowedRegion
	Listen  []netip.AddrPort // UDP and TCP
	// Zone is the zone to answer for; empty: the topology's.
	Zone string
	// NS are the zone's name servers. A host without a dot is in the zone. If there are
	// none, this router is ns1 of the zone, at the addresses of Listen.
	NS           []dns.NameServer
	Hostmaster   string // in the SOA; empty: hostmaster@ the zone
	TTL          time.Duration
	RateLimit    int     // answers of one kind per second to one network over UDP; 0: no limit
	PassingShare float64 // the share of a PoP's edges that must pass for it to be healthy
	Geo          *GeoFile
	Metrics      string // the address of the metrics listener; empty: none
	// State is the file that keeps the fleet's state for the next start; empty: none.
	State string
	Log   *slog.Logger
	// VerifyKeys are files with public keys, of which one should have signed the topology; none:
	// signatures do not matter.
	VerifyKeys []string
	// Key signs the router's records for other routers; nil: it works alone.
	Key *sign.Key
	// RequireSigned ignores a topology that none of them has signed. Otherwise the router only
	// says so.
	RequireSigned bool
}

// ConfigError is a fault of a Config that only the topology reveals.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Check returns all faults of c that do not depend on the zone.
func (c *Config) Check() error {
	_, err := dns.New(c.server(canonical(c.Zone), func() *region.View { return nil }, nil))
	return err
}

func canonical(zone string) string { return strings.TrimSuffix(strings.ToLower(zone), ".") }

func (c *Config) follow() region.FollowConfig {
	f := region.FollowConfig{Regions: c.Regions, PassingShare: c.PassingShare, TTL: c.TTL, Key: c.Key}
	if len(c.VerifyKeys) > 0 {
		f.Verify = func() (sign.Keys, error) { return sign.ReadPublic(c.VerifyKeys) }
		f.RequireSigned = c.RequireSigned
	}
	if c.Geo != nil {
		f.Geo = c.Geo
	}
	return f
}

// server returns the configuration of the DNS server for a zone.
func (c *Config) server(zone string, view func() *region.View, observer dns.Observer) dns.Config {
	s := dns.Config{View: view, Zone: zone, Hostmaster: c.Hostmaster, TTL: c.TTL, RateLimit: c.RateLimit, Observer: observer}
	for _, n := range c.NS {
		if !strings.Contains(strings.TrimSuffix(n.Host, "."), ".") {
			n.Host = strings.TrimSuffix(n.Host, ".") + "." + zone
		}
		s.NS = append(s.NS, n)
	}
	if len(s.NS) == 0 {
		s.NS = []dns.NameServer{{Host: "ns1." + zone, Addrs: c.ownAddresses()}}
	}
	return s
}

// ownAddresses returns the addresses at which resolvers reach this server, as far as it
// can tell.
func (c *Config) ownAddresses() []netip.Addr {
	var list, loopback []netip.Addr
	add := func(a netip.Addr) {
		a = a.Unmap().WithZone("")
		if !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	for _, l := range c.Listen {
		if !l.Addr().IsUnspecified() {
			add(l.Addr())
			continue
		}
		found, err := net.InterfaceAddrs()
		if err != nil {
			continue // only the loopback remains
		}
		for _, f := range found {
			if prefix, err := netip.ParsePrefix(f.String()); err == nil && prefix.Addr().IsGlobalUnicast() {
				add(prefix.Addr())
			}
		}
		loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	if len(list) == 0 {
		return loopback
	}
	return list
}
