package limits

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const resetHelp = `Resets one counter of one rule on every edge, so that the client is served again at once.
Describe a request that the rule counts; regionctl limits explain shows which rules do.

The counter is shared, but each edge also remembers its own refusals, so reset goes to
every edge of the chosen regions and shows the result of each (status 3 if some could not
be reached; then run it again: resetting twice does no harm).

It asks for confirmation; --yes skips that.`

func resetCommand(p *command.Program) *cobra.Command {
	var names []string
	var d Request
	c := command.New("reset", "forget one counter on every edge", resetHelp,
		`  regionctl limits reset --rule login --client 203.0.113.7 --method POST --path /login
  regionctl limits reset --rule api-key --client 203.0.113.7 --header X-Api-Key:abc --yes`,
		func(ctx context.Context, _ []string) error {
			list, err := Reset(ctx, p, names, &d)
			return command.Show(p, list, err, writeReset)
		})
	p.RegionFlag(c, &names)
	d.ResetFlags(c.Flags())
	_ = c.RegisterFlagCompletionFunc("rule", p.CompleteRules(&names)) // the flag is known
	return c
}

func (d *Request) ResetFlags(f *pflag.FlagSet) {
	f.StringVar(&d.rule, "rule", "", "the `ID` of the rule")
	command.YesFlag(f, &d.yes)
	command.ByFlag(f, &d.by)
	command.MessageFlag(f, &d.message)
	d.Flags(f)
}

// ResetNode is the outcome on one edge.
type ResetNode struct {
	Region string   `json:"region"`
	Node   string   `json:"node,omitempty"`
	Reset  []string `json:"reset"`
	Error  string   `json:"error,omitempty"`
	reason string   // the error without the edge's name
	// misused says that the edge rejected the request as wrong.
	misused bool
	// uncounted says that its rule does not count the request.
	uncounted bool
}

// Reset resets the counter of a rule that counts a request, on all edges.
func Reset(ctx context.Context, p *command.Program, names []string, d *Request) ([]ResetNode, error) {
	if d.rule == "" {
		return nil, term.Misused("--rule is missing; name the rule whose counter to reset")
	}
	query, err := d.query()
	if err != nil {
		return nil, err
	}
	query.Set("rule", d.rule)
	if err := command.CheckText("--message", d.message, command.LongestMessage); err != nil {
		return nil, err
	}
	who, err := p.Whoami(d.by)
	if err != nil {
		return nil, err
	}
	targets, err := p.TargetsToChange(ctx, kinds.Rules, names, false)
	if err != nil {
		return nil, err
	}
	answers := fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) ([]consul.Node, error) {
		return command.Candidates(ctx, t, "")
	})
	total, left := 0, map[string]error{} // regions in which nothing is reset, and why
	var there []string
	for _, a := range answers {
		if left[a.Target.Name] = a.Err; a.Err != nil {
			p.Warn("%s: %v", a.Target.Name, a.Err)
			continue
		}
		total, there = total+len(a.Value), append(there, a.Target.Name)
	}
	if total == 0 {
		return nil, term.Failed("no edge is registered; nothing was reset")
	}
	if err := p.Confirm(ctx, d.yes, "Reset rule %s for %s on %s in %s?", d.rule, d.subject(), term.Plural(total, "edge"), strings.Join(there, ", ")); err != nil {
		return nil, err
	}
	// The history has it before an edge acts, even if this program ends here.
	what := "reset rule " + d.rule + " for " + d.recorded() + term.Reason(d.message)
	written, err := p.Record(ctx, there, who, what)
	if err != nil {
		return nil, term.Failed("nothing was reset: %w", err)
	}
	for _, a := range written {
		if a.Err != nil {
			left[a.Target.Name] = fmt.Errorf("the history of acts cannot be written: %w", a.Err)
		}
	}
	list := []ResetNode{}
	var rejected []string // by all edges there
	for _, a := range fleet.AskUnbounded(ctx, targets, func(ctx context.Context, t *fleet.Target) ([]ResetNode, error) {
		if why := left[t.Name]; why != nil {
			return []ResetNode{{Region: t.Name, Reset: []string{}, Error: why.Error()}}, nil
		}
		i := slices.IndexFunc(answers, func(a fleet.Answer[[]consul.Node]) bool { return a.Target == t })
		return resetAll(t, answers[i].Value, func(n consul.Node) ([]string, error) { return t.Admin.Reset(ctx, n, query) }), nil
	}) {
		if !slices.ContainsFunc(a.Value, func(n ResetNode) bool { return !n.misused }) {
			rejected = append(rejected, a.Target.Name)
		}
		list = append(list, a.Value...)
	}
	p.RecordAct(ctx, rejected, who, "nothing was reset: "+what)
	return resetVerdict(list)
}

