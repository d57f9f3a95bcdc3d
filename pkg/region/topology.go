package region

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// The bounds of a topology. Within them every answer fits into one DNS message over TCP,
// and choosing takes microseconds.
const (
	maxPoPs      = 256
	maxAddresses = 1000
	maxClients   = 10_000
	maxWeight    = 1000
	maxCapacity  = 1e9 // requests per second
	maxRouters   = 100
	// maxLabel is the longest part of a domain name; region and PoP names become such
	// parts.
	maxLabel = 63
	// maxZone leaves room for the prefix <name>.region.
	maxZone = 180
	// maxName is the longest domain name.
	maxName = 253
)

// Topology is all regions and their PoPs: where a router can send clients. Every region's
// datacenter holds the same one.
type Topology struct {
	Zone    string           `json:"zone" yaml:"zone"`                 // what routers answer for, in lower case, without the trailing dot
	Regions []TopologyRegion `json:"regions" yaml:"regions"`           // in the order of preference for clients of unknown location
	Records []Record         `json:"records,omitempty" yaml:"records"` // other records that DNS answers
	// Steering is how to choose for clients outside all client networks: geoip, by distance, or
	// first, all to the first healthy region; absent: client networks decide.
	Steering string `json:"steering,omitempty" yaml:"steering"`
	// Probe is how routers check the PoPs' addresses; absent: not at all.
	Probe *Probe `json:"probe,omitempty" yaml:"probe"`
	// Routers are those whose records of moved clients others follow.
	Routers []Router `json:"routers,omitempty" yaml:"routers"`
}

// Router is a DNS router, or several that share a key.
type Router struct {
	Name string `json:"name" yaml:"name"`         // unique among routers
	Key  string `json:"key" yaml:"key"`           // its public key: the line of KEYFILE.pub between BEGIN and END
	DNS  string `json:"dns,omitempty" yaml:"dns"` // ADDRESS:PORT where other routers ask how old its facts are; "": nowhere
}

// String names the router, the ID of its key and its address.
func (r Router) String() string {
	id, err := sign.Keys{}.Add(r.Key)
	if err != nil {
		id = err.Error()
	}
	if r.DNS != "" {
		id += ", " + r.DNS
	}
	return r.Name + " (key " + id + ")"
}

func (t *Topology) routerKeys() sign.Keys {
	keys := sign.Keys{}
	for _, r := range t.Routers {
		_, _ = keys.Add(r.Key) // Validate has found those that are none
	}
	return keys
}

func (t *Topology) checkRouters(f *field.Errors) {
	if len(t.Routers) > maxRouters {
		f.Add("routers", "are %d; the maximum is %d; routers of one site may share a key", len(t.Routers), maxRouters)
	}
	names, ids, keys := map[string]bool{}, map[string]string{}, sign.Keys{}
	for i, r := range t.Routers {
		at := fmt.Sprintf("routers[%d]", i)
		if err := consul.CheckName(r.Name); err != nil {
			f.Add(at+".name", "%v", err)
		} else if names[r.Name] {
			f.Add(at+".name", "%s is already the name of another; give each its own", r.Name)
		}
		id, err := keys.Add(r.Key)
		if err != nil {
			f.Add(at+".key", "must be a public key, the line of KEYFILE.pub between BEGIN and END (got %q): %v", r.Key, err)
		} else if ids[id] != "" {
			f.Add(at+".key", "is already the key of %s; remove one of them", ids[id])
		}
		if to, err := netip.ParseAddrPort(r.DNS); r.DNS != "" && (err != nil || to.Port() == 0 || to.Addr().IsUnspecified() || to.Addr().IsLinkLocalUnicast()) {
			f.Add(at+".dns", "must be the ADDRESS:PORT where resolvers ask this router, such as 192.0.2.53:53 (got %q)", r.DNS)
		}
		names[r.Name], ids[id] = true, r.Name
	}
}

// TopologyRegion is one region.
type TopologyRegion struct {
	Name string `json:"name" yaml:"name"` // as in the fleet file
	PoPs []PoP  `json:"pops" yaml:"pops"` // its sites
}

// PoP is one site.
type PoP struct {
	Name      string         `json:"name" yaml:"name"`                   // unique in the fleet, as in node.pop of its edges
	Addresses []netip.Addr   `json:"addresses" yaml:"addresses"`         // where clients reach it
	Location  *Location      `json:"location,omitempty" yaml:"location"` // for GeoIP
	Weight    *int           `json:"weight,omitempty" yaml:"weight"`     // among equals; absent: 1; 0: only when nothing else is left
	Clients   []netip.Prefix `json:"clients,omitempty" yaml:"clients"`   // the networks of its own clients
	// Capacity is how many requests per second all of its nodes can serve; absent: as they measure.
	Capacity *float64 `json:"capacity,omitempty" yaml:"capacity"`
}

