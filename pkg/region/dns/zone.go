package dns

import (
	"cmp"
	"encoding/json"
	"hash/crc32"
	"net/netip"
	"strings"

	wire "github.com/miekg/dns"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region"
)

// infrastructureTTL is the TTL in seconds of records that change only with the
// configuration.
const infrastructureTTL = 3600

// zone is the content of every name in the zone, for one topology.
type zone struct {
	name     string           // with the trailing dot, in lower case
	topology *region.Topology // that it was made from
	soa      wire.SOA
	nodes    map[string]*node // by full name in lower case
	pops     map[string]*node // those of PoPs, by the PoP's name
}

// node is the content of one name. An empty one exists because of the names below it.
type node struct {
	name    string
	records map[uint16][]wire.RR // by type
	pop     *region.PoP          // the PoP with these addresses
	choose  bool                 // answer with the nearest PoP,
	region  string               // of this region, if not empty
	proves  bool                 // answer with a proof that the facts are fresh
	turns   turns                // of its addresses
}

// newZone makes the zone of a configuration and a topology, which may be nil. Its error
// is field.Errors.
func newZone(name string, c *Config, t *region.Topology) (*zone, error) {
	if faults := c.checkZone(name); faults != nil {
		return nil, faults
	}
	z := &zone{name: name + ".", topology: t, nodes: map[string]*node{}, pops: map[string]*node{}}
	apex := z.at(z.name)
	apex.choose = true
	for _, prefix := range []string{"pop.", "region."} {
		z.at(prefix + z.name)
	}
	z.at("*." + region.FactsLabel + "." + z.name).proves = true
	if t != nil {
		z.addTopology(t)
	}
	for _, n := range c.NS {
		host := n.fullName()
		apex.add(&wire.NS{Hdr: header(z.name, wire.TypeNS, infrastructureTTL), Ns: host})
		if n.Addrs != nil {
			// The configuration says where this server's name leads, so the topology does
			// not.
			z.at(host).forget(wire.TypeA, wire.TypeAAAA, wire.TypeCNAME)
		}
		for _, a := range n.Addrs {
			z.at(host).add(record(host, a.Unmap(), infrastructureTTL))
		}
	}
	ttl := c.ttl()
	text, _ := json.Marshal(t) // plain data
	// The serial is a hash of the topology's content, so that all routers agree.
	// Increasing serials matter only for zone transfers, which this server refuses.
	z.soa = wire.SOA{
		Hdr: header(z.name, wire.TypeSOA, ttl), Ns: c.NS[0].fullName(), Mbox: c.mailbox(name), Serial: crc32.ChecksumIEEE(text),
		Refresh: 3600, Retry: 600, Expire: 604800, Minttl: ttl,
	}
	apex.add(&z.soa)
	return z, nil
}

// addTopology adds the PoPs, the regions and the static records.
func (z *zone) addTopology(t *region.Topology) {
	for i := range t.Regions {
		r := &t.Regions[i]
		n := z.at(r.Name + ".region." + z.name)
		n.choose, n.region = true, r.Name
		for j := range r.PoPs {
			p := z.at(r.PoPs[j].Name + ".pop." + z.name)
			p.pop, z.pops[r.PoPs[j].Name] = &r.PoPs[j], p
		}
	}
	for i := range t.Records {
		r := &t.Records[i]
		name := z.name
		if r.Name != region.Apex {
			name = r.Name + "." + z.name
		}
		for _, rr := range static(name, r) {
			z.at(name).add(rr)
		}
	}
}

// at returns the node of a name in the zone, creating it and those above it.
func (z *zone) at(name string) *node {
	n := z.nodes[name]
	if n == nil {
		n = &node{name: name}
		z.nodes[name] = n
		if _, above, _ := strings.Cut(name, "."); name != z.name && z.nodes[above] == nil {
			z.at(above)
		}
	}
	return n
}

func (n *node) add(rr wire.RR) {
	if n.records == nil {
		n.records = map[uint16][]wire.RR{}
	}
	n.records[rr.Header().Rrtype] = append(n.records[rr.Header().Rrtype], rr)
}

func (n *node) forget(types ...uint16) {
	for _, t := range types {
		delete(n.records, t)
	}
}

