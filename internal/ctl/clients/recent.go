package clients

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/requests"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const recentHelp = `Shows which requests of a client the edges recently refused, the latest first, and by which rule;
with --all also those that passed. An IPv6 address stands for its /64, as rules count it.

Edges keep the latest requests in memory, without secrets, if recent.keep in their configuration
says how many. The output shows how far back that reaches in each region.`

// Latest is what the edges of one region recently decided about a client.
type Latest struct {
	Region string `json:"region"`
	Edges  int    `json:"edges"` // edges that keep requests
	// Without are the edges that keep none.
	Without []string `json:"without,omitempty"`
	Silent  []string `json:"silent,omitempty"` // which could not be asked, and why
	// Since is the time from which nothing is missing.
	Since    time.Time       `json:"since,omitzero"`
	Share    float64         `json:"share,omitempty"` // share of clients whose requests are kept
	Requests []latestRequest `json:"requests"`
	Error    string          `json:"error,omitempty"`
}

// latestRequest is one request.
type latestRequest struct {
	Node string `json:"node"`
	adminapi.Recent
}

// Latests asks for the latest requests of a client.
type Latests struct {
	all   bool
	lines int
}

// Flags binds the fields to flags.
func (q *Latests) Flags(f *pflag.FlagSet) {
	f.BoolVar(&q.all, "all", false, "also what passed")
	f.IntVarP(&q.lines, "lines", "n", 50, "how many requests to show of each region")
}

func recentCommand(p *command.Program) *cobra.Command {
	var names []string
	var q Latests
	c := command.New("recent NETWORK", "show a client's recently refused requests", recentHelp, `  regionctl clients recent 203.0.113.7
  regionctl clients recent 203.0.113.0/24 --all --lines 500`,
		func(ctx context.Context, args []string) error {
			list, err := q.Ask(ctx, p, names, args[0])
			return command.ShowEach(p, list, err, (*Latest).write)
		})
	p.RegionFlag(c, &names)
	q.Flags(c.Flags())
	return c
}

// Ask asks all edges.
func (q *Latests) Ask(ctx context.Context, p *command.Program, names []string, network string) ([]*Latest, error) {
	n, err := clientlist.Parse(network)
	if err != nil {
		return nil, term.Misused("%w", err)
	}
	if q.lines < 1 || q.lines > 10_000 {
		return nil, term.Misused("--lines %d: must be from 1 to 10000", q.lines)
	}
	query := url.Values{"client": {n.String()}}
	if !q.all {
		query.Set("refused", "")
	}
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context, t *fleet.Target) (*Latest, error) { return recentOf(ctx, t, query, q.lines) }
	list, err := command.AskRegions(ctx, targets, ask, func(region, why string) *Latest {
		return &Latest{Region: region, Requests: []latestRequest{}, Error: why}
	})
	return list, cmp.Or(err, silentEdges(list))
}

func recentOf(ctx context.Context, t *fleet.Target, query url.Values, lines int) (*Latest, error) {
	nodes, answers, err := requests.AskRecent(ctx, t, query, func(int) int { return lines })
	if err != nil {
		return nil, err
	}
	l := &Latest{Region: t.Name, Requests: []latestRequest{}}
	var silent fleet.Reasons
	for i, a := range answers {
		id := nodes[i].ID
		switch {
		case requests.KeepsNone(a.Err):
			l.Without = append(l.Without, id)
			continue
		case a.Err != nil:
			silent.Add(id, fleet.Reason(a.Err))
			continue
		}
		l.Edges++
		l.Share = max(l.Share, a.Share)
		if a.Since.After(l.Since) {
			l.Since = a.Since
		}
		for line := range bytes.Lines(a.Lines) {
			r := latestRequest{Node: id}
			if err := json.Unmarshal(line, &r.Recent); err != nil {
				return nil, fmt.Errorf("node %s: is not an edge's answer: %w", term.Printable(id), err)
			}
			l.Requests = append(l.Requests, r)
		}
	}
	l.Silent = silent.Lines(fleet.CouldNotAsk)
	slices.SortStableFunc(l.Requests, func(a, b latestRequest) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Node, b.Node)) })
	l.Requests = l.Requests[:min(len(l.Requests), lines)]
	return l, nil
}

func (l *Latest) write(b *bytes.Buffer, s term.Style) {
	switch {
	case l.Error != "":
		return // it is on standard error
	case l.Edges == 0 && len(l.Without) == 0:
		fmt.Fprintf(b, "%s: no edge answered\n", s.Bold(l.Region))
		return
	case l.Edges == 0:
		who := "its edges"
		if len(l.Silent) > 0 {
			who = term.OrDashes(l.Without)
		}
		fmt.Fprintf(b, "%s: %s keep no requests; set recent.keep in their configuration\n", s.Bold(l.Region), who)
		return
	case len(l.Requests) == 0:
		fmt.Fprintf(b, "%s: nothing since %s\n", s.Bold(l.Region), term.Stamp(l.Since))
	default:
		fmt.Fprintf(b, "%s, since %s:\n", s.Bold(l.Region), term.Stamp(l.Since))
		t := term.Table{Indent: "  "}
		t.Row("TIME", "EDGE", "VERDICT", "STATUS", "BY", "CLIENT", "REQUEST")
		for i := range l.Requests {
			r := &l.Requests[i]
			verdict, status := s.Red(term.Printable(r.Verdict)), "-"
			if r.Verdict == "pass" {
				verdict = s.Green(r.Verdict)
			}
			if r.Status > 0 {
				status = strconv.Itoa(r.Status)
			}
			t.Row(r.Time.UTC().Format("15:04:05.000"), term.Printable(r.Node), verdict, status, term.OrDash(r.Rules), term.Printable(r.Client),
				term.Clip(term.Printable(r.Method+" "+r.Host+r.Target), 80))
		}
		t.Print(b)
	}
	if l.Share > 0 && l.Share < 1 {
		fmt.Fprintf(b, "  edges keep the requests of %s of the clients\n", term.Percent(l.Share))
	}
	if len(l.Without) > 0 {
		fmt.Fprintf(b, "  %s keep none: set recent.keep\n", term.OrDashes(l.Without))
	}
}

// silentEdges says which edges did not answer, or returns nil.
func silentEdges(list []*Latest) error {
	var silent []string
	for _, l := range list {
		for _, why := range l.Silent {
			silent = append(silent, l.Region+": "+why)
		}
	}
	if len(silent) == 0 {
		return nil
	}
	return term.Partial("not all edges answered:\n%s", strings.Join(silent, "\n"))
}
