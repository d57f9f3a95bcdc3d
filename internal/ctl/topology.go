package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const topologyHelp = `The topology lists all regions with their PoPs, to which DNS sends clients. It is stored in
Consul, the same one in each region.

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
    - {name: ns1, key: MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=}    # from KEYFILE.pub
  records:                            # what else DNS answers in the zone; optional
    - {name: _acme-challenge, type: TXT, values: [abc123], ttl: 60}    # A, AAAA, CAA, CNAME, MX, TXT; ttl: 300 s
    - {name: "*.dev", type: CNAME, values: [edge.example.com]}         # @ is the zone itself`

const topologyApplyHelp = `Applies FILE, in YAML or JSON, to all regions of the fleet file:

  1. validates it, as topology validate does; an invalid one changes nothing
  2. shows the difference, and asks (unless --yes)
  3. locks the regions, checks that none has changed since it showed the difference,
     and writes it to the first of the fleet file, then to all others at once

Routers follow within a second. While regions differ, they answer by what most of the
regions hold.

If someone else applies another one at the same time, one of the two waits for the other
and changes nothing (status 4); regionctl rules apply --help says how long. If a region
cannot be reached, no region is changed; --partial continues without it. If one fails
after the first, the others are written anyway, and the result says which have it (status
3). Running the same command again finishes the job.

FILE may be - for standard input; --yes is then required.`

func topologyCommand(p *command.Program) *cobra.Command {
	c := command.Group("topology", "which PoPs there are, and where", topologyHelp)
	c.AddCommand(validateTopologyCommand(p), topologyApplyCommand(p), topologyShowCommand(p))
	return c
}

func topologyApplyCommand(p *command.Program) *cobra.Command {
	a := topologyChange{p: p}
	c := command.New("apply FILE", "apply a topology to every region", topologyApplyHelp,
		`  regionctl topology apply topology.yaml
  regionctl topology apply topology.yaml --yes        # in CI`,
		func(ctx context.Context, args []string) error {
			if args[0] == "-" && !a.yes {
				return term.Misused("the topology comes from standard input, which leaves no terminal to prompt on; pass --yes")
			}
			return a.apply(ctx, args[0])
		})
	f := c.Flags()
	f.BoolVarP(&a.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&a.partial, "partial", false, "continue without regions that cannot be reached")
	command.BreakLockFlag(c, &a.breakLock)
	command.SignFlag(c, &a.signFile)
	c.ValidArgsFunction = command.CompleteDocument
	return c
}

func topologyShowCommand(p *command.Program) *cobra.Command {
	var names []string
	c := command.New("show", "print the active topology", `Prints the active topology, as topology apply takes it.

If the regions hold different ones, --region must choose one.`,
		`  regionctl topology show > topology.yaml
  regionctl topology show --region us-east -o json`,
		func(ctx context.Context, _ []string) error { return showTopology(ctx, p, names) })
	p.RegionFlag(c, &names)
	return c
}

// heldTopology is what a region holds.
type heldTopology struct {
	topology *region.Topology // nil: none, or it cannot be read
	text     string           // of it as JSON
	index    uint64
	broken   error // why it cannot be read, though Consul answers
}

// hold reads what a region holds. Damaged stored data is not an error here: a new topology
// repairs it.
func hold(ctx context.Context, c *consul.Client) (heldTopology, error) {
	topology, index, err := region.PublishedTopology(ctx, c)
	if err != nil && index == 0 {
		return heldTopology{}, err
	}
	h := heldTopology{topology: topology, index: index, broken: err}
	if topology != nil {
		text, err := json.Marshal(topology)
		if err != nil {
			return h, err
		}
		h.text = string(text)
	}
	return h, nil
}

func showTopology(ctx context.Context, p *command.Program, names []string) error {
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return err
	}
	answers := fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (heldTopology, error) { return hold(ctx, t.Consul) })
	away, err := fleet.Failures(answers)
	if len(away) == len(targets) {
		return err
	}
	if err != nil {
		p.Warn("no answer from %s: %v", strings.Join(away, ", "), err)
	}
	var found *region.Topology
	var texts, without []string
	for _, a := range answers {
		switch {
		case a.Err != nil:
		case a.Value.topology == nil:
			without = append(without, a.Target.Name)
			if a.Value.broken != nil {
				p.Warn("%s: %v; regionctl topology apply replaces it", a.Target.Name, a.Value.broken)
			}
		default:
			found = a.Value.topology
			texts = append(texts, a.Value.text)
		}
	}
	switch {
	case found == nil:
		return term.Failed("no topology is active; publish one with regionctl topology apply FILE")
	case len(term.Distinct(texts)) > 1:
		return term.Misused("the regions hold different topologies; choose one with --region, or apply the right one again to all")
	}
	if len(without) > 0 {
		p.Warn("%s: holds none that can be read; apply it again", strings.Join(without, ", "))
	}
	if p.WantsJSON() {
		return p.WriteJSON(found)
	}
	text, err := topologyYAML(found)
	if err != nil {
		return err
	}
	_, err = p.Out.Write([]byte(term.Clean(text)))
	return err
}

// topologyYAML formats a topology as people write it, with lists of addresses in one line.
func topologyYAML(t *region.Topology) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	var plain yaml.Node
	if err := yaml.Unmarshal(text, &plain); err != nil {
		return "", err
	}
	unfold(&plain)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	err = enc.Encode(&plain)
	return out.String(), err
}

// unfold formats JSON as people write YAML.
func unfold(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		unfold(child)
	}
}

// topologyReport is what topology apply prints with -o json.
type topologyReport struct {
	Zone    string                `json:"zone"`
	Regions []report.RegionResult `json:"regions"`
}
