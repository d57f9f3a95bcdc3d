package limits

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const explainHelp = `Shows how a request would be decided now: which rules count it, by which counters, what
is left of each, and which one would refuse it. Explaining charges nothing.

Describe the request with the flags. Defaults are those of a plain GET / without
headers: rules that count by something it lacks do not appear. Rules that would count such a
request only with another method are listed below the others.

One edge of each region is asked, or the one of --node.`

func explainCommand(p *command.Program) *cobra.Command {
	var names []string
	var node string
	var d Request
	c := command.New("explain", "say which rules would decide a request, and why", explainHelp,
		`  regionctl limits explain --client 203.0.113.7
  regionctl limits explain --client 203.0.113.7 --method POST --host api.example.com --path /login
  regionctl limits explain --client 2001:db8::7 --header 'X-Api-Key: abc' --tier pro --region eu-west`,
		func(ctx context.Context, _ []string) error {
			list, err := Explain(ctx, p, names, node, &d)
			return command.ShowEach(p, list, err, (*Explained).write)
		})
	p.RegionFlag(c, &names)
	nodeFlag(p, c, &names, &node)
	d.Flags(c.Flags())
	return c
}

func nodeFlag(p *command.Program, c *cobra.Command, names *[]string, node *string) {
	c.Flags().StringVar(node, "node", "", "ask the edge of this `ID`")
	_ = c.RegisterFlagCompletionFunc("node", p.CompleteNodes(names, func(n consul.Node) string { return n.ID })) // the flag is known
}

// Explained is the answer of one region.
type Explained struct {
	Region string `json:"region"`
	Node   string `json:"node,omitempty"`
	*adminapi.Explanation
	Error string `json:"error,omitempty"`
}

// Explain asks an edge of each region, or the one of this ID, how it would decide a request.
func Explain(ctx context.Context, p *command.Program, names []string, node string, d *Request) ([]*Explained, error) {
	query, err := d.query()
	if err != nil {
		return nil, err
	}
	targets, err := targetsWith(ctx, p, names, node)
	if err != nil {
		return nil, err
	}
	return command.AskRegions(ctx, targets, func(ctx context.Context, t *fleet.Target) (*Explained, error) {
		brief, cancel := t.Bounded(ctx)
		nodes, err := command.Candidates(brief, t, node)
		cancel()
		if err != nil {
			return nil, err
		}
		e, n, err := command.AskOne(ctx, nodes, func(ctx context.Context, n consul.Node) (*adminapi.Explanation, error) {
			return t.Admin.Explain(ctx, n, query)
		})
		return &Explained{Region: t.Name, Node: n.ID, Explanation: e}, err
	}, func(region, why string) *Explained { return &Explained{Region: region, Error: why} })
}

// targetsWith returns the regions of these names that have the named node, or all if none is named.
func targetsWith(ctx context.Context, p *command.Program, names []string, node string) ([]*fleet.Target, error) {
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil || node == "" {
		return targets, err
	}
	var found []*fleet.Target
	answers := fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) ([]consul.Node, error) {
		return command.Candidates(ctx, t, node)
	})
	for _, a := range answers {
		if a.Err == nil {
			found = append(found, a.Target)
		}
	}
	if len(found) == 0 {
		_, err := fleet.Failures(answers)
		return nil, term.Failed("%w", err)
	}
	return found, nil
}

func (e *Explained) write(b *bytes.Buffer, s term.Style) {
	if e.Error != "" {
		return
	}
	verdict := s.Green(term.Printable(e.Verdict))
	if !strings.HasPrefix(e.Verdict, "pass") {
		verdict = s.Red(term.Printable(e.Verdict))
	}
	fmt.Fprintf(b, "%s (edge %s, rules %s): %s", s.Bold(e.Region), term.Printable(e.Node), term.OrDash(e.RulesVersion), verdict)
	if e.RetryAfter != "" {
		fmt.Fprintf(b, ", retry after %s", term.Brief(e.RetryAfter))
	}
	b.WriteByte('\n')
	if e.Upstream != "" {
		verb := "goes"
		if !strings.HasPrefix(e.Verdict, "pass") {
			verb = "would go"
		}
		fmt.Fprintf(b, "  %s to upstream %s as class %s\n", verb, term.Printable(e.Upstream), term.Printable(e.Class))
	}
	if l := e.ListEntry; l != nil {
		fmt.Fprintf(b, "  %s is listed: %s, by %s since %s, until %s: %s\n",
			l.Network, s.Bold(term.Printable(string(l.Action))), term.Printable(l.By), term.Stamp(l.Since), term.UntilRemoved(l.Until), term.Printable(l.Reason))
		if l.Action == clientlist.Allow {
			b.WriteString("  the behavior policy does not evaluate it while it is allowed\n")
		}
	}
	writeBehavior(b, s, e.Behavior)
	if len(e.Rules) == 0 {
		b.WriteString("  no rule counts this request\n")
	} else {
		writeRules(b, s, e.Rules)
	}
	writeDelays(b, e.Rules)
	for _, r := range e.OtherMethods {
		fmt.Fprintf(b, "  rule %s would count it as %s: add --method %s\n", term.Printable(r.Rule), term.Printable(strings.Join(r.Methods, " or ")), term.Printable(strings.Join(r.Methods[:min(len(r.Methods), 1)], "")))
	}
}

