package limits

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func globalCommand(p *command.Program) *cobra.Command {
	var names []string
	c := command.New("global", "show what regions know of each other's counts",
		`Shows, for rules with scope: global, what each region knows of the others: how old that may
be, how many counters travel, by how much limits were exceeded in the last half minute compared to
how much they may be, and what each region holds of limits in escrow.

All edges of a region are asked, because each knows the keys that it owns. For one client,
regionctl limits inspect shows the counts of each region.`,
		`  regionctl limits global
  regionctl limits global --region eu-west -o json`,
		func(ctx context.Context, _ []string) error {
			list, err := Global(ctx, p, names)
			return command.ShowEach(p, list, err, (*Shared).write)
		})
	p.RegionFlag(c, &names)
	return c
}

// Shared is what the edges of one region know of the others.
type Shared struct {
	Region string `json:"region"`
	Edges  int    `json:"edges"`
	// Silent counts the edges that did not answer; Alone counts, by reason, the edges that
	// hear from no other region.
	Silent    int                     `json:"silent,omitempty"`
	Alone     map[string]int          `json:"alone,omitempty"`
	Others    []adminapi.GlobalRegion `json:"others"`
	Delay     string                  `json:"delay,omitempty"`
	Kept      int                     `json:"kept"`
	Traveling int                     `json:"traveling"`
	Uncounted int64                   `json:"uncounted"`
	Parts     int                     `json:"parts"`
	Rules     []adminapi.GlobalRule   `json:"rules"`
	Error     string                  `json:"error,omitempty"`
}

// Global asks all edges what they know of other regions.
func Global(ctx context.Context, p *command.Program, names []string) ([]*Shared, error) {
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return nil, err
	}
	return command.AskRegions(ctx, targets, askGlobal, func(region, why string) *Shared {
		return &Shared{Region: region, Others: []adminapi.GlobalRegion{}, Rules: []adminapi.GlobalRule{}, Error: why}
	})
}

func askGlobal(ctx context.Context, t *fleet.Target) (*Shared, error) {
	brief, cancel := t.Bounded(ctx)
	defer cancel()
	nodes, err := command.Candidates(brief, t, "")
	if err != nil {
		return nil, err
	}
	answers, errs := fleet.AskNodes(nodes, func(n consul.Node) (*adminapi.Global, error) {
		return fleet.Get[adminapi.Global](ctx, t.Admin, n, adminapi.PathGlobal, nil)
	})
	r := &Shared{Region: t.Name, Others: []adminapi.GlobalRegion{}, Rules: []adminapi.GlobalRule{}}
	for i, g := range answers {
		if errs[i] != nil {
			r.Silent++
		} else {
			r.add(g)
		}
	}
	if r.Edges == 0 {
		return nil, fmt.Errorf("no edge reported what it knows of other regions: %w", errs[0])
	}
	return r, nil
}

// add merges what one more edge knows: the oldest ages, the largest maxima, and the sums of
// separate counts.
func (r *Shared) add(g *adminapi.Global) {
	r.Edges++
	if g.Alone != "" {
		if r.Alone == nil {
			r.Alone = map[string]int{}
		}
		r.Alone[g.Alone]++
	}
	for _, o := range g.Others {
		i, found := slices.BinarySearchFunc(r.Others, o, func(a, b adminapi.GlobalRegion) int { return cmp.Compare(a.Region, b.Region) })
		if !found {
			r.Others = slices.Insert(r.Others, i, o)
		}
		r.Others[i].Lag = longer(r.Others[i].Lag, o.Lag)
	}
	r.Delay = longer(r.Delay, g.Delay)
	r.Kept, r.Traveling, r.Uncounted = r.Kept+g.Kept, r.Traveling+g.Traveling, r.Uncounted+g.Uncounted
	if r.Edges == 1 {
		r.Parts = g.Parts
	}
	r.Parts = min(r.Parts, g.Parts)
	for _, rule := range g.Rules {
		i := slices.IndexFunc(r.Rules, func(known adminapi.GlobalRule) bool { return known.Rule == rule.Rule })
		if i < 0 {
			r.Rules = append(r.Rules, rule)
			continue
		}
		known := &r.Rules[i]
		known.Overshoot, known.Bound, known.Rights = max(known.Overshoot, rule.Overshoot), max(known.Bound, rule.Bound), known.Rights+rule.Rights
	}
}

func longer(a, b string) string {
	x, _ := time.ParseDuration(a) // none is none
	if y, err := time.ParseDuration(b); err == nil && (y > x || a == "") {
		return b
	}
	return a
}

func (r *Shared) write(b *bytes.Buffer, s term.Style) {
	if r.Error != "" {
		return
	}
	fmt.Fprintf(b, "%s (%s):\n", s.Bold(r.Region), term.Plural(r.Edges, "edge"))
	for _, reason := range slices.Sorted(maps.Keys(r.Alone)) {
		fmt.Fprintf(b, "  %d of %s: %s, so global limits apply to this region only\n", r.Alone[reason], term.Plural(r.Edges, "edge"), term.Printable(reason))
	}
	if r.Silent > 0 {
		fmt.Fprintf(b, "  … and %s that did not answer\n", term.Plural(r.Silent, "edge"))
	}
	if len(r.Rules) == 0 {
		b.WriteString("  no rule has scope: global\n")
		return
	}
	if len(r.Others) > 0 {
		t := term.Table{Indent: "  "}
		t.Row("HEARS OF", "NOTHING OLDER THAN")
		for _, o := range r.Others {
			t.Row(term.Printable(o.Region), term.Brief(o.Lag))
		}
		t.Print(b)
		fmt.Fprintf(b, "  learns of a request elsewhere within %s; %d of %d counters travel\n", term.Brief(r.Delay), r.Traveling, r.Kept)
	}
	if r.Uncounted > 0 {
		fmt.Fprintf(b, "  %d units are unknown to other regions, because edges count too many keys\n", r.Uncounted)
	}
	t := term.Table{Indent: "  "}
	t.Row("RULE", "LIMIT", "MODE", "EXCEEDED BY", "AT MOST", "RIGHTS HELD", "ON PARTITION")
	for _, g := range r.Rules {
		limit := fmt.Sprintf("%d in %s", g.Limit, term.Brief(g.Window))
		if g.Burst > 0 {
			limit += fmt.Sprintf(", burst %d", g.Burst)
		}
		if g.Escrow {
			t.Row(term.Printable(g.Rule), limit, "escrow", "never", "-", strconv.FormatInt(g.Rights, 10), term.Printable(g.Partition))
			continue
		}
		most := "-"
		if g.Bound > 0 {
			most = term.Percent(g.Bound)
		}
		t.Row(term.Printable(g.Rule), limit, "eventual", term.Percent(g.Overshoot), most, "-", term.Printable(g.Partition))
	}
	t.Print(b)
	if slices.ContainsFunc(r.Rules, func(g adminapi.GlobalRule) bool { return g.Escrow }) && r.Parts != 1 {
		fmt.Fprintf(b, "  for limits in escrow, it may spend the parts of %s\n", term.Plural(r.Parts, "region"))
	}
}
