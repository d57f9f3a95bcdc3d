package rules

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const compareHelp = `Compares both variants of a rule with an experiment. Edges count from the first window that began
after the experiment did: until then the rule's counters hold earlier requests, and the variant's
do not. The measures:

  refused        share of checks refused, or that a variant in shadow mode would have refused
  wait           what a check costs in waiting: Retry-After of the refused, per check
  worst window   the most that one key passed in any window, mean over slices of keys
  memory         of a counter in the store
  time           of a decision that was not already known to be a refusal
  errors         share of answers that were 5xx, of the requests that passed

Requests of one key are alike, so the comparison is between 200 slices of the keys, each wholly in
one variant. A difference counts if fewer than 5 in 100 random choices of slices show one as
large, corrected for the number of measures (Holm): of experiments that change nothing, 5% are
meant to show one, and at most 7% of 1,000 simulated ones may. The intervals are corrected
the same way.

An edge that restarts counts from zero. Edges that run another version of the rule are left
out.

--promote writes one variant into the document: base ends the experiment, experiment puts
its fields into the rule. It shows the difference, asks, and activates it as regionctl rules
apply does; comments in the document stay. The file that the document came from is not
changed: take the new one from regionctl rules show.

Exits with 0 whether there is a difference or not, and with 3 if an edge is missing.`

func compareCommand(p *command.Program) *cobra.Command {
	var variant string
	c := &change.Change{Program: p}
	var cmd *cobra.Command
	cmd = command.New("compare ID", "compare the variants of a rule with an experiment, and promote one", compareHelp,
		`  regionctl rules compare per-client
  regionctl rules compare per-client --promote experiment -m "stricter burst, see INC-1234"
  regionctl rules compare per-client -o json | jq '.measures[] | select(.differs)'`,
		func(ctx context.Context, args []string) error {
			if variant == "" {
				for _, name := range []string{"yes", "partial", "break-lock", "keep-versions", "wait", "sign", "by", "message", "if-version", "force"} {
					if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
						return term.Misused("--%s needs --promote VARIANT", name)
					}
				}
				return compare(ctx, p, args[0], c.Regions)
			}
			if variant != adminapi.VariantBase && variant != adminapi.VariantExperiment {
				return term.Misused("--promote %q: must be %s or %s", variant, adminapi.VariantBase, adminapi.VariantExperiment)
			}
			if err := c.CheckFlags(c.Program); err != nil {
				return err
			}
			err := comparePromote(ctx, c, args[0], variant)
			return command.Show(p, c.Result, err, (*change.Report).Write)
		})
	f := cmd.Flags()
	c.Flags(f)
	c.Completions(cmd, p)
	c.EdgeFlags(f)
	c.DocumentFlags(f)
	f.StringVar(&variant, "promote", "", "write this `VARIANT` into the document: base or experiment")
	command.CompleteWords(cmd, "promote", adminapi.VariantBase, adminapi.VariantExperiment)
	cmd.ValidArgsFunction = p.CompleteRules(&c.Regions)
	return cmd
}

// Comparison is what rules compare prints with -o json.
type Comparison struct {
	Rule    string  `json:"rule"`
	Share   float64 `json:"share"`
	Version string  `json:"version"` // of the rule with its experiment
	// Since is when the last edge began to count, or will.
	Since   time.Time        `json:"since"`
	Regions []comparedRegion `json:"regions"`
	Base    ComparedVariant  `json:"base"`
	Tried   ComparedVariant  `json:"experiment"`
	// Enough is set if keys of enough slices were seen for a difference to show.
	Enough   bool                 `json:"enough"`
	Measures []experiment.Measure `json:"measures"`
}

type comparedRegion struct {
	Region string `json:"region"`
	Nodes  int    `json:"nodes"`
	// Silent gives the reason for each missing edge.
	Silent []string `json:"nodes_silent,omitempty"`
	// Unweighed says why edges do not know the memory of counters, and for how many edges.
	Unweighed map[string]int `json:"memory_unknown,omitempty"`
	Error     string         `json:"error,omitempty"`
}

type ComparedVariant struct {
	Checks int64 `json:"checks"`
	Failed int64 `json:"failed"` // checks that the store did not answer
	Slices int   `json:"slices"` // with keys that were seen
	Worst  int64 `json:"worst_window"`
}

// enoughSlices of each variant must have been seen: with fewer, hardly any choice of slices
// differs as much as the actual one.
const enoughSlices = 4

