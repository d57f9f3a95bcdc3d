package region

import (
	"fmt"
	"slices"

	"github.com/weir-edge/weir/pkg/field"
)

// The values of Topology.Steering. Without one, clients networks must tell clients apart.
const (
	SteeringGeoIP = "geoip" // by distance, with routers that have a GeoIP database
	SteeringFirst = "first" // not at all: all to the first region that is healthy
)

func (t *Topology) checkSteeringName() error {
	if !slices.Contains([]string{"", SteeringGeoIP, SteeringFirst}, t.Steering) {
		return fmt.Errorf("must be geoip, first, or left out where clients networks steer (got %q)", t.Steering)
	}
	return nil
}

// located is how many regions have a PoP whose location is known.
func (t *Topology) located() (n int) {
	for _, r := range t.Regions {
		if slices.ContainsFunc(r.PoPs, func(p PoP) bool { return p.Location != nil }) {
			n++
		}
	}
	return n
}

// owns reports whether a PoP has client networks.
func (t *Topology) owns() bool {
	return slices.ContainsFunc(t.Regions, func(r TopologyRegion) bool {
		return slices.ContainsFunc(r.PoPs, func(p PoP) bool { return len(p.Clients) > 0 })
	})
}

// CheckSteering refuses a topology of several regions of which all clients would get
// the first, unless it says that this is meant. It is for those who write a topology: one
// that is published already is better than none.
func (t *Topology) CheckSteering() (faults field.Errors) {
	switch {
	case len(t.Regions) < 2 || t.Steering == SteeringFirst:
	case t.Steering == SteeringGeoIP && t.located() < 2:
		faults.Add("steering", "geoip needs a location in at least two regions (got %d); add them to the pops", t.located())
	case t.Steering == "" && !t.owns():
		faults.Add("regions", "no client can be told from another, so all would go to %s; give pops the clients networks that belong there, "+
			"or write steering: geoip if every router has a GeoIP database (--geoip), or steering: first if that is meant", t.Regions[0].Name)
	}
	return faults
}

// CannotSteer says why a router with or without a GeoIP database sends clients to the first
// region though the topology has others and does not say so; "" if it does not.
func (t *Topology) CannotSteer(geo bool) string {
	switch {
	case len(t.Regions) < 2 || t.Steering == SteeringFirst || geo && t.located() > 1:
	case t.Steering == SteeringGeoIP:
		return "the topology steers by geoip, and this router has no --geoip, so clients outside every clients network go to " + t.Regions[0].Name
	case !t.owns():
		return "nothing tells clients apart, so all go to " + t.Regions[0].Name + ": give this router --geoip, or the topology clients networks or steering: first"
	}
	return ""
}
