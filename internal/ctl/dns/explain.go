package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/router"
	"github.com/weir-edge/weir/pkg/region"
)

const explainHelp = `Says which PoP a client is sent to now, and why: each step of the choice, from the live
state of all regions. It asks the Consul of each region as the router does, but only once:
a PoP that the router holds back because it came up a moment ago counts as up here, and a
region on which no Consul reports is unknown here, while the router keeps its last state;
with --state, this starts from the router's file. Probes of the topology run as in the
router.

How many clients an overloaded PoP gives to others depends on what routers did before. With
--state this is what the router does; without it, what a new router would start with.

--client is an address, or the network that a resolver passes on (203.0.113.0/24). If the
router has a GeoIP database, pass the same one. Without --client, this shows what each PoP
receives, what it can serve, and which shares of its clients routers send to other PoPs.
DEMAND/S is what its origin is asked for and what is shed; REQ/S of regionctl status counts
limited requests, too.

Among equals, where the router chooses at random for resolvers that pass no network on, this
shows the choice for those that do. If the PoP has no address of a family, the last step names
the PoP that queries for that family get. Addresses are listed as configured; each answer of the
router has those of a PoP in another order.

Exits with 0, or with 3 if not every region could be asked.`

func explainCommand(p *command.Program) *cobra.Command {
	var q Query
	c := command.New("explain", "say which PoP a client is sent to, and why", explainHelp,
		`  regionctl dns explain
  regionctl dns explain --client 203.0.113.7
  regionctl dns explain --client 2001:db8:7::/48 --region us-east --geoip GeoLite2-City.mmdb
  regionctl dns explain --client 203.0.113.7 -o json | jq -r '.reason[]'`,
		func(ctx context.Context, _ []string) error {
			e, err := q.Explain(ctx, p)
			return command.Show(p, e, err, (*Explanation).write)
		})
	q.Flags(c.Flags())
	q.geoFlag(c)
	q.stateFlag(c)
	_ = c.RegisterFlagCompletionFunc("region", p.CompleteRegions) // fails only if the flag is unknown
	return c
}

// Query asks which PoP a client is sent to.
type Query struct {
	options
	client, region string
}

// Flags binds the fields to flags.
func (o *Query) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.client, "client", "", "the client's `ADDRESS`, or its network")
	f.StringVar(&o.region, "region", "", "only PoPs of this `REGION`, as the name REGION.region.ZONE asks for")
	f.Float64Var(&o.PassingShare, "passing-share", 0, "the same as for the router")
	f.DurationVar(&o.TTL, "ttl", DefaultTTL, "the same as for the router")
}

func parseClient(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, term.Misused("--client %q: must be an address such as 203.0.113.7, or a network such as 203.0.113.0/24", text)
	}
	prefix = prefix.Masked()
	if a := prefix.Addr(); a.Is4In6() {
		prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
	}
	return prefix, nil
}

// Explanation is what dns explain prints with -o json.
type Explanation struct {
	Client   string        `json:"client,omitempty"` // "": none was asked about
	Region   string        `json:"region,omitempty"`
	Zone     string        `json:"zone"`
	Reason   []region.Step `json:"reason"`
	PoPs     []string      `json:"pops"` // the chosen one first
	Addrs    []netip.Addr  `json:"addresses"`
	Scope    int           `json:"scope"`
	Spilled  bool          `json:"spilled"`
	FailOpen bool          `json:"fail_open"`
	Unknown  []string      `json:"unknown_regions"`
	Loads    []Load        `json:"loads"`
}

// Explain chooses a PoP from the live state of all regions.
func (o *Query) Explain(ctx context.Context, p *command.Program) (*Explanation, error) {
	var client netip.Prefix
	var err error
	switch {
	case o.client != "":
		client, err = parseClient(o.client)
	case o.region != "":
		err = term.Misused("--region needs --client, as in --client 203.0.113.7 --region %s", o.region)
	}
	if err != nil {
		return nil, err
	}
	if err := o.open(p); err != nil {
		return nil, err
	}
	v, err := router.ReadView(ctx, &o.Config, p.Timeout)
	if errors.Is(err, os.ErrNotExist) {
		return nil, term.Misused("--state %s: there is no such file; name the one that the router writes, or leave --state out", o.State)
	}
	if err != nil {
		return nil, err
	}
	if o.region != "" && !v.HasRegion(o.region) {
		return nil, term.Misused("--region: the topology has no region %q; regionctl topology show shows which it has", o.region)
	}
	e := &Explanation{Zone: v.Topology.Zone, Reason: []region.Step{}, PoPs: []string{}, Addrs: []netip.Addr{}, Unknown: []string{}, Loads: loads(v)}
	if client.IsValid() {
		e.choose(v, client, o.region)
	}
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(v.Regions)) {
		if s := v.Regions[name]; !s.Known {
			e.Unknown = append(e.Unknown, name)
			if s.Err != nil {
				reasons = append(reasons, "\n"+name+": "+s.Err.Error())
			}
		}
	}
	if len(e.Unknown) > 0 {
		err = term.Partial("the state of %s is unknown%s", strings.Join(e.Unknown, ", "), strings.Join(reasons, ""))
	}
	return e, err
}

func (e *Explanation) choose(v *region.View, client netip.Prefix, within string) {
	q := region.Query{Client: client, Region: within, Random: region.StickyRandom(client), Explain: true}
	a := v.Choose(q)
	e.Client, e.Region, e.Reason = client.String(), within, append(a.Reason, ByFamily(v, q, a)...)
	e.PoPs, e.Addrs, e.Scope, e.Spilled, e.FailOpen = a.PoPs, a.Addresses, a.Scope, a.Spilled, a.FailOpen
}

// ByFamily tells which queries get another PoP, because the chosen one has no address of their
// family.
func ByFamily(v *region.View, q region.Query, a region.Answer) (steps []region.Step) {
	q.Explain = false
	for _, f := range []struct {
		family int
		qtype  string
	}{{4, "A"}, {6, "AAAA"}} {
		q.Family = f.family
		if b := v.Choose(q); !b.FailOpen && b.PoPs[0] != a.PoPs[0] {
			steps = append(steps, region.Step(fmt.Sprintf("%s queries get %s, because %s has no IPv%d address", f.qtype, b.PoPs[0], a.PoPs[0], f.family)))
		}
	}
	return steps
}

func (e *Explanation) write(b *bytes.Buffer, s term.Style) {
	if e.Client == "" {
		writeLoads(b, e.Loads)
		return
	}
	for _, step := range e.Reason {
		fmt.Fprintf(b, "  %s\n", term.Printable(string(step)))
	}
	addrs := fleet.Map(e.Addrs, netip.Addr.String)
	chosen := "none is healthy, so all"
	if !e.FailOpen && len(e.PoPs) > 0 {
		chosen = term.Printable(e.PoPs[0])
	}
	fmt.Fprintf(b, "%s → %s: %s\n", e.Client, s.Bold(chosen), term.OrDashes(addrs))
	if len(e.PoPs) > 1 && !e.FailOpen {
		fmt.Fprintf(b, "after that: %s\n", term.OrDashes(e.PoPs[1:]))
	}
	if e.Scope > 0 {
		fmt.Fprintf(b, "the same for everyone in the client's /%d\n", e.Scope)
	} else {
		b.WriteString("the same for everyone\n")
	}
}
