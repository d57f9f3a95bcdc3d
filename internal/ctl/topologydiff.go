package ctl

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
)

// writeTopologyDiff describes what changes when next replaces before, one line each.
func writeTopologyDiff(b *bytes.Buffer, s term.Style, before, next *region.Topology) {
	from := b.Len()
	added := func(format string, args ...any) { fmt.Fprintf(b, "  %s\n", s.Green("+ "+fmt.Sprintf(format, args...))) }
	removed := func(format string, args ...any) { fmt.Fprintf(b, "  %s\n", s.Red("- "+fmt.Sprintf(format, args...))) }
	changed := func(format string, args ...any) {
		fmt.Fprintf(b, "  %s\n", s.Yellow("~ "+fmt.Sprintf(format, args...)))
	}
	if before.Zone != next.Zone && before.Zone != "" {
		changed("zone: %s → %s", term.Printable(before.Zone), term.Printable(next.Zone))
	} else if before.Zone != next.Zone {
		added("zone: %s", next.Zone)
	}
	if before.Steering != next.Steering {
		changed("steering: %s → %s", cmp.Or(term.Printable(before.Steering), "by clients"), cmp.Or(next.Steering, "by clients"))
	}
	if describe := func(p *region.Probe) string {
		if p == nil {
			return "none"
		}
		return p.String()
	}; describe(before.Probe) != describe(next.Probe) {
		changed("probe: %s → %s", term.Printable(describe(before.Probe)), describe(next.Probe))
	}
	old, now := placesOf(before), placesOf(next)
	for _, name := range old.order {
		if now.regions[name] == nil && old.regions[name] != nil {
			removed("region %s", term.Printable(name))
		}
	}
	for _, p := range old.pops {
		if _, stays := now.byName[p.Name]; !stays {
			removed("pop %s of %s: %s", term.Printable(p.Name), term.Printable(p.region), describePoP(p.PoP))
		}
	}
	for _, name := range now.order {
		if old.regions[name] == nil {
			added("region %s", name)
		}
	}
	for _, p := range now.pops {
		was, known := old.byName[p.Name]
		if !known {
			added("pop %s of %s: %s", p.Name, p.region, describePoP(p.PoP))
			continue
		}
		if was.region != p.region {
			changed("pop %s: of %s → of %s", p.Name, term.Printable(was.region), p.region)
		}
		if a, b := describePoP(was.PoP), describePoP(p.PoP); a != b {
			changed("pop %s: %s → %s", p.Name, a, b)
		} else if !slices.Equal(sortedClients(was.PoP), sortedClients(p.PoP)) {
			changed("pop %s: other clients, among those that are not shown", p.Name)
		}
	}
	was, is := recordsOf(before), recordsOf(next)
	for _, name := range sortedKeys(was) {
		if _, stays := is[name]; !stays {
			removed("record %s: %s", term.Printable(name), term.Printable(was[name]))
		}
	}
	for _, name := range sortedKeys(is) {
		if old, known := was[name]; !known {
			added("record %s: %s", name, is[name])
		} else if old != is[name] {
			changed("record %s: %s → %s", name, term.Printable(old), is[name])
		}
	}
	if b.Len() == from {
		changed("another order of regions, pops, addresses or records")
	}
}

// placedPoP is a PoP with its region.
type placedPoP struct {
	region.PoP
	region string
}

// recordsOf returns the static records of a topology by name and type, each in a line.
func recordsOf(t *region.Topology) map[string]string {
	list := map[string]string{}
	for _, r := range t.Records {
		list[r.Name+" "+r.Type] = fmt.Sprintf("%s; ttl %d s", strings.Join(r.Values, ", "), r.TTLSeconds())
	}
	return list
}

// topologyPlaces are the regions and PoPs of a topology, in order and by name.
type topologyPlaces struct {
	order   []string
	regions map[string]*region.TopologyRegion
	pops    []placedPoP
	byName  map[string]placedPoP
}

func placesOf(t *region.Topology) topologyPlaces {
	p := topologyPlaces{regions: map[string]*region.TopologyRegion{}, byName: map[string]placedPoP{}}
	for i := range t.Regions {
		r := &t.Regions[i]
		p.order = append(p.order, r.Name)
		p.regions[r.Name] = r
		for _, pop := range r.PoPs {
			placed := placedPoP{pop, r.Name}
			p.pops = append(p.pops, placed)
			p.byName[pop.Name] = placed
		}
	}
	return p
}

// describePoP describes a PoP in a line. Lists are sorted, because a different order is not
// a change.
func describePoP(p region.PoP) string {
	var addresses []string
	clients := sortedClients(p)
	for _, a := range p.Addresses {
		addresses = append(addresses, a.String())
	}
	slices.Sort(addresses)
	parts := []string{strings.Join(addresses, ", ")}
	if p.Location != nil {
		parts = append(parts, fmt.Sprintf("at %v, %v", p.Location.Lat, p.Location.Lon))
	}
	if p.Weight != nil && *p.Weight != 1 {
		parts = append(parts, fmt.Sprintf("weight %d", *p.Weight))
	}
	if len(clients) > 0 {
		const most = 8
		text := strings.Join(clients[:min(len(clients), most)], ", ")
		if more := len(clients) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, "clients "+text)
	}
	return strings.Join(parts, "; ")
}

func sortedClients(p region.PoP) (list []string) {
	for _, c := range p.Clients {
		list = append(list, c.String())
	}
	slices.Sort(list)
	return list
}