// triedRegion is what one region reports about an experiment.
type triedRegion struct {
	comparedRegion
	trial  *rules.CompiledExperiment
	since  time.Time
	slices []experiment.Counts
}

func compare(ctx context.Context, p *command.Program, id string, names []string) error {
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return err
	}
	answers, v, err := compareAll(ctx, targets, id)
	if err != nil {
		return err
	}
	if err := p.Show(v, v.write); err != nil {
		return err
	}
	if err := command.Unanswered(answers); err != nil {
		return err
	}
	if missing := v.missing(); missing > 0 {
		return term.Partial("%s did not report on this version of the rule; the figures do not include it", term.Plural(missing, "edge"))
	}
	return nil
}

// comparePromote shows the comparison to users, and activates a variant.
func comparePromote(ctx context.Context, c *change.Change, id, variant string) error {
	targets, err := c.Program.Targets(kinds.Rules, c.Regions)
	if err != nil {
		return err
	}
	_, v, err := compareAll(ctx, targets, id)
	if err != nil {
		return err
	}
	if !c.Program.WantsJSON() {
		if err := c.Program.Show(v, v.write); err != nil {
			return err
		}
	}
	c.AimAt = promote(id, variant)
	c.Message = cmp.Or(c.Message, "promote the "+variant+" of "+id)
	return c.Run(ctx, targets)
}

// compareAll asks all edges. An error means that there is nothing to compare.
func compareAll(ctx context.Context, targets []*fleet.Target, id string) ([]fleet.Answer[*triedRegion], *Comparison, error) {
	answers := fleet.AskUnbounded(ctx, targets, func(ctx context.Context, t *fleet.Target) (*triedRegion, error) { return triedIn(ctx, t, id) })
	v := &Comparison{Rule: id, Regions: []comparedRegion{}, Measures: []experiment.Measure{}}
	var trial *rules.CompiledExperiment
	var all []experiment.Counts
	for _, a := range answers {
		if a.Err != nil {
			v.Regions = append(v.Regions, comparedRegion{Region: a.Target.Name, Error: a.Err.Error()})
			continue
		}
		r := a.Value
		switch {
		case trial == nil:
			trial, all = r.trial, make([]experiment.Counts, rules.Slices)
		case trial.Version != r.trial.Version:
			return nil, nil, term.Misused("regions run the rule %s with different experiments; choose some with --region", term.Printable(id))
		}
		v.Regions = append(v.Regions, r.comparedRegion)
		if r.since.After(v.Since) {
			v.Since = r.since
		}
		for i := range r.slices {
			all[i].Add(&r.slices[i])
		}
	}
	if trial == nil {
		return nil, nil, command.Unanswered(answers)
	}
	v.Share, v.Version = trial.Share, trial.Version
	v.Base, v.Tried = variantSeen(all, trial.Cut, false), variantSeen(all, trial.Cut, true)
	v.Enough = min(v.Base.Slices, v.Tried.Slices) >= enoughSlices
	v.Measures = experiment.Compare(all, trial.Cut)
	return answers, v, nil
}

func variantSeen(all []experiment.Counts, cut int, tried bool) ComparedVariant {
	sum, part := experiment.Sum(all, cut, tried), all[cut:]
	if tried {
		part = all[:cut]
	}
	return ComparedVariant{sum.Checks, sum.Failed, len(fleet.Filter(part, func(c experiment.Counts) bool { return c.Checks > 0 })), sum.Worst}
}