// find returns the node of a name in lower case, or the wildcard that stands for it (RFC
// 4592); nil if there is neither.
func (z *zone) find(name string) *node {
	if n := z.nodes[name]; n != nil {
		return n
	}
	for off, end := wire.NextLabel(name, 0); !end; off, end = wire.NextLabel(name, off) {
		if z.nodes[name[off:]] != nil { // the closest existing name decides
			return z.nodes["*."+name[off:]]
		}
	}
	return nil
}

// end follows CNAMEs from a node to the last one; nil if that is not in the zone.
func (z *zone) end(n *node) *node {
	for links := 0; n != nil && n.records[wire.TypeCNAME] != nil && links < maxAliases; links++ {
		target := n.records[wire.TypeCNAME][0].(*wire.CNAME).Target
		if inside, _ := z.within(target); !inside {
			return nil
		}
		n = z.find(target)
	}
	return n
}

// static converts a record of the topology to what this server sends.
func static(name string, r *region.Record) (list []wire.RR) {
	add := func(rrtype uint16, make func(wire.RR_Header, string) wire.RR) {
		for _, v := range r.Values {
			list = append(list, make(header(name, rrtype, r.TTLSeconds()), v))
		}
	}
	switch r.Type {
	case region.TypeA, region.TypeAAAA:
		for _, v := range r.Values {
			list = append(list, record(name, netip.MustParseAddr(v), r.TTLSeconds())) // validated when it was read
		}
	case region.TypeCAA:
		add(wire.TypeCAA, func(h wire.RR_Header, v string) wire.RR {
			flag, tag, text, _ := region.ParseCAA(v) // as above
			return &wire.CAA{Hdr: h, Flag: flag, Tag: tag, Value: escape(text)}
		})
	case region.TypeCNAME:
		add(wire.TypeCNAME, func(h wire.RR_Header, v string) wire.RR { return &wire.CNAME{Hdr: h, Target: v + "."} })
	case region.TypeMX:
		add(wire.TypeMX, func(h wire.RR_Header, v string) wire.RR {
			preference, host, _ := region.ParseMX(v) // as above
			return &wire.MX{Hdr: h, Preference: preference, Mx: host + "."}
		})
	case region.TypeTXT:
		add(wire.TypeTXT, func(h wire.RR_Header, v string) wire.RR { return &wire.TXT{Hdr: h, Txt: chunks(v)} })
	}
	return list
}

// chunks splits a text into the strings of at most 255 bytes that make up a TXT record.
func chunks(text string) (list []string) {
	for len(text) > 255 {
		list, text = append(list, escape(text[:255])), text[255:]
	}
	return append(list, escape(text))
}

// escape makes the library take a text literally.
func escape(text string) string { return strings.ReplaceAll(text, `\`, `\\`) }

// fullName returns the host in lower case with the trailing dot.
func (n *NameServer) fullName() string { return strings.TrimSuffix(strings.ToLower(n.Host), ".") + "." }

// checkZone returns what is wrong with a zone's name and its name servers. Without a
// name, while there is no topology, it cannot check whether they are in the zone.
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

// within reports whether a name in lower case is in the zone, and the label in front of
// it.
func (z *zone) within(name string) (inside bool, label string) {
	if name == z.name || !wire.IsSubDomain(z.name, name) { // by labels: one may contain a dot
		return name == z.name, ""
	}
	return true, strings.TrimSuffix(name, "."+z.name)
}

func header(owner string, rrtype uint16, ttl uint32) wire.RR_Header {
	return wire.RR_Header{Name: owner, Rrtype: rrtype, Class: wire.ClassINET, Ttl: ttl}
}

// record returns the A or AAAA record of an address.
func record(owner string, a netip.Addr, ttl uint32) wire.RR {
	if a.Is4() {
		return &wire.A{Hdr: header(owner, wire.TypeA, ttl), A: a.AsSlice()}
	}
	return &wire.AAAA{Hdr: header(owner, wire.TypeAAAA, ttl), AAAA: a.AsSlice()}
}

// zoneOf returns the zone to answer for, nil if neither configuration nor topology names
// one.
func (s *Server) zoneOf(v *region.View) *zone {
	if z := s.zone.Load(); z != nil && z.topology == v.Topology {
		return z
	}
	name := s.config.Zone
	if name == "" && v.Topology != nil {
		name = v.Topology.Zone
	}
	if name == "" {
		return nil
	}
	z, err := newZone(name, &s.config, v.Topology)
	if err != nil {
		return nil
	}
	s.zone.Store(z)
	return z
}
