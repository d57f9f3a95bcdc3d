// Package dns has the commands that run and explain a router of DNS.
package dns

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/router"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/dns"
	"github.com/weir-edge/weir/pkg/sign"
)

const help = `Answers DNS questions for one zone with the addresses of the nearest PoP that is healthy
and not drained, until SIGTERM or Ctrl-C. It is an authoritative server and does not recurse.

For each question it takes the client's subnet (EDNS client subnet, RFC 7871), or the
address of the resolver, and orders the PoPs: first those whose client networks in the
topology contain it, the longest first; then by distance from the client, with --geoip, or
else from the PoP with such networks; then as the topology lists their regions. It leaves out
PoPs that are down or drained, sends clients that a PoP has no capacity for to the nearest with
room, and answers with all if none is healthy.

A PoP's health is what the Consul of its region says of its edges. While that Consul is
unreachable, the router asks another region's about it, and probes the edges, and the PoP's
public addresses if the topology has a probe. A restart or a flapping check does not make
the answer flap: a PoP is down immediately when all its edges are gone, otherwise after two
failed checks, and back after five good seconds, longer if it keeps failing.

  edge.example.com              the nearest PoP (A, AAAA)
  ams1.pop.edge.example.com     that PoP, whatever its state
  eu.region.edge.example.com    the nearest of the region eu
  others                        the topology's records

--ns names the zone's name servers, with their addresses if they are in the zone; a name
without a dot is in the zone. This server should be among them. Without --ns it calls
itself ns1 of the zone, at the addresses of --listen.

With --verify-keys it verifies the signature of the topology (topology apply --sign), and reports
in its log and in weir_dns_topology_unsigned if no key has signed it. With --require-signed it also
ignores such a topology, and keeps the one that it has. Drains are not signed.

With --state it keeps the topology, drains and the state of PoPs in a file, and starts from
that if no Consul answers; /readyz and weir_dns_region_facts_age_seconds say how old it is.

It needs read access to Consul: key_prefix weir/topology/ and weir/drain/, service weir-edge
and nodes; and write access to the key weir/spill, by which routers agree. There each router
signs, with --key, which clients it sends to other PoPs, and follows the others that the topology
names (topology --help). Without a key, or if the topology does not name it, it works alone. Its
log goes to standard error: JSON, or plain on a terminal. The metrics listener has /metrics, /healthz (it
runs) and /readyz (it answers, and has a topology).

regionctl dns explain shows what it would answer, and why.`

const DefaultTTL = 20 * time.Second

// options are the flags of dns.
type options struct {
	router.Config
	listen []string
	names  []string
	geoip  string
	key    string
}

func Command(p *command.Program) *cobra.Command {
	var o options
	c := command.New("dns", "answer DNS with the nearest healthy PoP", help,
		`  regionctl dns --listen 127.0.0.1:5300
  dig @127.0.0.1 -p 5300 edge.example.com +subnet=203.0.113.0/24
  regionctl dns --listen 192.0.2.53:53 --ns ns1=192.0.2.53 --ns ns2=198.51.100.53 --geoip GeoLite2-City.mmdb
  regionctl dns explain --client 203.0.113.7`,
		func(ctx context.Context, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return serve(ctx, p, &o)
		})
	// Cobra shows a command that holds others as a group, but this one does something.
	c.SetUsageTemplate(new(cobra.Command).UsageTemplate())
	f := c.Flags()
	f.StringSliceVarP(&o.listen, "listen", "l", []string{"127.0.0.1:5300"}, "`ADDRESS:PORT` for UDP and TCP; several: repeat it")
	f.StringVar(&o.Zone, "zone", "", "the `ZONE` to answer for (default: that of the topology)")
	f.StringArrayVar(&o.names, "ns", nil, "a name server of the zone, `NAME=ADDRESS,ADDRESS`; several: repeat it")
	f.StringVar(&o.Hostmaster, "hostmaster", "", "the mail `ADDRESS` in the SOA (default: hostmaster@ZONE)")
	f.DurationVar(&o.TTL, "ttl", DefaultTTL, "how long resolvers may keep an answer; clients leave a lost PoP after that")
	o.geoFlag(c)
	o.stateFlag(c)
	f.StringSliceVar(&o.VerifyKeys, "verify-keys", nil, "public key `FILES`; reports if none of their keys has signed the topology (see regionctl keys --help)")
	f.StringVar(&o.key, "key", "", "private key `FILE` of this router (see regionctl keys --help), which the topology names; routers with one agree on the clients that they move")
	f.BoolVar(&o.RequireSigned, "require-signed", false, "ignore a topology that no key of --verify-keys has signed, and keep the previous one")
	f.StringVar(&o.Metrics, "metrics", "127.0.0.1:9153", "`ADDRESS:PORT` for /metrics, /healthz and /readyz; empty: none")
	f.IntVar(&o.RateLimit, "rate-limit", 100, "how many times per second the clients of one /24 or /56 get the same answer over UDP, and ten times that for all answers; of the rest, every second one is redirected to TCP; 0: no limit")
	f.Float64Var(&o.PassingShare, "passing-share", 0, "share of a PoP's edges that must pass for it to be healthy, 0 to 1; at least one edge")
	c.AddCommand(explainCommand(p))
	return c
}