// triedIn asks all edges of a region what they counted of the published experiment.
func triedIn(ctx context.Context, t *fleet.Target, id string) (*triedRegion, error) {
	brief, cancel := t.Bounded(ctx)
	defer cancel()
	d, err := fleet.LookActive(brief, t, "")
	if err != nil {
		return nil, err
	}
	rule, known := kinds.RulesOf(d).Set.Rule(id)
	switch {
	case !known:
		return nil, term.Misused("no rule %q in version %s; regionctl rules list shows them", term.Printable(id), d.Version())
	case rule.Experiment == nil:
		return nil, term.Misused("rule %s has no experiment in version %s; add one to it, and apply the document", term.Printable(id), d.Version())
	}
	nodes, err := command.Candidates(brief, t, "")
	if err != nil {
		return nil, err
	}
	r := &triedRegion{comparedRegion: comparedRegion{Region: t.Name, Nodes: len(nodes)}, trial: rule.Experiment, slices: make([]experiment.Counts, rules.Slices)}
	answers, errs := fleet.AskNodes(nodes, func(n consul.Node) (*adminapi.Experiment, error) {
		return fleet.Get[adminapi.Experiment](ctx, t.Admin, n, adminapi.PathExperiment, url.Values{"rule": {id}})
	})
	for i, e := range answers {
		switch {
		case errs[i] != nil:
			r.Silent = append(r.Silent, errs[i].Error())
		case e.Version != rule.Experiment.Version || len(e.Slices) != rules.Slices:
			r.Silent = append(r.Silent, fmt.Sprintf("node %s runs another version of the rule", term.Printable(nodes[i].ID)))
		default:
			if e.Since.After(r.since) {
				r.since = e.Since
			}
			if e.MemoryError != "" {
				if r.Unweighed == nil {
					r.Unweighed = map[string]int{}
				}
				r.Unweighed[e.MemoryError]++
			}
			for k := range e.Slices {
				r.slices[k].Add(&e.Slices[k])
			}
		}
	}
	return r, nil
}

func (v *Comparison) missing() (n int) {
	for _, r := range v.Regions {
		n += len(r.Silent)
	}
	return n
}

// figures gives the name and format of each measure.
var figures = map[string]struct {
	name  string
	write func(float64) string
}{
	"refused":      {"refused", term.Percent},
	"wait":         {"wait", inSeconds},
	"worst_window": {"worst window", digitsOf},
	"memory":       {"memory", func(v float64) string { return digitsOf(v) + " B" }},
	"time":         {"time", inSeconds},
	"errors":       {"errors", term.Percent},
}

// digitsOf formats three significant digits, and whole numbers in full.
func digitsOf(v float64) string {
	switch size := math.Abs(v); {
	case size >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size < 1e-4:
		return "0"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func inSeconds(v float64) string {
	if v < 1 {
		return digitsOf(1000*v) + " ms"
	}
	return digitsOf(v) + " s"
}

func (v *Comparison) write(b *bytes.Buffer, s term.Style) {
	fmt.Fprintf(b, "rule %s, version %s: the experiment has %s of the keys", s.Bold(term.Printable(v.Rule)), v.Version, term.Percent(v.Share))
	switch at := v.Since.UTC().Format(time.DateTime); {
	case v.Since.After(time.Now()):
		fmt.Fprintf(b, "; edges count from %s on, when no counter holds requests from before the experiment", at)
	case !v.Since.IsZero():
		fmt.Fprintf(b, "; all edges count since %s", at)
	}
	b.WriteString("\n")
	t := term.Table{}
	t.Row("", "BASE", "EXPERIMENT", "DIFFERENCE", "", "")
	t.Row("checks", strconv.FormatInt(v.Base.Checks, 10), strconv.FormatInt(v.Tried.Checks, 10), "", "", "")
	for _, m := range v.Measures {
		f := figures[m.Name]
		if !m.Known {
			t.Row(f.name, "-", "-", "", "", "unknown")
			continue
		}
		signed := func(n float64) string {
			switch text := f.write(math.Abs(n)); {
			case text == f.write(0):
				return text
			case n > 0:
				return "+" + text
			default:
				return "-" + text
			}
		}
		verdict := "no difference found"
		if m.Differs {
			verdict = s.Yellow("differs")
		}
		t.Row(f.name, f.write(m.Base), f.write(m.Tried), signed(m.Tried-m.Base), "("+signed(m.Low)+" to "+signed(m.High)+")", fmt.Sprintf("%s, p %.3f", verdict, m.P))
	}
	t.Print(b)
	if !v.Enough {
		fmt.Fprintf(b, "too few keys: seen in %d slices of the base and %d of the experiment, of %d; wait, or give the experiment a larger share\n", v.Base.Slices, v.Tried.Slices, rules.Slices)
	}
	for _, r := range v.Regions {
		if r.Error != "" {
			fmt.Fprintf(b, "%s: %s: %s\n", r.Region, s.Red("not known"), term.Printable(r.Error))
		}
		for _, why := range r.Silent {
			fmt.Fprintf(b, "%s: missing: %s\n", r.Region, term.Printable(why))
		}
		for _, why := range slices.Sorted(maps.Keys(r.Unweighed)) {
			fmt.Fprintf(b, "%s: %s: memory unknown: %s\n", r.Region, term.Plural(r.Unweighed[why], "edge"), term.Printable(why))
		}
	}
}
