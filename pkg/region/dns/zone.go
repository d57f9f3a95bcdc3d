package dns

import (
	"cmp"
	"net/netip"
	"strings"

	wire "github.com/miekg/dns"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region"
)

// infrastructureTTL is for what changes only with the configuration.
const infrastructureTTL = 3600

// zone is what there is at fixed names of the zone.
type zone struct {
	name  string // with the last dot, in lower case
	ns    []wire.RR
	glue  []wire.RR // for the name servers within the zone
	soa   wire.SOA
	hosts map[string][]netip.Addr // name servers within the zone, by full name
}

// newZone makes the zone of a configuration. Its error is field.Errors.
func newZone(name string, c *Config) (*zone, error) {
	if faults := c.checkZone(name); faults != nil {
		return nil, faults
	}
	z := &zone{name: name + ".", hosts: map[string][]netip.Addr{}}
	for _, n := range c.NS {
		host := n.fullName()
		z.ns = append(z.ns, &wire.NS{Hdr: header(z.name, wire.TypeNS, infrastructureTTL), Ns: host})
		for _, a := range n.Addrs {
			z.hosts[host] = append(z.hosts[host], a.Unmap())
			z.glue = append(z.glue, record(host, a.Unmap(), infrastructureTTL))
		}
	}
	ttl := c.ttl()
	z.soa = wire.SOA{
		Hdr: header(z.name, wire.TypeSOA, ttl), Ns: z.ns[0].(*wire.NS).Ns, Mbox: c.mailbox(name),
		Refresh: 3600, Retry: 600, Expire: 604800, Minttl: ttl,
	}
	return z, nil
}

// fullName is the host in lower case, with the last dot.
func (n *NameServer) fullName() string { return strings.TrimSuffix(strings.ToLower(n.Host), ".") + "." }

// checkZone reports what is wrong with a zone's name and its name servers. Without a
// name, as long as there is no topology, whether they are in the zone is unknown.
func (c *Config) checkZone(name string) (faults field.Errors) {
	z := &zone{name: name + "."}
	if name != "" {
		if err := region.CheckZone(name); err != nil {
			faults.Add("zone", "%v", err)
			return faults
		}
	}
	if len(c.NS) == 0 {
		faults.Add("ns", "must name at least one name server, as in ns1.%s", cmp.Or(name, "edge.example.com"))
	}
	for i, n := range c.NS {
		at, host := field.Index("ns", i), n.fullName()
		if region.CheckZone(strings.TrimSuffix(host, ".")) != nil {
			faults.Add(at+".host", "must be a domain name (got %q)", n.Host)
			continue
		}
		if name == "" {
			continue
		}
		inside, label := z.within(host)
		switch {
		case inside && (label == "" || strings.Contains(label, ".") || label == "pop" || label == "region"):
			faults.Add(at+".host", "must be one label in front of the zone, but not pop or region (got %q)", n.Host)
		case inside && len(n.Addrs) == 0:
			faults.Add(at+".addresses", "must name those of %s, which is in the zone itself", n.Host)
		case !inside && len(n.Addrs) > 0:
			faults.Add(at+".addresses", "must be left out: %s is not in the zone %s", n.Host, name)
		}
	}
	return faults
}

// within reports whether a name in lower case is in the zone, and what stands in
// front of that.
func (z *zone) within(name string) (inside bool, label string) {
	if name == z.name || !wire.IsSubDomain(z.name, name) { // by labels: one may hold a dot
		return name == z.name, ""
	}
	return true, strings.TrimSuffix(name, "."+z.name)
}

func header(owner string, rrtype uint16, ttl uint32) wire.RR_Header {
	return wire.RR_Header{Name: owner, Rrtype: rrtype, Class: wire.ClassINET, Ttl: ttl}
}

// record is the A or AAAA record of an address.
func record(owner string, a netip.Addr, ttl uint32) wire.RR {
	if a.Is4() {
		return &wire.A{Hdr: header(owner, wire.TypeA, ttl), A: a.AsSlice()}
	}
	return &wire.AAAA{Hdr: header(owner, wire.TypeAAAA, ttl), AAAA: a.AsSlice()}
}
