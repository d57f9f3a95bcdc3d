package ctl

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const validateTopologyHelp = `Reports every fault of a topology, with the path of its field and what to do about it. Nothing
is sent anywhere. With a fleet file, the regions must be those of it; without one, their
names are not compared with anything. FILE may be - for standard input.

Exits with 0 if the topology is valid and with 2 if it is not.`

func validateTopologyCommand(p *command.Program) *cobra.Command {
	c := command.New("validate FILE", "report what is wrong with a topology", validateTopologyHelp,
		`  regionctl topology validate topology.yaml
  regionctl topology show | regionctl topology validate -`,
		func(_ context.Context, args []string) error { return validateTopology(p, args[0]) })
	c.ValidArgsFunction = command.CompleteDocument
	return c
}

// topologyValidation is what topology validate prints with -o json.
type topologyValidation struct {
	File    string         `json:"file"`
	Valid   bool           `json:"valid"`
	Zone    string         `json:"zone,omitempty"`
	Regions int            `json:"regions"`
	PoPs    int            `json:"pops"`
	Errors  []term.Problem `json:"errors"`
}

func validateTopology(p *command.Program, name string) error {
	var known []string // nil: there is no fleet file
	if p.FleetFile != "" {
		file, err := p.Fleet()
		if err != nil {
			return err
		}
		for _, r := range file.Regions {
			known = append(known, r.Name)
		}
	}
	data, err := p.ReadInput(consul.MaxDocument, name)
	if err != nil {
		return err
	}
	v := topologyValidation{File: command.InputName(name), Errors: []term.Problem{}}
	t, err := parseTopology(data, known)
	if err == nil {
		v.Valid, v.Zone, v.Regions = true, t.Zone, len(t.Regions)
		for _, r := range t.Regions {
			v.PoPs += len(r.PoPs)
		}
	} else {
		v.Errors = term.Problems(err)
	}
	return p.Validated(v.File, &v, err, func(b *bytes.Buffer) {
		fmt.Fprintf(b, "%s is good: zone %s, %s, %s\n", term.Printable(v.File), v.Zone, term.Plural(v.Regions, "region"), term.Plural(v.PoPs, "PoP"))
	})
}

// parseTopology reads a topology as a person wrote it. It must not name other regions than
// the known ones; nil allows all.
func parseTopology(data []byte, known []string) (*region.Topology, error) {
	return region.ParseTopology(data, (*region.Topology).CheckSteering, func(t *region.Topology) (strangers field.Errors) {
		for i, r := range t.Regions {
			if known != nil && !slices.Contains(known, r.Name) {
				strangers.Add(fmt.Sprintf("regions[%d].name", i), "%q is not a region of the fleet file, which has %s; add it there, or correct the name", r.Name, strings.Join(known, ", "))
			}
		}
		return strangers
	})
}
