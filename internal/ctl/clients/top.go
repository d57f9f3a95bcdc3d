package clients

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const topHelp = `Shows whom each rule refused most in the last one to two minutes, over all edges; for a rule in
shadow mode, whom it would have refused. Below are the clients above the mildest tier of the
behavior policy that sent requests meanwhile.

A key has the values that the rule counts by. Secret ones are hashes, which regionctl limits
inspect takes. The client is the address that the latest refused request came from.

Counts are minimums: an edge counts each key of a rule exactly, or too low by at most 1/32 of the
rule's refusals in a minute. A key with a larger share is never missing. In a flood from a million
addresses, each refused equally often, none stands out: keys of whose count less than half is
certain are left out. Refusals that came at the same instant, or because the store did not answer,
are not counted. An edge lists at most 100 rules, those with the most refusals, and forgets those of a
rule whose key or mode changes.`

// Top is whom the rules refused most, and which clients are suspicious.
type Top struct {
	Since    time.Time  `json:"since,omitzero"`
	Rules    []*TopRule `json:"rules"`    // the most refusals first
	Suspects []*Suspect `json:"suspects"` // the severest tier first
	// Silent are the edges that could not be asked, and why.
	Silent []string `json:"silent,omitempty"`

	rules    map[string]*TopRule // by ID and mode
	suspects map[string]*Suspect // by key
}

// TopRule is a rule that refused requests, or would have in shadow mode.
type TopRule struct {
	Rule    string       `json:"rule"`
	Mode    string       `json:"mode"`
	Refused uint64       `json:"refused"`
	Clients []*TopClient `json:"clients"` // the most refusals first

	clients map[string]*TopClient // by key
}

// TopClient is a key that a rule refused.
type TopClient struct {
	Key     []string   `json:"key"` // none: all requests
	Client  netip.Addr `json:"client,omitzero"`
	Refused uint64     `json:"refused"` // at least
	Regions []string   `json:"regions"` // that refused it
}

// Suspect is a client above the mildest tier, as its severest edge sees it.
type Suspect struct {
	adminapi.Suspect
	Mode    string   `json:"mode"` // of the policy
	Regions []string `json:"regions"`
}

// mostKeys is how many keys of a rule an edge follows.
const mostKeys = 32

func topCommand(p *command.Program) *cobra.Command {
	var names []string
	var lines int
	c := command.New("top", "show whom rules refuse most, and suspicious clients", topHelp, `  regionctl clients top
  regionctl clients top --lines 3 --region eu-west`,
		func(ctx context.Context, _ []string) error {
			t, err := LookTop(ctx, p, names, lines)
			return command.Show(p, t, err, (*Top).write)
		})
	p.RegionFlag(c, &names)
	c.Flags().IntVarP(&lines, "lines", "n", 10, "how many keys to show of each rule, and suspicious clients")
	return c
}

// LookTop asks all edges whom they refused most, for so many keys of each rule.
func LookTop(ctx context.Context, p *command.Program, names []string, lines int) (*Top, error) {
	if lines < 1 || lines > mostKeys {
		return nil, term.Misused("--lines %d: must be from 1 to %d", lines, mostKeys)
	}
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return nil, err
	}
	answers := fleet.AskUnbounded(ctx, targets, func(ctx context.Context, t *fleet.Target) (*asked, error) { return askTop(ctx, t, lines) })
	t := &Top{Rules: []*TopRule{}, Suspects: []*Suspect{}, rules: map[string]*TopRule{}, suspects: map[string]*Suspect{}}
	for _, a := range answers {
		if a.Err == nil {
			t.merge(a.Target.Name, a.Value)
		}
	}
	t.sort(lines)
	if err = command.Unanswered(answers); err == nil && len(t.Silent) > 0 {
		err = term.Partial("not all edges answered:\n%s", strings.Join(t.Silent, "\n"))
	}
	return t, err
}

// asked is what the edges of a region answered.
type asked struct {
	edges  []*adminapi.Top
	silent []string
}

// mostTogether is about how many keys of a rule the edges of a region send together.
const mostTogether = 2000

func askTop(ctx context.Context, t *fleet.Target, lines int) (*asked, error) {
	brief, cancel := t.Bounded(ctx)
	defer cancel()
	nodes, err := command.Candidates(brief, t, "")
	if err != nil {
		return nil, err
	}
	most := url.Values{"most": {strconv.Itoa(max(lines, min(mostKeys, mostTogether/len(nodes))))}}
	answers, errs := fleet.AskNodes(nodes, func(n consul.Node) (*adminapi.Top, error) {
		return fleet.Get[adminapi.Top](ctx, t.Admin, n, adminapi.PathTop, most)
	})
	r, silent := &asked{}, fleet.Reasons{}
	for i, err := range errs {
		if err != nil {
			silent.Add(nodes[i].ID, fleet.Reason(err))
			continue
		}
		r.edges = append(r.edges, answers[i])
	}
	r.silent = silent.Lines(fleet.CouldNotAsk)
	return r, nil
}

