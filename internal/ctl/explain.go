package ctl

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const explainHelp = `Says how a request would be decided now: which rules count it, by which counters, what
is left of each, and which one would refuse it. Nothing is charged by asking.

Describe the request with the flags. What is left out is as in a plain GET / without
headers; rules that count by something it lacks do not appear.

One edge of each region is asked, or the one of --node.`

func (p *program) explainCommand() *cobra.Command {
	var names []string
	var node string
	var d described
	c := command("explain", "say which rules would decide a request, and why", explainHelp,
		`  regionctl limits explain --client 203.0.113.7
  regionctl limits explain --client 203.0.113.7 --method POST --host api.example.com --path /login
  regionctl limits explain --client 2001:db8::7 --header 'X-Api-Key: abc' --tier pro --region eu-west`,
		func(ctx context.Context, _ []string) error { return p.explain(ctx, names, node, &d) })
	p.regionFlag(c, &names)
	p.nodeFlag(c, &names, &node)
	d.flags(c.Flags())
	return c
}

func (p *program) nodeFlag(c *cobra.Command, names *[]string, node *string) {
	c.Flags().StringVar(node, "node", "", "ask the edge of this `ID`")
	_ = c.RegisterFlagCompletionFunc("node", p.completeNodes(names, func(n region.Node) string { return n.ID })) // the flag is known
}

// explained is what one region answers.
type explained struct {
	Region string `json:"region"`
	Node   string `json:"node,omitempty"`
	*explanation
	Error string `json:"error,omitempty"`
}

func (p *program) explain(ctx context.Context, names []string, node string, d *described) error {
	query, err := d.query()
	if err != nil {
		return err
	}
	targets, closeAll, err := p.targets(names)
	if err != nil {
		return err
	}
	defer closeAll()
	if targets, err = p.withNode(ctx, targets, node); err != nil {
		return err
	}
	answers := askUnbounded(ctx, targets, func(ctx context.Context, t *target) (explained, error) {
		brief, cancel := p.bounded(ctx)
		nodes, err := candidates(brief, t, node)
		cancel()
		if err != nil {
			return explained{}, err
		}
		e, n, err := askOne(ctx, t, nodes, func(ctx context.Context, n region.Node) (*explanation, error) {
			return t.admin.explain(ctx, n, query)
		})
		return explained{Region: t.name, Node: n.ID, explanation: e}, err
	})
	list := make([]explained, len(answers))
	for i, a := range answers {
		list[i] = a.value
		if a.err != nil {
			list[i] = explained{Region: a.target.name, Error: a.err.Error()}
		}
	}
	if err := p.show(list, func(b *bytes.Buffer, s style) {
		for i := range list {
			if list[i].explanation != nil {
				list[i].write(b, s)
			}
		}
	}); err != nil {
		return err
	}
	return unanswered(answers)
}

// withNode leaves the regions that have a node, if one is named: only one of them
// does.
func (p *program) withNode(ctx context.Context, targets []*target, node string) ([]*target, error) {
	if node == "" {
		return targets, nil
	}
	var found []*target
	answers := ask(ctx, p, targets, func(ctx context.Context, t *target) ([]region.Node, error) { return candidates(ctx, t, node) })
	for _, a := range answers {
		if a.err == nil {
			found = append(found, a.target)
		}
	}
	if len(found) == 0 {
		_, err := failures(answers)
		return nil, failed("%w", err)
	}
	return found, nil
}

func (e *explained) write(b *bytes.Buffer, s style) {
	verdict := s.green(printable(e.Verdict))
	if !strings.HasPrefix(e.Verdict, "pass") {
		verdict = s.red(printable(e.Verdict))
	}
	fmt.Fprintf(b, "%s (edge %s, rules %s): %s", s.bold(e.Region), printable(e.Node), orDash(e.RulesVersion), verdict)
	if e.RetryAfter != "" {
		fmt.Fprintf(b, ", retry after %s", brief(e.RetryAfter))
	}
	b.WriteByte('\n')
	if len(e.Rules) == 0 {
		b.WriteString("  no rule counts this request\n")
		return
	}
	writeRules(b, s, e.Rules)
}

func writeRules(b *bytes.Buffer, s style, list []explainedRule) {
	t := table{indent: "  "}
	t.row("RULE", "MODE", "LEFT", "LIMIT", "ALLOWED", "RESET", "FROM", "COUNTER")
	for _, r := range list {
		allowed := s.green("yes")
		if !r.Allowed {
			allowed = s.red("no")
			if r.RetryAfter != "" {
				allowed += ", in " + brief(r.RetryAfter)
			}
		}
		t.row(printable(r.Rule), printable(r.Mode), strconv.FormatInt(r.Remaining, 10), fmt.Sprintf("%d in %s", r.Limit, brief(r.Window)),
			allowed, brief(r.ResetAfter), printable(r.Source), printable(r.Key))
	}
	t.write(b)
}

// brief is a duration that an edge wrote, to the millisecond.
func brief(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return printable(text)
	}
	return short(d.Round(time.Millisecond))
}
