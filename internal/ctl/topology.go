package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const topologyHelp = `The topology is all regions with their PoPs: what DNS sends clients to. It lives in
Consul, in each region the same one.

  zone: edge.example.com              # what regionctl dns answers for
  regions:                            # in the order in which they are preferred
    - name: eu-west                   # as in the fleet file
      pops:
        - name: ams1                  # as node.pop of its edges
          addresses: ["203.0.113.10", "2001:db8::10"]    # where clients reach it
          location: {lat: 52.37, lon: 4.90}              # for GeoIP; optional
          weight: 1                   # among equals; 0: only when nothing else is left
          clients: ["198.51.100.0/24"]                   # who belongs here first; optional`

const topologyApplyHelp = `Puts FILE, in YAML or JSON, in force in all regions of the fleet file:

  1. validates it; a bad one changes nothing
  2. shows the difference, and asks (--yes does not)
  3. locks the regions, looks that nobody has changed any since the difference was shown,
     and writes it to one after another, in the order of the fleet file

Routers take it within a second. While regions differ they answer by what most of them
hold.

When somebody else applies at the same time, one of the two waits until the other is
through, is told, and has changed nothing (status 4). When a region cannot be reached, nothing
is changed in any; --partial goes on without it. When one fails after the first, the others
are written all the same, and the result says which have it (status 3). Running the same
command again finishes the job.

FILE may be - for standard input; --yes is needed then.`

func (p *program) topologyCommand() *cobra.Command {
	c := group("topology", "which PoPs there are, and where", topologyHelp)
	c.AddCommand(p.topologyApplyCommand(), p.topologyShowCommand())
	return c
}

func (p *program) topologyApplyCommand() *cobra.Command {
	a := topologyChange{p: p}
	c := command("apply FILE", "put a topology in force in every region", topologyApplyHelp,
		`  regionctl topology apply topology.yaml
  regionctl topology apply topology.yaml --yes        # in CI`,
		func(ctx context.Context, args []string) error {
			if args[0] == "-" && !a.yes {
				return misused("the topology comes from standard input, so nobody can be asked; give --yes")
			}
			return a.apply(ctx, args[0])
		})
	f := c.Flags()
	f.BoolVarP(&a.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&a.partial, "partial", false, "go on without regions that cannot be reached")
	c.ValidArgsFunction = completeDocument
	return c
}

func (p *program) topologyShowCommand() *cobra.Command {
	var names []string
	c := command("show", "print the topology in force", `Prints the topology in force, as topology apply takes it.

If the regions hold different ones, --region must say which is meant.`,
		`  regionctl topology show > topology.yaml
  regionctl topology show --region us-east -o json`,
		func(ctx context.Context, _ []string) error { return p.showTopology(ctx, names) })
	p.regionFlag(c, &names)
	return c
}

// heldTopology is what a region holds.
type heldTopology struct {
	*region.Topology        // nil: none, or it cannot be read
	text             string // of it as JSON
	index            uint64
	broken           error // why it cannot be read, though Consul answers
}

// hold reads what a region holds. Damage in what is stored is no error: a new one
// repairs it.
func hold(ctx context.Context, t *target) (heldTopology, error) {
	topology, index, err := t.consul.Topology(ctx)
	if err != nil && index == 0 {
		return heldTopology{}, err
	}
	h := heldTopology{Topology: topology, index: index, broken: err}
	if topology != nil {
		text, err := json.Marshal(topology)
		if err != nil {
			return h, err
		}
		h.text = string(text)
	}
	return h, nil
}

func (p *program) showTopology(ctx context.Context, names []string) error {
	targets, closeAll, err := p.targets(names)
	if err != nil {
		return err
	}
	defer closeAll()
	answers := ask(ctx, p, targets, hold)
	away, err := failures(answers)
	if len(away) == len(targets) {
		return err
	}
	if err != nil {
		p.warn("no answer from %s: %v", strings.Join(away, ", "), err)
	}
	var found *region.Topology
	var texts, without []string
	for _, a := range answers {
		switch {
		case a.err != nil:
		case a.value.Topology == nil:
			without = append(without, a.target.name)
			if a.value.broken != nil {
				p.warn("%s: %v; regionctl topology apply replaces it", a.target.name, a.value.broken)
			}
		default:
			found = a.value.Topology
			texts = append(texts, a.value.text)
		}
	}
	switch {
	case found == nil:
		return failed("no topology is in force; regionctl topology apply FILE publishes one")
	case len(distinct(texts)) > 1:
		return misused("the regions hold different topologies; choose one with --region, or apply the right one again to all")
	}
	if len(without) > 0 {
		p.warn("%s: holds none that can be read; apply it again", strings.Join(without, ", "))
	}
	if p.wantsJSON() {
		return p.writeJSON(found)
	}
	text, err := topologyYAML(found)
	if err != nil {
		return err
	}
	_, err = p.out.Write([]byte(clean(text)))
	return err
}

// topologyYAML is a topology as people write it, with lists of addresses in a line.
func topologyYAML(t *region.Topology) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	var plain yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(text, &plain, yaml.UseOrderedMap()); err != nil {
		return "", err
	}
	out, err := yaml.Marshal(plain)
	return string(out), err
}

// parseTopology reads a topology as a person wrote it. It must name no region that
// nobody would publish it to.
func (p *program) parseTopology(name string, known []string) (*region.Topology, error) {
	data, err := p.readInput(&kind{longest: region.MaxDocument}, name)
	if err != nil {
		return nil, err
	}
	t, err := region.ParseTopology(data)
	list := topologyProblems(err)
	if err == nil {
		for i, r := range t.Regions {
			if !slices.Contains(known, r.Name) {
				list = append(list, problem{fmt.Sprintf("regions[%d].name", i), fmt.Sprintf("%q is no region of the fleet file, which has %s; add it there, or correct the name", r.Name, strings.Join(known, ", "))})
			}
		}
	}
	if len(list) == 0 {
		return t, nil
	}
	lines := make([]string, len(list))
	for i, e := range list {
		lines[i] = "\n  " + e.String()
	}
	return nil, misused("%s has %s:%s", inputName(name), plural(len(list), "problem"), strings.Join(lines, ""))
}

func topologyProblems(err error) (list []problem) {
	var of *region.FieldError
	joined, many := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case many:
		for _, e := range joined.Unwrap() {
			list = append(list, topologyProblems(e)...)
		}
		return list
	case errors.As(err, &of):
		return []problem{{of.Field, of.Msg}}
	}
	return []problem{{"topology", err.Error()}}
}

// topologyResult is one region of a change of the topology.
type topologyResult struct {
	Region string `json:"region"`
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`

	target *target
	held   heldTopology
}

// topologyReport is what topology apply prints with -o json.
type topologyReport struct {
	Zone    string            `json:"zone"`
	Regions []*topologyResult `json:"regions"`
}

func (r *topologyReport) write(b *bytes.Buffer, s style) {
	t := table{}
	t.row("REGION", "RESULT")
	for _, c := range r.Regions {
		t.row(c.Region, s.result(c.Result))
	}
	t.write(b)
}

// result paints what became of a region.
func (s style) result(text string) string {
	switch text {
	case applied, alreadyThere:
		return s.green(text)
	case untouched, unknown:
		return s.yellow(text)
	}
	return s.red(text)
}
