package rules

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/hour"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const listHelp = `Lists the rules that the edges run, with what each of them decides: checks allowed and
limited per second over the last interval, and all since the edges started. A rule in shadow
mode limits nothing; what it would have limited is in its own column. A rule that has
decided nothing since the edges started has probably never matched. With --prometheus, the
counts are those of the last hour, which restarts of edges do not begin again.

A check that would have passed is not counted if another rule refused the request.

The definitions come from one edge of each region, the counts from all of them. A rule
that regions define differently is marked; regionctl rules diff shows how.

--watch looks again every two seconds until interrupted; --watch=10s every ten. It shows the
definitions first, before all edges have told their counts ("uncounted" in JSON). What edges
counted before they restarted or were lost stays in its totals. With -o json each look is one
line.

Exits with 0, or with 3 if a region did not answer.`

func listCommand(p *command.Program) *cobra.Command {
	c := command.Watched(p, "list", "list the rules with what each allows and limits", listHelp,
		`  regionctl rules list
  regionctl rules list --region eu-west --watch
  regionctl rules list --prometheus http://prometheus.example.com:9090
  regionctl rules list -o json | jq -r '.rules[] | select(.total.allowed + .total.limited == 0) | .id'`, "2s",
		func(ctx context.Context, names []string) error {
			if err := hour.Check(p.Prometheus); err != nil {
				return err
			}
			v, err := List(ctx, p, names)
			if v != nil && p.Prometheus != "" {
				var failed error
				if v.Hour, failed = LastHour(ctx, p, names); failed != nil {
					return failed
				}
			}
			return command.Show(p, v, err, (*RuleList).write)
		}, func(ctx context.Context, names []string, every time.Duration) error {
			if p.Prometheus != "" {
				return term.Misused("--watch shows what edges count now; leave out --prometheus")
			}
			return WatchList(ctx, p, names, every, func(v *RuleList) error { return p.Draw(v, v.write) })
		})
	hour.Flag(p, c)
	return c
}

// RuleList is what rules list prints with -o json.
type RuleList struct {
	At      time.Time    `json:"at"`
	Regions []ruleRegion `json:"regions"`
	Rules   []listedRule `json:"rules"`
	Hour    *Hour        `json:"last_hour,omitempty"` // with --prometheus
}

// ruleRegion says where the counts come from.
type ruleRegion struct {
	Region string `json:"region"`
	// Node is the edge that provided the definitions.
	Node    string `json:"node,omitempty"`
	Version string `json:"version,omitempty"`
	Nodes   int    `json:"nodes"`
	// Silent counts the edges that did not answer: their decisions are missing.
	Silent int `json:"nodes_silent"`
	// Uncounted: the edges have not been asked yet. A watch shows the definitions first.
	Uncounted bool   `json:"uncounted,omitempty"`
	Error     string `json:"error,omitempty"`
}

// listedRule is one rule, in all regions.
type listedRule struct {
	adminapi.Rule
	Regions []string `json:"regions"`
	// Differs: not all regions define it as the first one does.
	Differs bool          `json:"differs"`
	Total   fleet.Decided `json:"total"`      // since the edges started; in a watch it never falls
	Rate    fleet.Decided `json:"per_second"` // over the last interval
}

type ruleLook struct {
	targets []*fleet.Target
	before  map[string]*fleet.RuleCounts // by region and node
	total   map[string]fleet.Decided     // by rule
}

// forgotten is how long the counts of an edge that does not answer are kept: if it answers again, only
// what it has counted since is new.
const forgotten = time.Hour

// ruledRegion is what one look found in a region.
type ruledRegion struct {
	ruleRegion
	nodes  []consul.Node
	rules  []adminapi.Rule
	counts map[string]*fleet.RuleCounts // by node
}

// List asks the edges for their rules. A list comes with an error if it is not whole.
func List(ctx context.Context, p *command.Program, names []string) (*RuleList, error) {
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return nil, err
	}
	l := &ruleLook{targets: targets}
	l.look(ctx, p.Now(), countsOfRegion)
	if err := consul.Pause(ctx, time.Second); err != nil { // a rate is the difference of two looks
		return nil, err
	}
	v, answers := l.look(ctx, p.Now(), countsOfRegion)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return v, command.Unanswered(answers)
}

// WatchList asks again and again until ctx ends.
func WatchList(ctx context.Context, p *command.Program, names []string, every time.Duration, show func(*RuleList) error) error {
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return err
	}
	l := &ruleLook{targets: targets}
	look := func(question func(context.Context, *fleet.Target) (*ruledRegion, error)) func(context.Context) *RuleList {
		return func(ctx context.Context) *RuleList {
			v, _ := l.look(ctx, p.Now(), question)
			return v
		}
	}
	return command.Watch(ctx, every, show, look(rulesOfRegion), look(countsOfRegion))
}

func (l *ruleLook) look(ctx context.Context, at time.Time, question func(context.Context, *fleet.Target) (*ruledRegion, error)) (*RuleList, []fleet.Answer[*ruledRegion]) {
	answers := fleet.AskUnbounded(ctx, l.targets, question)
	v := &RuleList{At: at.UTC(), Regions: []ruleRegion{}, Rules: []listedRule{}}
	if l.before == nil {
		l.before, l.total = map[string]*fleet.RuleCounts{}, map[string]fleet.Decided{}
	}
	index := map[string]int{}
	for _, a := range answers {
		if a.Err != nil {
			v.Regions = append(v.Regions, ruleRegion{Region: a.Target.Name, Error: a.Err.Error()})
			continue
		}
		r := a.Value
		v.Regions = append(v.Regions, r.ruleRegion)
		for _, rule := range r.rules {
			i, known := index[rule.ID]
			if !known {
				i = len(v.Rules)
				index[rule.ID] = i
				v.Rules = append(v.Rules, listedRule{Rule: rule, Regions: []string{}})
			}
			v.Rules[i].Regions = append(v.Rules[i].Regions, r.Region)
			v.Rules[i].Differs = v.Rules[i].Differs || !reflect.DeepEqual(v.Rules[i].Rule, rule)
		}
		for node, counts := range r.counts {
			id := r.Region + "/" + node
			grown, took := counts.Since(l.before[id])
			for i, total := range counts.Totals() {
				rule := &v.Rules[index[r.rules[i].ID]]
				if grown != nil {
					total = grown[i]
				}
				if took > 0 {
					rule.Rate = rule.Rate.Plus(total.Per(took))
				}
				l.total[rule.ID] = l.total[rule.ID].Plus(total)
			}
			l.before[id] = counts
		}
	}
	maps.DeleteFunc(l.before, func(_ string, c *fleet.RuleCounts) bool { return c.Age() > forgotten })
	for i := range v.Rules {
		v.Rules[i].Total = l.total[v.Rules[i].ID]
	}
	return v, answers
}

// rulesOfRegion asks one node for the definitions.
func rulesOfRegion(ctx context.Context, t *fleet.Target) (*ruledRegion, error) {
	brief, cancel := t.Bounded(ctx)
	defer cancel()
	nodes, err := command.Candidates(brief, t, "")
	if err != nil {
		return nil, err
	}
	answer, from, err := command.AskOne(ctx, nodes, func(ctx context.Context, n consul.Node) (*adminapi.Rules, error) {
		return fleet.Get[adminapi.Rules](ctx, t.Admin, n, adminapi.PathRules, nil)
	})
	if err != nil {
		return nil, err
	}
	about := ruleRegion{Region: t.Name, Node: from.ID, Version: answer.Version, Nodes: len(nodes), Uncounted: true}
	return &ruledRegion{about, nodes, answer.Rules, nil}, nil
}

// countsOfRegion also asks all nodes for what they decided.
func countsOfRegion(ctx context.Context, t *fleet.Target) (*ruledRegion, error) {
	r, err := rulesOfRegion(ctx, t)
	if err != nil {
		return nil, err
	}
	index := map[string]int{}
	for i, rule := range r.rules {
		index[rule.ID] = i
	}
	counts, errs := fleet.AskNodes(r.nodes, func(n consul.Node) (*fleet.RuleCounts, error) { return t.Admin.RuleCounts(ctx, n, index) })
	r.Uncounted, r.counts = false, map[string]*fleet.RuleCounts{}
	for i, c := range counts {
		if errs[i] != nil {
			r.Silent++
			continue
		}
		r.counts[r.nodes[i].ID] = c
	}
	return r, nil
}

func (v *RuleList) write(b *bytes.Buffer, s term.Style) {
	t := term.Table{}
	head := []string{"RULE", "MODE", "LIMIT", "KEY", "ALLOWED/S", "LIMITED/S", "SHADOW/S", "ALLOWED", "LIMITED", "SHADOW"}
	if v.Hour != nil {
		head = append(head[:7], "ALLOWED, 1H", "LIMITED, 1H", "SHADOW, 1H")
	}
	t.Row(head...)
	number := func(n float64) string { return fmt.Sprintf("%.1f", n) }
	for _, r := range v.Rules {
		name := term.Printable(r.ID)
		if r.Differs {
			name += s.Yellow(" (differs between regions)")
		}
		if v.Hour != nil {
			r.Total = fleet.Decided{}
			if h := v.Hour.Rules[r.ID]; h != nil {
				r.Total = h.Total
			}
		}
		limited := number(r.Rate.Limited)
		if r.Rate.Limited > 0 {
			limited = s.Red(limited)
		}
		t.Row(name, term.Printable(r.Mode), fmt.Sprintf("%d in %s", r.Limit, term.Brief(r.Window)), term.Printable(cmp.Or(strings.Join(r.Key, ", "), "all")),
			number(r.Rate.Allowed), limited, number(r.Rate.Shadow), fmt.Sprintf("%.0f", r.Total.Allowed), fmt.Sprintf("%.0f", r.Total.Limited), fmt.Sprintf("%.0f", r.Total.Shadow))
	}
	unknown := slices.ContainsFunc(v.Regions, func(r ruleRegion) bool { return r.Error != "" })
	if len(v.Rules) > 0 {
		t.Print(b)
	} else if !unknown {
		b.WriteString("no rules\n")
	}
	for _, r := range v.Regions {
		switch {
		case r.Error != "":
			fmt.Fprintf(b, "%s: %s: %s\n", r.Region, s.Red("not known"), term.Printable(r.Error))
		case r.Uncounted:
			fmt.Fprintf(b, "%s: asking %s what they decided\n", r.Region, term.Plural(r.Nodes, "edge"))
		case r.Silent > 0:
			fmt.Fprintf(b, "%s: %s did not answer; what they decided is missing\n", r.Region, term.Plural(r.Silent, "edge"))
		}
	}
}