// Location is a place on the earth, in degrees.
type Location struct {
	Lat float64 `json:"lat" yaml:"lat" required:"add it, or remove location"` // latitude, from -90 to 90
	Lon float64 `json:"lon" yaml:"lon" required:"add it, or remove location"` // longitude, from -180 to 180
}

// TopologyKind is the kind of document that a topology is.
const TopologyKind = "topology"

// PublishedTopology returns the topology that is active in this datacenter, or nil, and the
// index of its pointer. If an index comes with an error, Consul answers, but the topology
// cannot be read.
func PublishedTopology(ctx context.Context, c *consul.Client) (*Topology, uint64, error) {
	return published(ctx, c, TopologyKind, readTopology)
}

func published[T any](ctx context.Context, c *consul.Client, kind string, parse func(document []byte) (*T, error)) (*T, uint64, error) {
	docs := c.Documents(kind)
	pointer, index, err := docs.Current(ctx)
	if err != nil || pointer == nil {
		return nil, index, err
	}
	document, err := docs.Load(ctx, *pointer)
	switch {
	case errors.Is(err, consul.ErrMissing), errors.Is(err, consul.ErrCorrupt):
		return nil, index, err
	case err != nil:
		return nil, 0, err
	}
	is, err := parse(document)
	if err != nil {
		err = c.Unreadable(docs.CurrentKey(), err)
	}
	return is, index, err
}

// ParseTopology parses a topology that a person wrote in YAML or JSON: an unknown field
// is an error. Its error is field.Errors, which lists every fault with its path, such as
// regions[0].pops[1].addresses[0], including those that Validate finds.
func ParseTopology(data []byte, further ...func(*Topology) field.Errors) (*Topology, error) {
	return parseTopology(data, &field.Form{Lenient: true, Exponents: true}, further...)
}

// readTopology parses a published topology, ignoring fields, record types and steering
// values that a newer version may have added.
func readTopology(document []byte) (*Topology, error) {
	return parseTopology(document, &field.Form{Lenient: true, Later: true, Aliases: true, Exponents: true})
}

func parseTopology(data []byte, form *field.Form, further ...func(*Topology) field.Errors) (*Topology, error) {
	form.MaxBytes, form.Empty = consul.MaxDocument, "name the zone and at least one region"
	t := &Topology{}
	root, faults := field.Load(data, t, form)
	if root == nil {
		return nil, faults
	}
	t.normalize()
	if form.Later {
		if t.checkSteeringName() != nil {
			t.Steering = ""
		}
		t.Records = slices.DeleteFunc(t.Records, func(r Record) bool { return !slices.Contains(recordTypes, r.Type) })
	}
	faults = faults.With(field.All(t.Validate()))
	for _, check := range further {
		faults = faults.With(check(t))
	}
	if faults != nil {
		return nil, root.Locate(faults)
	}
	return t, nil
}

func (t *Topology) normalize() {
	t.Zone = strings.TrimSuffix(strings.ToLower(t.Zone), ".")
	for _, r := range t.Regions {
		for _, p := range r.PoPs {
			for k, a := range p.Addresses {
				p.Addresses[k] = a.Unmap()
			}
		}
	}
	for i := range t.Records {
		t.Records[i].normalize(t.Zone)
	}
}

// Validate returns every fault as field.Errors, or nil.
func (t *Topology) Validate() error {
	f := &field.Errors{}
	t.check(f)
	t.checkRecords(f)
	for i, r := range t.Regions {
		for j, p := range r.PoPs {
			for k, a := range p.Addresses {
				if !a.IsValid() {
					f.Add(fmt.Sprintf("regions[%d].pops[%d].addresses[%d]", i, j, k), "must be an IP address")
				}
			}
			for k, c := range p.Clients {
				if !c.IsValid() {
					f.Add(fmt.Sprintf("regions[%d].pops[%d].clients[%d]", i, j, k), "must be a network")
				}
			}
		}
	}
	return f.Err()
}

// checker records where each name and address was first seen.
type checker struct {
	*field.Errors
	pops, regions              map[string]string
	addresses                  map[netip.Addr]string
	countAddresses, countOwned int
}