func (o *options) geoFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.geoip, "geoip", "", "a GeoIP `FILE` in the MaxMind DB format, such as GeoLite2-City.mmdb; a file renamed over it is read within a minute")
	command.CompleteFiles(c, "geoip", "mmdb")
}

func (o *options) stateFlag(c *cobra.Command) {
	c.Flags().StringVar(&o.State, "state", "", "a `FILE` that keeps what the router knows, to start from while no Consul answers (default: none)")
}

// open prepares what o needs to look at the fleet.
func (o *options) open(p *command.Program) error {
	if !(o.PassingShare >= 0 && o.PassingShare <= 1) {
		return term.Misused("--passing-share %v: must be between 0 and 1", o.PassingShare)
	}
	targets, err := p.Targets(kinds.Rules, nil)
	if err != nil {
		return err
	}
	for _, t := range targets {
		t.Trust() // a router writes only to other routers
		o.Regions = append(o.Regions, region.FollowedRegion{Name: t.Name, Consul: t.Consul})
	}
	if len(o.VerifyKeys) > 0 {
		if _, err := sign.ReadPublic(o.VerifyKeys); err != nil {
			return term.Misused("--verify-keys: %w", err)
		}
	}
	if o.key != "" {
		if o.Key, err = sign.ReadKey(o.key); err != nil {
			return term.Misused("--key: %w", err)
		}
	}
	if o.geoip == "" {
		return nil
	}
	if o.Geo, err = router.OpenGeo(o.geoip); err != nil {
		return term.Misused("--geoip: %w", err)
	}
	return nil
}

// serve answers until ctx ends.
func serve(ctx context.Context, p *command.Program, o *options) error {
	if err := o.open(p); err != nil {
		return err
	}
	o.Log = p.Log()
	var bad *router.ConfigError
	err := router.Run(ctx, &o.Config)
	if errors.As(err, &bad) {
		return term.Misused("%w", ofFlags(err))
	}
	return err
}

func (o *options) check() error {
	if len(o.listen) == 0 {
		return term.Misused("--listen: must name at least one address:port")
	}
	for _, text := range o.listen {
		addr, err := command.ParseListen(text)
		if err != nil {
			return term.Misused("--listen %q: %w", text, err)
		}
		o.Listen = append(o.Listen, addr)
	}
	if o.Metrics != "" {
		if _, err := command.ParseListen(o.Metrics); err != nil {
			return term.Misused("--metrics %q: %w", o.Metrics, err)
		}
	}
	for _, text := range o.names {
		n, err := parseNameServer(text)
		if err != nil {
			return term.Misused("--ns %q: %w", text, err)
		}
		o.NS = append(o.NS, n)
	}
	if o.RequireSigned && len(o.VerifyKeys) == 0 {
		return term.Misused("--require-signed needs --verify-keys FILES: without a key, no topology could be accepted")
	}
	if err := o.Check(); err != nil {
		return term.Misused("%w", ofFlags(err))
	}
	return nil
}

// ofFlags replaces field names in err by flags.
func ofFlags(err error) error {
	list := field.All(err)
	for _, e := range list {
		if e.Path != "" {
			e.Path = "--" + strings.ReplaceAll(e.Path, "_", "-")
		}
	}
	return list
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