// writeBehavior shows the client's standing under the behavior policy, and why.
func writeBehavior(b *bytes.Buffer, s term.Style, c *adminapi.Behavior) {
	switch {
	case c == nil:
		return
	case c.Exempt:
		fmt.Fprintf(b, "  the behavior policy exempts it\n")
		return
	}
	fmt.Fprintf(b, "  tier %s, score %d (%s, policy %s)", s.Bold(term.Printable(c.Tier)), int(c.Score), term.Printable(c.Mode), term.Printable(c.PolicyVersion))
	var effects []string
	if c.Limits > 0 && c.Limits < 1 {
		effects = append(effects, fmt.Sprintf("limits × %v", c.Limits))
	}
	if c.Delay != "" {
		effects = append(effects, "delayed by "+term.Brief(c.Delay))
	}
	if c.RefusedFor != "" {
		effects = append(effects, "refused for "+term.Brief(c.RefusedFor))
	}
	if len(effects) > 0 {
		enforced := ""
		if c.Mode == "shadow" {
			enforced = "if enforced: "
		}
		fmt.Fprintf(b, ", %s%s", enforced, strings.Join(effects, ", "))
	}
	b.WriteByte('\n')
	writeSignals(b, c.Signals)
	if r := c.Route; r != nil {
		fmt.Fprintf(b, "  its route is in tier %s, score %d, which applies to all its clients\n", s.Bold(term.Printable(r.Tier)), int(r.Score))
		writeSignals(b, r.Signals)
	}
}

func writeSignals(b *bytes.Buffer, list []adminapi.BehaviorSignal) {
	for _, r := range list {
		fmt.Fprintf(b, "    %s: %.0f points; counted %.0f, threshold %.0f\n", term.Printable(r.Signal), r.Points, r.Value, r.Threshold)
	}
}

func writeRules(b *bytes.Buffer, s term.Style, list []adminapi.RuleDecision) {
	t := term.Table{Indent: "  "}
	t.Row("RULE", "MODE", "LEFT", "LIMIT", "ALLOWED", "RESET", "FROM", "COUNTER")
	for _, r := range list {
		allowed := s.Green("yes")
		switch early := r.Source == adminapi.SourceBlocked || r.Source == adminapi.SourceBehavior; {
		case r.Allowed:
		case r.Mode == rules.Shadow.String() && !early: // it refuses nobody
			allowed = "would refuse"
		default:
			allowed = s.Red("no")
			if r.RetryAfter != "" {
				allowed += ", in " + term.Brief(r.RetryAfter)
			}
		}
		rule := term.Printable(r.Rule)
		if r.Variant != "" {
			rule += " (" + term.Printable(r.Variant) + ")"
		}
		t.Row(rule, term.Printable(r.Mode), strconv.FormatInt(r.Remaining, 10), fmt.Sprintf("%d in %s", r.Limit, term.Brief(r.Window)),
			allowed, term.Brief(r.ResetAfter), term.Printable(r.Source), term.Printable(r.Key))
	}
	t.Print(b)
}

// writeDelays shows by how much reported rules may be exceeded.
func writeDelays(b *bytes.Buffer, list []adminapi.RuleDecision) {
	for _, r := range list {
		if r.Delay != "" {
			fmt.Fprintf(b, "  %s is reported: edges decide by counts that are up to %s old, so at ten times the limit up to %s more may pass\n",
				term.Printable(r.Rule), term.Brief(r.Delay), term.Percent(r.Overshoot))
		}
		writeGlobal(b, r.Rule, r.Global)
		writeUnderLoad(b, r.Rule, r.UnderLoad)
	}
}

// writeUnderLoad shows how far a limit is lowered, and why.
func writeUnderLoad(b *bytes.Buffer, rule string, u *adminapi.UnderLoad) {
	if u == nil {
		return
	}
	fmt.Fprintf(b, "  %s follows load: step %d of %d from %d down to %d, at a utilization of %.2f; it falls above %v\n",
		term.Printable(rule), u.Step, u.Steps, u.Full, u.Lowest, u.Utilization, u.From)
}

// writeGlobal shows what a region knows of the others' counts, and by how much a global
// rule may be exceeded.
func writeGlobal(b *bytes.Buffer, rule string, g *adminapi.GlobalCounts) {
	if g == nil {
		return
	}
	if w := g.Escrow; w != nil {
		if w.Error != "" {
			fmt.Fprintf(b, "  %s is divided among %s, but what is left here is unknown: %s\n", term.Printable(rule), term.Plural(g.Regions, "region"), term.Printable(w.Error))
			return
		}
		fmt.Fprintf(b, "  %s is divided among %s: this one's part is %d, of which, with what others gave, %d are left now; all together never pass more than the limit\n",
			term.Printable(rule), term.Plural(g.Regions, "region"), w.Part, w.Left)
		return
	}
	if g.Delay == "" {
		fmt.Fprintf(b, "  %s is global, but the edge has no listen.peer: it applies to this region only\n", term.Printable(rule))
		return
	}
	fmt.Fprintf(b, "  %s is global: %d passed here", term.Printable(rule), g.Own)
	for _, region := range slices.Sorted(maps.Keys(g.Others)) {
		fmt.Fprintf(b, ", %d in %s", g.Others[region], term.Printable(region))
	}
	fmt.Fprintf(b, ", as of %s ago; of %s, up to %.0f more than the limit may pass at ten times it, and up to %.0f if a client sends to all in the same instant\n",
		term.Brief(g.Delay), term.Plural(g.Regions, "region"), math.Ceil(g.Demand), math.Ceil(g.Worst))
}
