// Package topology has the commands of the topology.
package topology

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region"
)

const Help = `The topology lists all regions with their PoPs, to which DNS sends clients. It is stored in
Consul like the rules, the same one in each region. Routers follow it within a second; while
regions differ, they answer by what most of the regions hold.

  zone: edge.example.com              # what regionctl dns answers for
  regions:                            # in the order in which they are preferred
    - name: eu-west                   # as in the fleet file
      pops:
        - name: ams1                  # as node.pop of its edges
          addresses: ["203.0.113.10", "2001:db8::10"]    # where clients reach it
          location: {lat: 52.37, lon: 4.90}              # for GeoIP; optional
          weight: 1                   # among equals; 0: only if nothing else is left
          clients: ["198.51.100.0/24"]                   # networks to send here first; optional
          capacity: 12000             # requests per second of all its edges; optional: else as they measure it
  steering: geoip                     # only if client networks do not tell clients apart: geoip
                                      # (every router has --geoip) or first (all to the first region)
  probe: {port: 443, path: /healthz, tls: true}          # how routers check the addresses themselves; optional
  routers:                            # whose records of moved clients other routers follow; optional
    - name: ns1
      key: MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=    # from KEYFILE.pub
      dns: 192.0.2.53:53              # where routers that hear nothing ask it; optional
  records:                            # what else DNS answers in the zone; optional
    - {name: _acme-challenge, type: TXT, values: [abc123], ttl: 60}    # A, AAAA, CAA, CNAME, MX, TXT; ttl: 300 s
    - {name: "*.dev", type: CNAME, values: [edge.example.com]}         # @ is the zone itself`

const applyHelp = `Applies FILE, in YAML or JSON, to all regions of the fleet file:

  1. validates it, as topology validate does; an invalid one changes nothing
  2. shows the difference, and asks (unless --yes)
  3. stores it in every region; a version is never overwritten
  4. locks the regions, checks that none has changed since it showed the difference,
     and points the first of the fleet file at it, then all others at once

If someone else applies another one at the same time, one of the two waits for the other
and changes nothing (status 4); regionctl rules apply --help says how long. If a region
cannot be reached, no region is changed; --partial continues without it. If one fails
after the first, the others are written anyway, and the result says which have it (status
3). Running the same command again finishes the job, and apply --resume does without FILE.

If the active topology is signed, this one must be, too (--sign), unless --force says otherwise:
routers may ignore an unsigned one.

--if-version VERSION changes nothing unless every region has that version or already has
the document (status 4). Afterwards it prunes old versions: see regionctl prune
--help.

FILE may be - for standard input; --yes is then required.`

const applyExamples = `  regionctl topology apply topology.yaml -m "a PoP in Milan, CHG-78"
  regionctl topology apply topology.yaml --yes        # in CI`

const diffHelp = `Shows what would change if FILE were applied: which regions, PoPs, routers and records come and
go, and which of their fields change. Nothing is changed.

Exits with 0 whether there is a difference or not; with --exit-code, as with git, 1
says that there is one.`

const validateHelp = `Reports every fault of a topology, with the path of its field and what to do about it. Nothing
is sent anywhere. With a fleet file, the regions must be those of it; without one, their
names are not compared with anything. FILE may be - for standard input.

Exits with 0 if the topology is valid and with 2 if it is not.`

func Command(p *command.Program) *cobra.Command {
	k := kinds.Topology
	c := command.Group("topology", "which PoPs there are, and where", Help)
	apply := change.ApplyCommand(p, k)
	apply.Long, apply.Example = applyHelp, applyExamples
	command.Stage(c, "Look first:", validateCommand(p), versions.DiffCommand(p, k, diffHelp))
	command.Stage(c, "Change:", apply)
	command.Stage(c, "Look after:", unfinished.Command(p, k), versions.HistoryCommand(p, k), versions.ShowCommand(p, k))
	return c
}

func Fetch(ctx context.Context, p *command.Program, names []string) (*region.Topology, error) {
	v, err := versions.Fetch(ctx, p, kinds.Topology, names, "")
	if err != nil {
		return nil, err
	}
	d, err := v.Parse()
	if err != nil {
		return nil, err
	}
	return d.Body.(*kinds.TopologyBook).Topology, nil
}

// validation is what topology validate prints with -o json.
type validation struct {
	command.Checked
	Zone    string         `json:"zone,omitempty"`
	Regions int            `json:"regions"`
	PoPs    int            `json:"pops"`
	Errors  []term.Problem `json:"errors"`
}

func validateCommand(p *command.Program) *cobra.Command {
	return command.ValidateCommand(p, kinds.Topology, "report what is wrong with a topology", validateHelp,
		`  regionctl topology validate topology.yaml
  regionctl topology show | regionctl topology validate -`,
		func(c command.Checked, errors []term.Problem, d *fleet.Document) (any, string, []string) {
			v := validation{Checked: c, Errors: errors}
			if !c.Valid {
				return v, "", nil
			}
			t := d.Body.(*kinds.TopologyBook).Topology
			v.Zone, v.Regions = t.Zone, len(t.Regions)
			for _, r := range t.Regions {
				v.PoPs += len(r.PoPs)
			}
			return v, fmt.Sprintf("zone %s, %s, %s", v.Zone, term.Plural(v.Regions, "region"), term.Plural(v.PoPs, "PoP")), nil
		})
}
