package region

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/field"
)

// The values of Topology.Steering. If it is empty, client networks decide.
const (
	SteeringGeoIP = "geoip" // by distance, with routers that have a GeoIP database
	SteeringFirst = "first" // not at all: all clients go to the first healthy region
)

func (t *Topology) checkSteeringName() error {
	if !slices.Contains([]string{"", SteeringGeoIP, SteeringFirst}, t.Steering) {
		return fmt.Errorf("must be geoip, first, or left out where clients networks steer (got %q)", t.Steering)
	}
	return nil
}

// lacking returns the regions without such a PoP.
func (t *Topology) lacking(such func(PoP) bool) (names []string) {
	for _, r := range t.Regions {
		if !slices.ContainsFunc(r.PoPs, such) {
			names = append(names, r.Name)
		}
	}
	return names
}

// located returns how many regions have a PoP with a known location.
func (t *Topology) located() int {
	return len(t.Regions) - len(t.lacking(func(p PoP) bool { return p.Location != nil }))
}

// bare returns the regions without client networks.
func (t *Topology) bare() []string { return t.lacking(func(p PoP) bool { return len(p.Clients) > 0 }) }

// CheckSteering rejects a topology of several regions that sends all clients to the first,
// unless the topology says that this is intended. It is for writers of a topology: routers
// accept a published one, which is better than none.
func (t *Topology) CheckSteering() (faults field.Errors) {
	switch {
	case len(t.Regions) < 2 || t.Steering == SteeringFirst:
	case t.Steering == SteeringGeoIP && t.located() < 2:
		faults.Add("steering", "geoip needs a location in at least two regions (got %d); add them to the pops", t.located())
	case t.Steering == "" && len(t.bare()) == len(t.Regions):
		faults.Add("regions", "nothing tells clients apart, so all would go to %s; list in the pops the client networks that belong there (clients), "+
			"or write steering: geoip if every router has a GeoIP database (--geoip), or steering: first if that is intended", t.Regions[0].Name)
	}
	return faults
}

// CannotSteer returns why a router with or without a GeoIP database sends clients to the
// first region although the topology has others and does not ask for it; "" if it does not.
func (t *Topology) CannotSteer(geo bool) string {
	switch {
	case len(t.Regions) < 2 || t.Steering == SteeringFirst || geo && t.located() > 1:
	case t.Steering == SteeringGeoIP:
		return "the topology steers by geoip, but this router has no --geoip, so clients outside all client networks go to " + t.Regions[0].Name
	case len(t.bare()) > 0:
		return fmt.Sprintf("no client networks (clients) for %s, so all other clients go to %s: pass --geoip to this router, or add them or steering: first to the topology",
			strings.Join(t.bare(), ", "), t.Regions[0].Name)
	}
	return ""
}
