package kinds

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
)

// topologyChanges are the changes from one topology to another: a line for each, which begins
// with +, - or ~.
type topologyChanges struct {
	Changes []string `json:"changes"`
}

func (d *TopologyBook) Compare(running any) Changes {
	before, published := running.(*TopologyBook)
	if !published {
		before = &TopologyBook{Topology: &region.Topology{}}
	}
	return compareTopologies(before.Topology, d.Topology)
}

func (c *topologyChanges) Write(b *bytes.Buffer, s term.Style, most int) {
	if len(c.Changes) == 0 {
		b.WriteString("  the text differs, but not what it means\n")
	}
	paint := map[byte]func(string) string{'+': s.Green, '-': s.Red, '~': s.Yellow}
	for i, line := range c.Changes {
		if most > 0 && i == most {
			fmt.Fprintf(b, "  … and %s; regionctl topology diff shows all\n", term.Plural(len(c.Changes)-most, "more change"))
			break
		}
		fmt.Fprintf(b, "  %s\n", paint[line[0]](term.Printable(line)))
	}
}

// compareTopologies describes what changes when next replaces before.
func compareTopologies(before, next *region.Topology) *topologyChanges {
	c := &topologyChanges{Changes: []string{}}
	note := func(sign string) func(string, ...any) {
		return func(format string, args ...any) {
			c.Changes = append(c.Changes, sign+" "+fmt.Sprintf(format, args...))
		}
	}
	added, removed, changed := note("+"), note("-"), note("~")
	if before.Zone != next.Zone && before.Zone != "" {
		changed("zone: %s → %s", before.Zone, next.Zone)
	} else if before.Zone != next.Zone {
		added("zone: %s", next.Zone)
	}
	if before.Steering != next.Steering {
		changed("steering: %s → %s", cmp.Or(before.Steering, "by clients"), cmp.Or(next.Steering, "by clients"))
	}
	if describe := func(p *region.Probe) string {
		if p == nil {
			return "none"
		}
		return p.String()
	}; describe(before.Probe) != describe(next.Probe) || before.Probe != nil && *before.Probe != *next.Probe {
		changed("probe: %s → %s", describe(before.Probe), describe(next.Probe))
	}
	old, now := indexOf(before), indexOf(next)
	for _, name := range old.order {
		if now.regions[name] == nil && old.regions[name] != nil {
			removed("region %s", name)
		}
	}
	for _, p := range old.pops {
		if _, stays := now.byName[p.Name]; !stays {
			removed("pop %s of %s: %s", p.Name, p.region, describePoP(p.PoP))
		}
	}
	for _, name := range now.order {
		if old.regions[name] == nil {
			added("region %s", name)
		}
	}
	if reordered(old.order, now.order) {
		changed("order of regions: %s → %s", strings.Join(old.order, ", "), strings.Join(now.order, ", "))
	}
	for _, name := range now.order {
		if was := old.regions[name]; was != nil && reordered(popNames(was), popNames(now.regions[name])) {
			changed("region %s: another order of pops", name)
		}
	}
	for _, p := range now.pops {
		was, known := old.byName[p.Name]
		if !known {
			added("pop %s of %s: %s", p.Name, p.region, describePoP(p.PoP))
			continue
		}
		if was.region != p.region {
			changed("pop %s: of %s → of %s", p.Name, was.region, p.region)
		}
		if list := popChanges(was.PoP, p.PoP); len(list) > 0 {
			changed("pop %s: %s", p.Name, strings.Join(list, "; "))
		}
	}
	for _, r := range before.Routers {
		if !slices.Contains(next.Routers, r) {
			removed("router %s", r.String())
		}
	}
	for _, r := range next.Routers {
		if !slices.Contains(before.Routers, r) {
			added("router %s", r)
		}
	}
	was, is := recordsOf(before), recordsOf(next)
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, stays := is[name]; !stays {
			removed("record %s: %s", name, was[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if old, known := was[name]; !known {
			added("record %s: %s", name, is[name])
		} else if old != is[name] {
			changed("record %s: %s → %s", name, old, is[name])
		}
	}
	if reordered(recordNames(before), recordNames(next)) {
		changed("another order of records")
	}
	return c
}

// indexedPoP is a PoP with its region.
type indexedPoP struct {
	region.PoP
	region string
}

// recordsOf returns the static records of a topology by name and type, each in a line.
func recordsOf(t *region.Topology) map[string]string {
	list := map[string]string{}
	for _, r := range t.Records {
		values := slices.Clone(r.Values)
		for i, v := range values {
			if strings.Contains(v, ", ") || strings.HasPrefix(v, `"`) {
				values[i] = strconv.Quote(v) // one value, not two
			}
		}
		list[r.Name+" "+r.Type] = fmt.Sprintf("%s; ttl %d s", strings.Join(values, ", "), r.TTLSeconds())
	}
	return list
}

// topologyIndex are the regions and PoPs of a topology, in order and by name.
type topologyIndex struct {
	order   []string
	regions map[string]*region.TopologyRegion
	pops    []indexedPoP
	byName  map[string]indexedPoP
}

func indexOf(t *region.Topology) topologyIndex {
	p := topologyIndex{regions: map[string]*region.TopologyRegion{}, byName: map[string]indexedPoP{}}
	for i := range t.Regions {
		r := &t.Regions[i]
		p.order = append(p.order, r.Name)
		p.regions[r.Name] = r
		for _, pop := range r.PoPs {
			placed := indexedPoP{pop, r.Name}
			p.pops = append(p.pops, placed)
			p.byName[pop.Name] = placed
		}
	}
	return p
}

// describePoP describes a PoP in a line. It leaves out what has its default.
func describePoP(p region.PoP) string {
	parts := []string{shortList(sorted(p.Addresses), len(p.Addresses))}
	if p.Location != nil {
		parts = append(parts, "at "+locationOf(p))
	}
	if weightOf(p) != 1 {
		parts = append(parts, fmt.Sprintf("weight %d", weightOf(p)))
	}
	if p.Capacity != nil {
		parts = append(parts, "capacity "+capacityOf(p))
	}
	if len(p.Clients) > 0 {
		parts = append(parts, "clients "+shortList(sorted(p.Clients), mostClients))
	}
	return strings.Join(parts, "; ")
}

// popChanges describes each field of a PoP that changes, but for its name.
func popChanges(was, is region.PoP) (list []string) {
	compare := func(name, old, now string) {
		if old != now {
			list = append(list, name+" "+old+" → "+now)
		}
	}
	compare("addresses", shortList(sorted(was.Addresses), len(was.Addresses)), shortList(sorted(is.Addresses), len(is.Addresses)))
	if reordered(texts(was.Addresses), texts(is.Addresses)) {
		list = append(list, "another order of addresses")
	}
	compare("location", locationOf(was), locationOf(is))
	compare("weight", strconv.Itoa(weightOf(was)), strconv.Itoa(weightOf(is)))
	compare("capacity", capacityOf(was), capacityOf(is))
	// A PoP may have thousands of clients, of which few change.
	old, now := sorted(was.Clients), sorted(is.Clients)
	if gained := common(now, old, false); len(gained) > 0 {
		list = append(list, "clients added: "+shortList(gained, mostClients))
	}
	if lost := common(old, now, false); len(lost) > 0 {
		list = append(list, "clients removed: "+shortList(lost, mostClients))
	}
	if reordered(texts(was.Clients), texts(is.Clients)) {
		list = append(list, "another order of clients")
	}
	return list
}

// mostClients is how many of a PoP's clients are shown.
const mostClients = 8

func locationOf(p region.PoP) string {
	if p.Location == nil {
		return "none"
	}
	return fmt.Sprintf("%v, %v", p.Location.Lat, p.Location.Lon)
}

func weightOf(p region.PoP) int {
	if p.Weight == nil {
		return 1
	}
	return *p.Weight
}

func capacityOf(p region.PoP) string {
	if p.Capacity == nil {
		return "as measured"
	}
	return strconv.FormatFloat(*p.Capacity, 'f', -1, 64)
}

// shortList joins at most that many words.
func shortList(words []string, most int) string {
	text := strings.Join(words[:min(len(words), most)], ", ")
	if more := len(words) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return cmp.Or(text, "none")
}

// reordered reports whether what both lists have is in another order.
func reordered(a, b []string) bool {
	a, b = common(a, b, true), common(b, a, true)
	return !slices.Equal(a, b) && slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// common returns those words of list that others has, or with have unset those that it lacks.
func common(list, others []string, have bool) (found []string) {
	known := map[string]bool{}
	for _, word := range others {
		known[word] = true
	}
	for _, word := range list {
		if known[word] == have {
			found = append(found, word)
		}
	}
	return found
}

func texts[T fmt.Stringer](values []T) []string {
	return fleet.Map(values, T.String)
}

func sorted[T fmt.Stringer](values []T) []string {
	list := texts(values)
	slices.Sort(list)
	return list
}

func popNames(r *region.TopologyRegion) []string {
	return fleet.Map(r.PoPs, func(p region.PoP) string { return p.Name })
}

func recordNames(t *region.Topology) []string {
	return fleet.Map(t.Records, func(r region.Record) string { return r.Name + " " + r.Type })
}
