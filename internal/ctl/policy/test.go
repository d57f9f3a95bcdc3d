package policy

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/replay"
	"github.com/weir-edge/weir/internal/ctl/requests"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/internal/policy"
)

const testHelp = `Replays a log of requests against a behavior policy, in memory and by the log's own times,
and shows which clients and routes would have been in which tier, since when, and which
signals put them there. Nothing is sent anywhere.

The policy is the one in --policy; without it, the active one of the fleet file's regions, and
without a fleet file the default one. It is applied as if enforced: requests that a tier
refuses are not evaluated further.

TRAFFIC is a log with a request a line, plain or compressed with gzip, or - for standard
input: the access log of nginx or Apache (Combined Log Format), or JSON lines such as

  {"time":"2026-11-20T10:00:00Z","client":"203.0.113.7","path":"/","status":404}

Log the status, and the headers that the policy names under signals.presence, in JSON as
"headers":{"Accept":["*/*"]}: what no line carries is not evaluated, and the notes say so.
Nor are denials: a log does not contain Retry-After. An answer of 429 counts as a refusal. One node
sees a part of the requests; the merged log of all nodes shows what a node would see that
received them all.`

// testOptions are the flags of policy test.
type testOptions struct {
	names  []string
	file   string
	format string
	replay replay.Config
}

func testCommand(p *command.Program) *cobra.Command {
	var o testOptions
	c := command.New("test TRAFFIC", "replay a log: which clients would have been in which tier?", testHelp,
		`  regionctl policy test access.log.gz
  regionctl policy test access.log --policy policy.yaml
  zcat access.log.*.gz | regionctl policy test - --top 100 -o json`,
		func(ctx context.Context, args []string) error { return test(ctx, p, args[0], &o) })
	p.RegionFlag(c, &o.names)
	f := c.Flags()
	f.StringVar(&o.file, "policy", "", "the policy in this `FILE`, not the active one")
	f.StringVar(&o.format, "format", "auto", "`FORMAT` of the log: auto, json or combined")
	f.StringVar(&o.replay.Host, "host", "", "the `HOST` of lines that name none")
	f.BoolVar(&o.replay.Trusted, "trusted", false, "the requests came through a trusted proxy: exempt those whose headers the policy exempts")
	f.IntVar(&o.replay.Top, "top", 20, "how many clients and routes to list")
	command.CompleteWords(c, "format", "auto", "json", "combined")
	command.CompleteFiles(c, "policy", "yaml", "yml", "json")
	return c
}

func test(ctx context.Context, p *command.Program, traffic string, o *testOptions) (err error) {
	config := o.replay
	if config.Format, err = replay.ParseFormat(o.format); err != nil {
		return term.Misused("--%w", err)
	}
	made, err := toTest(ctx, p, o)
	if err != nil {
		return err
	}
	in, size, err := p.Input(traffic).Open()
	if err != nil {
		return err
	}
	defer in.Close() // only read
	bar := p.Progress()
	if p.Live {
		config.Progress = func(bytes, lines int64) { bar.Update([]string{requests.ProgressBar(bytes, size, lines)}) }
	}
	r, err := replay.RunPolicy(ctx, made, config, in)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return term.Misused("%s: %w", traffic, err)
	}
	return p.Show(r, func(b *bytes.Buffer, s term.Style) { writeTested(b, s, r) })
}

// toTest returns the policy that the flags name.
func toTest(ctx context.Context, p *command.Program, o *testOptions) (*policy.Policy, error) {
	if o.file != "" {
		d, err := p.ReadDocument(kinds.Policy, p.Input(o.file))
		if err != nil {
			return nil, err
		}
		return d.Body.(*kinds.PolicyBook).Made, nil
	}
	if p.FleetFile == "" && len(o.names) == 0 {
		p.Say("no fleet file, so this is the default policy; --policy FILE tests another")
		return policy.Parse([]byte(policy.Example))
	}
	d, err := versions.ActiveDocument(ctx, p, kinds.Policy, o.names, "policy", "name one with --policy")
	if err != nil {
		return nil, err
	}
	return d.Body.(*kinds.PolicyBook).Made, nil
}

func writeTested(b *bytes.Buffer, s term.Style, r *replay.PolicyReport) {
	fmt.Fprintf(b, "%s of %s from %s to %s, policy %s\n", term.Plural(int(r.Requests), "request"), term.Plural(r.Clients, "client"),
		term.Stamp(r.From), term.Stamp(r.To), r.Version)
	if r.Skipped > 0 {
		fmt.Fprintf(b, "%s skipped; the first: line %d: %s\n", term.Plural(int(r.Skipped), "line"), r.Skips[0].Line, term.Printable(r.Skips[0].Reason))
	}
	if r.Exempt > 0 {
		fmt.Fprintf(b, "%s exempt\n", term.Plural(int(r.Exempt), "request"))
	}
	b.WriteByte('\n')
	t := term.Table{}
	t.Row("TIER", "CLIENTS", "ROUTES", "REQUESTS")
	for i := range r.Tiers {
		tier := &r.Tiers[i]
		t.Row(tier.Tier, strconv.Itoa(tier.Clients), strconv.Itoa(tier.Routes), strconv.FormatInt(tier.Requests, 10))
	}
	t.Print(b)
	if len(r.Subjects) > 0 {
		b.WriteByte('\n')
		t := term.Table{}
		t.Row("SUBJECT", "TIER", "SINCE", "LINE", "REQUESTS", "WHY")
		for i := range r.Subjects {
			u := &r.Subjects[i]
			why := fleet.Map(u.Signals, func(s adminapi.BehaviorSignal) string {
				return fmt.Sprintf("%s %.0f of %.0f", s.Signal, s.Value, s.Threshold)
			})
			t.Row(term.Printable(u.Subject), s.Red(u.Tier), u.At.Format(time.RFC3339), strconv.FormatInt(u.Line, 10), strconv.FormatInt(u.Requests, 10), strings.Join(why, ", "))
		}
		t.Print(b)
	}
	b.WriteString("\nnotes\n")
	for _, note := range r.Notes {
		fmt.Fprintf(b, "  - %s\n", note)
	}
}