func resetAll(t *fleet.Target, nodes []consul.Node, reset func(consul.Node) ([]string, error)) []ResetNode {
	list := make([]ResetNode, len(nodes))
	fleet.Each(nodes, func(i int, n consul.Node) {
		keys, err := reset(n)
		list[i] = ResetNode{Region: t.Name, Node: n.ID, Reset: append([]string{}, keys...)}
		if err != nil {
			var refused *fleet.StatusError
			list[i].Error, list[i].reason = err.Error(), fleet.Reason(err)
			list[i].misused = errors.As(err, &refused) && (refused.Code == http.StatusBadRequest || refused.Code == http.StatusNotFound)
			list[i].uncounted = list[i].misused && refused.Code == http.StatusNotFound
		}
	})
	return list
}

// resetVerdict returns nothing to show if all edges reject the request as wrong: the error says why,
// once.
func resetVerdict(list []ResetNode) ([]ResetNode, error) {
	var wrong fleet.Reasons
	edges, failed, bad, hint := 0, 0, 0, ""
	var without []string // regions of which no edge was asked
	for _, n := range list {
		if n.Node == "" {
			without = append(without, n.Region)
		} else if edges++; n.Error != "" {
			failed++
		}
		if n.Error != "" {
			wrong.Add(strings.TrimSuffix(n.Region+"/"+n.Node, "/"), cmp.Or(n.reason, n.Error))
		}
		if n.misused {
			bad++
		}
		if n.uncounted {
			hint = "\npass what it names as flags, such as --path /login or --header X-Tenant:VALUE; regionctl limits explain with the same flags shows which rules count a request"
		}
	}
	lines := wrong.Lines("%s: %s")
	why := strings.Join(lines, "\n  ") + hint
	switch {
	case failed == 0 && len(without) == 0:
		return list, nil
	case bad == len(list) && len(lines) == 1:
		return nil, term.Misused("nothing was reset: %s%s", term.Printable(cmp.Or(list[0].reason, list[0].Error)), hint)
	case bad == len(list):
		return nil, term.Misused("nothing was reset:\n  %s", why)
	case failed == edges:
		return list, term.Failed("nothing was reset:\n  %s", why)
	}
	var missed []string
	if failed > 0 {
		missed = append(missed, fmt.Sprintf("%d of %s did not reset it", failed, term.Plural(edges, "edge")))
	}
	if len(without) > 0 {
		missed = append(missed, "nothing was reset in "+strings.Join(without, ", "))
	}
	return list, term.Partial("%s; run this again later:\n  %s", strings.Join(missed, ", and "), why)
}

func writeReset(list []ResetNode, b *bytes.Buffer, s term.Style) {
	t := term.Table{}
	t.Row("REGION", "EDGE", "RESULT", "COUNTER")
	for _, n := range list {
		result := s.Green("reset")
		if n.Error != "" {
			result = s.Red("failed")
		}
		t.Row(n.Region, term.OrDash(n.Node), result, term.OrDashes(n.Reset))
	}
	t.Print(b)
}
