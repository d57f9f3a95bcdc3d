package kinds

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Topology describes topologies, which routers follow.
var Topology = &fleet.Kind{
	Name: region.TopologyKind, Longest: consul.MaxDocument,
	Parse: func(data []byte) (any, error) {
		t, err := ParseTopology(data, nil)
		if err != nil {
			return nil, err
		}
		return &TopologyBook{t, data}, nil
	},
	Shown: func(body any) any { return body.(*TopologyBook).Topology },
	What:  "topology", Are: "is", Put: "apply", Did: "applied", Look: "regionctl topology history", Watch: "regionctl topology history",
}

type TopologyBook struct {
	*region.Topology
	text []byte
}

// Fits refuses regions that the fleet file lacks.
func (d *TopologyBook) Fits(known []string) error {
	_, err := ParseTopology(d.text, known)
	return err
}

// ParseTopology reads a topology as a person wrote it. It must not name other regions than
// the known ones; nil allows all.
func ParseTopology(data []byte, known []string) (*region.Topology, error) {
	return region.ParseTopology(data, (*region.Topology).CheckSteering, func(t *region.Topology) (unknown field.Errors) {
		for i, r := range t.Regions {
			if known != nil && !slices.Contains(known, r.Name) {
				unknown.Add(fmt.Sprintf("regions[%d].name", i), "%q is not a region of the fleet file, which has %s; add it there, or correct the name", r.Name, strings.Join(known, ", "))
			}
		}
		return unknown
	})
}
