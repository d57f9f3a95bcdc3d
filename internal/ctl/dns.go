package ctl

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/dns"
)

const dnsHelp = `Answers DNS questions for one zone with the addresses of the nearest PoP that is healthy
and not drained, until it is told to stop (SIGTERM or Ctrl-C). It is an authoritative
server: it asks nobody on behalf of others, and keeps nothing on disk.

For each question it takes the client's subnet (EDNS client subnet, RFC 7871), or the
address of the resolver, and orders the PoPs: first those whose clients networks in the
topology contain it, the longest first; then by distance, with --geoip; then as the
topology lists their regions. What is down or drained is left out, a PoP that sheds load
gives that share of its clients to the next, and if nothing is healthy it answers with all.

A PoP's health is what the Consul of its region says of its edges. While that Consul is
away, another region's is asked about it, and the edges themselves. One restart, or a
check that flaps, does not flap the answer: a PoP is down at once when all its edges are
gone, else after two bad looks, and back after five good seconds; more if it keeps falling.

  edge.example.com              the nearest PoP (A, AAAA)
  ams1.pop.edge.example.com     that PoP, whatever its state
  eu.region.edge.example.com    the nearest of the region eu

--ns names the zone's name servers, with their addresses if they are in the zone; a name
without a dot is in the zone. This server should be among them. Without --ns it calls
itself ns1 of the zone, at the addresses of --listen.

It needs read access to Consul: key_prefix weir/topology and weir/drain/, service weir-edge
and nodes. Its log goes to standard error: JSON, or plain on a terminal. The metrics
listener has /metrics, /healthz (it runs) and /readyz (it answers, and has a topology).

It says what it would answer and why with regionctl dns explain.`

// dnsOptions are the flags of dns.
type dnsOptions struct {
	listen     []string
	zone       string
	names      []string
	hostmaster string
	ttl        time.Duration
	geoip      string
	metrics    string
	rateLimit  int
	share      float64

	nameServers []dns.NameServer
	addrs       []netip.AddrPort // of listen
}

func (p *program) dnsCommand() *cobra.Command {
	var o dnsOptions
	c := command("dns", "answer DNS with the nearest healthy PoP", dnsHelp,
		`  regionctl dns --listen 127.0.0.1:5300
  dig @127.0.0.1 -p 5300 edge.example.com +subnet=203.0.113.0/24
  regionctl dns --listen 192.0.2.53:53 --ns ns1=192.0.2.53 --ns ns2=198.51.100.53 --geoip GeoLite2-City.mmdb
  regionctl dns explain --client 203.0.113.7`,
		func(ctx context.Context, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return p.serveDNS(ctx, &o)
		})
	// Cobra shows a command that holds others as a group, but this one does something.
	c.SetUsageTemplate(new(cobra.Command).UsageTemplate())
	f := c.Flags()
	f.StringSliceVarP(&o.listen, "listen", "l", []string{"127.0.0.1:5300"}, "`ADDRESS:PORT` for UDP and TCP; several: repeat it")
	f.StringVar(&o.zone, "zone", "", "the `ZONE` to answer for (default: that of the topology)")
	f.StringArrayVar(&o.names, "ns", nil, "a name server of the zone, `NAME=ADDRESS,ADDRESS`; several: repeat it")
	f.StringVar(&o.hostmaster, "hostmaster", "", "the mail `ADDRESS` in the SOA (default: hostmaster@ZONE)")
	f.DurationVar(&o.ttl, "ttl", 20*time.Second, "for how long resolvers may keep an answer; clients leave a lost PoP after that")
	o.geoFlag(c)
	f.StringVar(&o.metrics, "metrics", "127.0.0.1:9153", "`ADDRESS:PORT` for /metrics, /healthz and /readyz; empty: none")
	f.IntVar(&o.rateLimit, "rate-limit", 1000, "answers a second over UDP to the clients of one /24 or /56, of the rest every second is sent to TCP; 0: no limit")
	f.Float64Var(&o.share, "passing-share", 0, "how much of a PoP's edges must pass for it to be healthy, 0 to 1; one in any case")
	c.AddCommand(p.dnsExplainCommand())
	return c
}

func (o *dnsOptions) geoFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.geoip, "geoip", "", "a GeoIP `FILE` in the MaxMind DB format, such as GeoLite2-City.mmdb; replaced by renaming, it is read again within a minute")
	completeFiles(c, "geoip", "mmdb")
}

