package region

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strings"

	"github.com/goccy/go-yaml"
)

// What a topology may hold. With these bounds every answer fits into one DNS
// message over TCP, and choosing takes microseconds.
const (
	maxPoPs      = 256
	maxAddresses = 1000
	maxClients   = 10_000
	maxWeight    = 1000
	// maxLabel is the longest part of a domain name; region and PoP names become one.
	maxLabel = 63
	// maxZone leaves room for <name>.region. in front of it.
	maxZone = 180
)

// Topology is all regions and their PoPs: what a router sends clients to. Every
// region's datacenter holds the same one.
type Topology struct {
	Zone    string           `json:"zone"` // that DNS is asked for, in lower case, without the last dot
	Regions []TopologyRegion `json:"regions"`
}

// TopologyRegion is one region, in the order in which regions are preferred where
// nothing is known of a client.
type TopologyRegion struct {
	Name string `json:"name"`
	PoPs []PoP  `json:"pops"`
}

// PoP is one site.
type PoP struct {
	Name      string         `json:"name"` // unique in the fleet
	Addresses []netip.Addr   `json:"addresses"`
	Location  *Location      `json:"location,omitempty"`
	Weight    *int           `json:"weight,omitempty"`  // among equals; nil: 1; 0: only when nothing else is left
	Clients   []netip.Prefix `json:"clients,omitempty"` // who belongs here first
}

// Location is a place on the earth, in degrees.
type Location struct {
	Lat float64 `json:"lat"`
	Lon float64 `json:"lon"`
}

// TopologyKey is the key that holds the topology.
func (c *Consul) TopologyKey() string { return c.Key("topology") }

// Topology returns the topology that is published in this datacenter, or nil if
// there is none, and the index to give to SetTopology.
func (c *Consul) Topology(ctx context.Context) (*Topology, uint64, error) {
	entry, _, err := c.get(ctx, c.TopologyKey(), query{}, answerTimeout)
	if err != nil || entry == nil {
		return nil, 0, err
	}
	t, err := readTopology(entry.Value)
	if err != nil {
		return nil, entry.ModifyIndex, c.unreadable(entry.Key, err)
	}
	return t, entry.ModifyIndex, nil
}

// SetTopology publishes t in this datacenter, if the key has not changed since
// Topology returned index; 0 means that there must be none yet. It returns false
// when someone else was faster.
func (c *Consul) SetTopology(ctx context.Context, t *Topology, index uint64) (bool, error) {
	if err := t.Validate(); err != nil {
		return false, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return false, err
	}
	stored, err := encode(text)
	if err != nil {
		return false, err
	}
	return c.cas(ctx, c.TopologyKey(), stored, index)
}

// ParseTopology reads a topology in YAML or JSON as a person wrote it: a field
// that is not known is an error. Its error names every fault with its path, such
// as regions[0].pops[1].addresses[0].
func ParseTopology(data []byte) (*Topology, error) {
	return parseTopology(data, yaml.Strict(), yaml.DisallowUnknownField())
}

// readTopology reads what is published, to which a later program may have added
// fields.
func readTopology(stored []byte) (*Topology, error) {
	text, err := Decode(stored)
	if err != nil {
		return nil, err
	}
	return parseTopology(text)
}

// The same as text, so that all faults can be told and not only the first.
type (
	topologyText struct {
		Zone    string       `yaml:"zone"`
		Regions []regionText `yaml:"regions"`
	}
	regionText struct {
		Name string    `yaml:"name"`
		PoPs []popText `yaml:"pops"`
	}
	popText struct {
		Name      string        `yaml:"name"`
		Addresses []string      `yaml:"addresses"`
		Location  *locationText `yaml:"location"`
		Weight    *int          `yaml:"weight"`
		Clients   []string      `yaml:"clients"`
	}
	locationText struct {
		Lat *float64 `yaml:"lat"`
		Lon *float64 `yaml:"lon"`
	}
)