func (t *Topology) check(f *field.Errors) {
	c := &checker{Errors: f, pops: map[string]string{}, regions: map[string]string{}, addresses: map[netip.Addr]string{}}
	f.Take("zone", CheckZone(t.Zone))
	f.Take("steering", t.checkSteeringName())
	if t.Probe != nil {
		t.Probe.check(f)
	}
	t.checkRouters(f)
	if len(t.Regions) == 0 {
		f.Add("regions", "must name at least one, with its pops")
	}
	for i, r := range t.Regions {
		at := fmt.Sprintf("regions[%d]", i)
		c.name(at+".name", r.Name, c.regions)
		if len(r.PoPs) == 0 {
			f.Add(at+".pops", "must name at least one; add it or remove the region")
		}
		for j, p := range r.PoPs {
			c.pop(fmt.Sprintf("%s.pops[%d]", at, j), p)
		}
	}
	if len(c.pops) > maxPoPs {
		f.Add("regions", "have %d pops; the maximum is %d; merge some", len(c.pops), maxPoPs)
	}
	if c.countAddresses > maxAddresses {
		f.Add("regions", "have %d addresses; the maximum is %d; remove some", c.countAddresses, maxAddresses)
	}
	if c.countOwned > maxClients {
		f.Add("regions", "have %d clients; the maximum is %d; join neighbors into larger networks", c.countOwned, maxClients)
	}
}

func (c *checker) name(at, name string, seen map[string]string) {
	if err := consul.CheckName(name); err != nil {
		c.Add(at, "%v", err)
	} else if len(name) > maxLabel || name[0] == '-' || name[len(name)-1] == '-' {
		c.Add(at, "must fit into a domain name: at most %d characters, no - at either end (got %q)", maxLabel, name)
	} else if first, twice := seen[name]; twice {
		c.Add(at, "%s is already the name at %s; give each its own", name, first)
	} else {
		seen[name] = at
	}
}

func (c *checker) pop(at string, p PoP) {
	c.name(at+".name", p.Name, c.pops)
	c.countAddresses += len(p.Addresses)
	c.countOwned += len(p.Clients)
	if len(p.Addresses) == 0 {
		c.Add(at+".addresses", "must name at least one that clients can reach")
	}
	for k, a := range p.Addresses {
		here := fmt.Sprintf("%s.addresses[%d]", at, k)
		first, twice := c.addresses[a]
		switch {
		case !a.IsValid():
		case a.Zone() != "" || a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast():
			c.Add(here, "must be one that clients can reach (got %s)", a)
		case twice:
			c.Add(here, "%s is already at %s; remove one of them", a, first)
		default:
			c.addresses[a] = here
		}
	}
	if l := p.Location; l != nil && !(math.Abs(l.Lat) <= 90) {
		c.Add(at+".location.lat", "must be between -90 and 90 (got %v)", l.Lat)
	}
	if l := p.Location; l != nil && !(math.Abs(l.Lon) <= 180) {
		c.Add(at+".location.lon", "must be between -180 and 180 (got %v)", l.Lon)
	}
	if w := p.Weight; w != nil && (*w < 0 || *w > maxWeight) {
		c.Add(at+".weight", "must be between 0 and %d (got %d)", maxWeight, *w)
	}
	if r := p.Capacity; r != nil && !(*r >= 1 && *r <= maxCapacity) {
		c.Add(at+".capacity", "must be 1 to %.0f requests per second, or left out (got %v)", float64(maxCapacity), *r)
	}
	for k, n := range p.Clients {
		if n.IsValid() && n != n.Masked() {
			c.Add(fmt.Sprintf("%s.clients[%d]", at, k), "has bits beyond its length; write %s (got %s)", n.Masked(), n)
		} else if n.IsValid() && n.Addr().Is4In6() {
			c.Add(fmt.Sprintf("%s.clients[%d]", at, k), "must be written as an IPv4 network (got %s)", n)
		}
	}
}

// CheckZone reports what is wrong with a zone name, given in lower case without the
// trailing dot.
func CheckZone(zone string) error {
	if !validName(zone, maxZone) {
		return fmt.Errorf("must be a domain name of at most %d characters such as edge.example.com (got %q)", maxZone, zone)
	}
	return nil
}

// validName reports whether a name, in lower case without the trailing dot, can be
// queried.
func validName(name string, longest int) bool {
	ok := name != "" && len(name) <= longest
	for label := range strings.SplitSeq(name, ".") {
		ok = ok && label != "" && len(label) <= maxLabel && label[0] != '-' && label[len(label)-1] != '-'
		for _, b := range []byte(label) {
			ok = ok && (b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '-' || b == '_')
		}
	}
	return ok
}

func (p *PoP) weight() int {
	if p.Weight == nil {
		return 1
	}
	return *p.Weight
}