func (o *dnsOptions) check() error {
	if len(o.listen) == 0 {
		return misused("--listen: must name at least one address:port")
	}
	for _, text := range o.listen {
		addr, err := parseListen(text)
		if err != nil {
			return misused("--listen %q: %w", text, err)
		}
		o.addrs = append(o.addrs, addr)
	}
	if o.metrics != "" {
		if _, err := parseListen(o.metrics); err != nil {
			return misused("--metrics %q: %w", o.metrics, err)
		}
	}
	if !(o.share >= 0 && o.share <= 1) {
		return misused("--passing-share %v: must be between 0 and 1", o.share)
	}
	for _, text := range o.names {
		n, err := parseNameServer(text)
		if err != nil {
			return misused("--ns %q: %w", text, err)
		}
		o.nameServers = append(o.nameServers, n)
	}
	// All that can be checked before the zone is known.
	zone := strings.TrimSuffix(strings.ToLower(o.zone), ".")
	if zone == "" {
		zone = "zone.invalid"
	}
	_, err := dns.New(o.config(zone, func() *region.View { return nil }, nil))
	if err != nil && (o.zone != "" || !strings.Contains(err.Error(), zone)) {
		return misused("%w", flagNames(err))
	}
	return nil
}

// flagNames names the flags, for what the package calls its fields.
func flagNames(err error) error {
	text := strings.NewReplacer("rate_limit: ", "--rate-limit: ", "hostmaster: ", "--hostmaster: ", "ttl: ", "--ttl: ", "zone: ", "--zone: ", "ns[", "--ns[").Replace(err.Error())
	return fmt.Errorf("%s", text)
}

// parseListen takes a literal address only: a name could be another one tomorrow.
func parseListen(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err == nil && host == "localhost" {
		host = "127.0.0.1"
	}
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err == nil && host == "" && portErr == nil {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(n)), nil
	}
	addr, addrErr := netip.ParseAddr(host)
	if err != nil || portErr != nil || addrErr != nil {
		return netip.AddrPort{}, fmt.Errorf("must be address:port, as 127.0.0.1:5300 or [::]:53")
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}

// parseNameServer reads NAME=ADDRESS,ADDRESS or NAME.
func parseNameServer(text string) (dns.NameServer, error) {
	name, list, _ := strings.Cut(text, "=")
	n := dns.NameServer{Host: strings.TrimSpace(name)}
	if n.Host == "" {
		return n, fmt.Errorf("must be NAME=ADDRESS,ADDRESS, as ns1.edge.example.com=192.0.2.53")
	}
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		a, err := netip.ParseAddr(part)
		if err != nil || a.IsUnspecified() || a.Zone() != "" {
			return n, fmt.Errorf("%q must be an IP address that resolvers can reach", part)
		}
		n.Addrs = append(n.Addrs, a.Unmap())
	}
	return n, nil
}

// config is that of the server, for a zone.
func (o *dnsOptions) config(zone string, view func() *region.View, observer dns.Observer) dns.Config {
	c := dns.Config{View: view, Zone: zone, Hostmaster: o.hostmaster, TTL: o.ttl, RateLimit: o.rateLimit, Observer: observer}
	for _, n := range o.nameServers {
		if !strings.Contains(strings.TrimSuffix(n.Host, "."), ".") {
			n.Host = strings.TrimSuffix(n.Host, ".") + "." + zone
		}
		c.NS = append(c.NS, n)
	}
	if len(c.NS) == 0 {
		c.NS = []dns.NameServer{{Host: "ns1." + zone, Addrs: o.ownAddresses()}}
	}
	return c
}

// ownAddresses are those at which resolvers find this server, as far as it can tell.
func (o *dnsOptions) ownAddresses() []netip.Addr {
	var list, loopback []netip.Addr
	add := func(a netip.Addr) {
		a = a.Unmap().WithZone("")
		for _, known := range list {
			if known == a {
				return
			}
		}
		list = append(list, a)
	}
	for _, l := range o.addrs {
		if !l.Addr().IsUnspecified() {
			add(l.Addr())
			continue
		}
		found, err := net.InterfaceAddrs()
		if err != nil {
			continue // what is left is the loopback
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