// merge adds up what the edges of a region counted.
func (t *Top) merge(region string, r *asked) {
	for _, why := range r.silent {
		t.Silent = append(t.Silent, region+": "+why)
	}
	for _, edge := range r.edges {
		if t.Since.IsZero() || edge.Since.Before(t.Since) {
			t.Since = edge.Since
		}
		for i := range edge.Rules {
			t.mergeRule(region, &edge.Rules[i])
		}
		for i := range edge.Suspects {
			t.mergeSuspect(region, edge.PolicyMode, &edge.Suspects[i])
		}
	}
}

func (t *Top) mergeRule(region string, r *adminapi.TopRule) {
	rule := t.rules[r.Rule+" "+r.Mode]
	if rule == nil {
		rule = &TopRule{Rule: r.Rule, Mode: r.Mode, Clients: []*TopClient{}, clients: map[string]*TopClient{}}
		t.rules[r.Rule+" "+r.Mode] = rule
		t.Rules = append(t.Rules, rule)
	}
	rule.Refused += r.Refused + r.Missed
	for _, c := range r.Clients {
		key := strings.Join(c.Key, " ")
		known := rule.clients[key]
		if known == nil {
			known = &TopClient{Key: c.Key, Client: c.Client}
			rule.clients[key] = known
			rule.Clients = append(rule.Clients, known)
		}
		known.Refused += c.Refused
		known.Regions = withRegion(known.Regions, region)
	}
}

func (t *Top) mergeSuspect(region, mode string, s *adminapi.Suspect) {
	key := strings.Join(s.Key, " ")
	known := t.suspects[key]
	if known == nil {
		known = &Suspect{Suspect: *s, Mode: mode, Regions: []string{region}}
		t.suspects[key] = known
		t.Suspects = append(t.Suspects, known)
		return
	}
	requests := known.Requests + s.Requests
	if severer(s, &known.Suspect) < 0 {
		known.Suspect, known.Mode = *s, mode
	}
	known.Requests, known.Regions = requests, withRegion(known.Regions, region)
}

// withRegion adds a region to a list whose regions come one after another.
func withRegion(list []string, region string) []string {
	if len(list) > 0 && list[len(list)-1] == region {
		return list
	}
	return append(list, region)
}

func severer(a, b *adminapi.Suspect) int {
	return cmp.Or(cmp.Compare(b.Level, a.Level), cmp.Compare(b.Score, a.Score))
}

// sort puts the most frequent first, and keeps so many keys of each rule.
func (t *Top) sort(lines int) {
	slices.SortStableFunc(t.Rules, func(a, b *TopRule) int { return cmp.Compare(b.Refused, a.Refused) })
	for _, r := range t.Rules {
		slices.SortStableFunc(r.Clients, func(a, b *TopClient) int { return cmp.Compare(b.Refused, a.Refused) })
		r.Clients = r.Clients[:min(lines, len(r.Clients))]
	}
	slices.SortStableFunc(t.Suspects, func(a, b *Suspect) int { return severer(&a.Suspect, &b.Suspect) })
	t.Suspects = t.Suspects[:min(lines, len(t.Suspects))]
}

func (t *Top) write(b *bytes.Buffer, s term.Style) {
	if t.Since.IsZero() {
		return // nobody answered
	}
	if len(t.Rules) == 0 {
		fmt.Fprintf(b, "no rule has refused anyone since %s\n", term.Stamp(t.Since))
	} else {
		fmt.Fprintf(b, "refused most since %s:\n", term.Stamp(t.Since))
		table := term.Table{Indent: "  "}
		table.Row("RULE", "MODE", "REFUSED", "KEY", "CLIENT", "REGIONS")
		for _, r := range t.Rules {
			mode := s.Yellow(term.Printable(r.Mode))
			if len(r.Clients) == 0 {
				table.Row(term.Printable(r.Rule), mode, strconv.FormatUint(r.Refused, 10), "no key stands out", "-", "-")
			}
			for _, c := range r.Clients {
				table.Row(term.Printable(r.Rule), mode, strconv.FormatUint(c.Refused, 10), keyText(c.Key), addressText(c.Client), term.Printable(strings.Join(c.Regions, ", ")))
			}
		}
		table.Print(b)
	}
	if len(t.Suspects) == 0 {
		return
	}
	b.WriteString("suspicious clients:\n")
	table := term.Table{Indent: "  "}
	table.Row("TIER", "SCORE", "MODE", "REQUESTS", "KEY", "CLIENT", "SIGNALS", "REGIONS")
	for _, x := range t.Suspects {
		signals := make([]string, len(x.Signals))
		for i, signal := range x.Signals {
			signals[i] = signal.Signal
		}
		table.Row(s.Yellow(term.Printable(x.Tier)), strconv.Itoa(int(x.Score)), term.Printable(x.Mode), strconv.FormatUint(x.Requests, 10),
			keyText(x.Key), addressText(x.Client), term.OrDash(strings.Join(signals, ", ")), term.Printable(strings.Join(x.Regions, ", ")))
	}
	table.Print(b)
}

// keyText writes the values of a key; a long one is cut.
func keyText(key []string) string {
	if len(key) == 0 {
		return "all requests"
	}
	return term.Clip(term.Printable(strings.Join(key, " ")), 80)
}

func addressText(a netip.Addr) string {
	if !a.IsValid() {
		return "-"
	}
	return a.String()
}