func parseTopology(data []byte, how ...yaml.DecodeOption) (*Topology, error) {
	if len(data) > MaxDocument {
		return nil, fmt.Errorf("is %d bytes, over the %d that a document may have", len(data), MaxDocument)
	}
	var text topologyText
	dec := yaml.NewDecoder(bytes.NewReader(data), how...)
	if err := dec.Decode(&text); errors.Is(err, io.EOF) {
		return nil, errors.New("is empty; name the zone and at least one region")
	} else if err != nil {
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if dec.Decode(&yaml.MapSlice{}) != io.EOF {
		return nil, errors.New("holds a second document after ---; remove that")
	}
	f := &faults{}
	t := text.convert(f)
	t.check(f)
	if err := errors.Join(f.list...); err != nil {
		return nil, err
	}
	return t, nil
}

// convert reads addresses. What it cannot read it reports and leaves invalid, on
// which check is silent.
func (text *topologyText) convert(f *faults) *Topology {
	t := &Topology{Zone: strings.TrimSuffix(strings.ToLower(text.Zone), ".")}
	for i, r := range text.Regions {
		out := TopologyRegion{Name: r.Name}
		for j, p := range r.PoPs {
			at := fmt.Sprintf("regions[%d].pops[%d]", i, j)
			pop := PoP{Name: p.Name, Weight: p.Weight}
			for k, s := range p.Addresses {
				a, err := netip.ParseAddr(s)
				if err != nil {
					f.add(fmt.Sprintf("%s.addresses[%d]", at, k), "must be an IP address such as 203.0.113.10 (got %q)", s)
				}
				pop.Addresses = append(pop.Addresses, a.Unmap())
			}
			for k, s := range p.Clients {
				c, err := netip.ParsePrefix(s)
				if err != nil {
					f.add(fmt.Sprintf("%s.clients[%d]", at, k), "must be a network such as 198.51.100.0/24 (got %q)", s)
				}
				pop.Clients = append(pop.Clients, c)
			}
			if l := p.Location; l != nil && l.Lat != nil && l.Lon != nil {
				pop.Location = &Location{*l.Lat, *l.Lon}
			} else if l != nil {
				f.add(at+".location", "must have both lat and lon; add the other or remove location")
			}
			out.PoPs = append(out.PoPs, pop)
		}
		t.Regions = append(t.Regions, out)
	}
	return t
}

// Validate returns every fault as a *FieldError, joined, or nil.
func (t *Topology) Validate() error {
	f := &faults{}
	t.check(f)
	for i, r := range t.Regions {
		for j, p := range r.PoPs {
			for k, a := range p.Addresses {
				if !a.IsValid() {
					f.add(fmt.Sprintf("regions[%d].pops[%d].addresses[%d]", i, j, k), "must be an IP address")
				}
			}
			for k, c := range p.Clients {
				if !c.IsValid() {
					f.add(fmt.Sprintf("regions[%d].pops[%d].clients[%d]", i, j, k), "must be a network")
				}
			}
		}
	}
	return errors.Join(f.list...)
}

// checker knows what was seen before, and where.
type checker struct {
	*faults
	pops, regions              map[string]string
	addresses                  map[netip.Addr]string
	countAddresses, countOwned int
}

func (t *Topology) check(f *faults) {
	c := &checker{faults: f, pops: map[string]string{}, regions: map[string]string{}, addresses: map[netip.Addr]string{}}
	if err := CheckZone(t.Zone); err != nil {
		f.add("zone", "%v", err)
	}
	if len(t.Regions) == 0 {
		f.add("regions", "must name at least one, with its pops")
	}
	for i, r := range t.Regions {
		at := fmt.Sprintf("regions[%d]", i)
		c.name(at+".name", r.Name, c.regions)
		if len(r.PoPs) == 0 {
			f.add(at+".pops", "must name at least one; add it or remove the region")
		}
		for j, p := range r.PoPs {
			c.pop(fmt.Sprintf("%s.pops[%d]", at, j), p)
		}
	}
	if len(c.pops) > maxPoPs {
		f.add("regions", "have %d pops, over the %d that are allowed; join some", len(c.pops), maxPoPs)
	}
	if c.countAddresses > maxAddresses {
		f.add("regions", "have %d addresses, over the %d that are allowed; remove some", c.countAddresses, maxAddresses)
	}
	if c.countOwned > maxClients {
		f.add("regions", "have %d clients, over the %d that are allowed; join neighbours into larger networks", c.countOwned, maxClients)
	}
}

func (c *checker) name(at, name string, seen map[string]string) {
	if err := CheckName(name); err != nil {
		c.add(at, "%v", err)
	} else if len(name) > maxLabel || name[0] == '-' || name[len(name)-1] == '-' {
		c.add(at, "must fit into a domain name: at most %d characters, no - at either end (got %q)", maxLabel, name)
	} else if first, twice := seen[name]; twice {
		c.add(at, "%s is the name at %s already; give each its own", name, first)
	} else {
		seen[name] = at
	}
}

func (c *checker) pop(at string, p PoP) {
	c.name(at+".name", p.Name, c.pops)
	c.countAddresses += len(p.Addresses)
	c.countOwned += len(p.Clients)
	if len(p.Addresses) == 0 {
		c.add(at+".addresses", "must name at least one that clients can reach")
	}
	for k, a := range p.Addresses {
		here := fmt.Sprintf("%s.addresses[%d]", at, k)
		first, twice := c.addresses[a]
		switch {
		case !a.IsValid():
		case a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast():
			c.add(here, "must be one that clients can reach (got %s)", a)
		case twice:
			c.add(here, "%s stands at %s already; remove one of them", a, first)
		default:
			c.addresses[a] = here
		}
	}
	if l := p.Location; l != nil && !(math.Abs(l.Lat) <= 90) {
		c.add(at+".location.lat", "must be between -90 and 90 (got %v)", l.Lat)
	}
	if l := p.Location; l != nil && !(math.Abs(l.Lon) <= 180) {
		c.add(at+".location.lon", "must be between -180 and 180 (got %v)", l.Lon)
	}
	if w := p.Weight; w != nil && (*w < 0 || *w > maxWeight) {
		c.add(at+".weight", "must be between 0 and %d (got %d)", maxWeight, *w)
	}
	for k, n := range p.Clients {
		if n.IsValid() && n != n.Masked() {
			c.add(fmt.Sprintf("%s.clients[%d]", at, k), "has bits beyond its length; write %s (got %s)", n.Masked(), n)
		} else if n.IsValid() && n.Addr().Is4In6() {
			c.add(fmt.Sprintf("%s.clients[%d]", at, k), "must be written as an IPv4 network (got %s)", n)
		}
	}
}

// CheckZone reports what is wrong with the name of a zone: it is in lower case,
// without the last dot.
func CheckZone(zone string) error {
	ok := zone != "" && len(zone) <= maxZone
	for label := range strings.SplitSeq(zone, ".") {
		ok = ok && label != "" && len(label) <= maxLabel && label[0] != '-' && label[len(label)-1] != '-'
		for _, b := range []byte(label) {
			ok = ok && (b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '-' || b == '_')
		}
	}
	if !ok {
		return fmt.Errorf("must be a domain name of at most %d characters such as edge.example.com (got %q)", maxZone, zone)
	}
	return nil
}

func (p *PoP) weight() int {
	if p.Weight == nil {
		return 1
	}
	return *p.Weight
}
