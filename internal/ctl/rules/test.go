package rules

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/replay"
	"github.com/weir-edge/weir/internal/ctl/requests"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

const testHelp = `Replays a log of requests against FILE, in memory and by the log's own times, and shows
which clients would have been limited, and by which rule. Nothing is sent anywhere.

With a fleet file, the document is compared with the active one: what is newly limited,
and what no longer is. --against compares with another file instead.

TRAFFIC is a log with a request a line, plain or compressed with gzip, or - for standard
input: the access log of nginx or Apache (Combined or Common Log Format), or JSON lines
such as

  {"time":"2026-11-20T10:00:00Z","client":"203.0.113.7","method":"GET","path":"/"}

Counters are shared by the edges of a region, so use the merged log of all of them. A
log shows what clients did under the rules of that time, not how they would
have reacted to a refusal.

Instead of a log, --from-nodes takes the requests that the edges of one region decided in
the last minutes. They keep them in memory, without secrets, if recent.keep of their
configuration says how many.`

// testOptions are the flags of rules test.
type testOptions struct {
	names     []string
	against   string
	format    string
	fromNodes bool
	replay    replay.Config
}

// Tested is what a replay found and, for requests of edges, where they came from.
type Tested struct {
	*replay.Report
	Sample *requests.Recent `json:"sample,omitempty"`
}

var pathModes = []string{"match_all", "strict", "normalized"}

func testCommand(p *command.Program) *cobra.Command {
	var o testOptions
	c := command.New("test FILE [TRAFFIC]", "replay a log: which clients would have been limited?", testHelp,
		`  regionctl rules test rules.yaml access.log.gz
  regionctl rules test rules.yaml access.log --against yesterday.yaml
  regionctl rules test rules.yaml --from-nodes --region eu-west
  zcat access.log.*.gz | regionctl rules test rules.yaml - --host shop.example.com -o json`,
		func(ctx context.Context, args []string) error {
			return test(ctx, p, args[0], append(args[1:], "")[0], &o)
		})
	p.RegionFlag(c, &o.names)
	f := c.Flags()
	f.StringVar(&o.against, "against", "", "compare with the document in this `FILE`, not with the active one")
	f.BoolVar(&o.fromNodes, "from-nodes", false, "replay what the edges of one region recently decided, instead of a log")
	f.StringVar(&o.format, "format", "auto", "`FORMAT` of the log: auto, json or combined")
	f.StringVar(&o.replay.Host, "host", "", "the `HOST` of lines that name none")
	f.BoolVar(&o.replay.Trusted, "trusted", false, "the requests came through a trusted proxy: believe their cost and tier headers")
	f.StringVar(&o.replay.TierHeader, "tier-header", "", "the `HEADER` that holds the tier, as in the edge's configuration")
	f.StringVar(&o.replay.Paths, "paths", "match_all", "server.paths of the edges, a `MODE`: match_all, strict or normalized")
	f.IntVar(&o.replay.Top, "top", 10, "how many clients to list for each rule")
	command.CompleteWords(c, "format", "auto", "json", "combined")
	command.CompleteWords(c, "paths", pathModes...)
	command.CompleteFiles(c, "against", "yaml", "yml", "json")
	c.ValidArgsFunction = command.CompleteDocument
	return c
}

func test(ctx context.Context, p *command.Program, file, traffic string, o *testOptions) error {
	format, err := replay.ParseFormat(o.format)
	if err != nil {
		return term.Misused("--%w", err)
	}
	if !slices.Contains(pathModes, o.replay.Paths) {
		return term.Misused("--paths %q: must be match_all, strict or normalized, as server.paths of the edges", o.replay.Paths)
	}
	switch {
	case traffic == "" && !o.fromNodes:
		return term.Misused("TRAFFIC is missing; name a log, - for standard input, or pass --from-nodes; see regionctl rules test --help")
	case traffic != "" && o.fromNodes:
		return term.Misused("--from-nodes takes the place of TRAFFIC; leave out %q", traffic)
	case file == "-" && traffic == "-":
		return term.Misused("FILE and TRAFFIC cannot both be standard input")
	case o.against == "-":
		return term.Misused("--against must name a file")
	case o.against != "" && len(o.names) > 0 && !o.fromNodes:
		return term.Misused("--against and --region name different documents to compare with; pass one of them")
	}
	candidate, err := p.ReadDocument(kinds.Rules, file)
	if err != nil {
		return err
	}
	config := o.replay
	config.Candidate, config.Format = kinds.RulesOf(candidate).Set, format
	if config.Running, err = comparedWith(ctx, p, o); err != nil {
		return err
	}
	in, size, from, err := requestsToTest(ctx, p, traffic, o)
	if err != nil {
		return err
	}
	defer in.Close() // only read
	bar := p.Progress()
	if p.Live {
		config.Progress = func(bytes, lines int64) { bar.Update([]string{requests.ProgressBar(bytes, size, lines)}) }
	}
	report, err := replay.Run(ctx, config, in)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		return term.Misused("%s: %w", command.InputName(cmp.Or(traffic, "the requests of the edges")), err)
	}
	if from != nil {
		report.Notes = append(from.Notes(), report.Notes...)
	}
	if p.WantsJSON() {
		err = p.WriteJSON(Tested{report, from})
	} else {
		var text strings.Builder
		if err = report.WriteText(&text); err == nil {
			_, err = io.WriteString(p.Out, term.Clean(text.String()))
		}
	}
	return cmp.Or(err, from.Partly())
}

// requestsToTest opens what is to be replayed.
func requestsToTest(ctx context.Context, p *command.Program, name string, o *testOptions) (in io.ReadCloser, size int64, from *requests.Recent, err error) {
	if !o.fromNodes {
		in, size, err = requests.OpenLog(p, name)
		return in, size, nil, err
	}
	if from, err = requests.TakeSample(ctx, p, o.names); err != nil {
		return nil, 0, nil, err
	}
	p.Say("%s of %s since %s", term.Plural(len(from.Lines), "request"), term.Plural(from.Edges, "edge"), term.Stamp(from.Since))
	return from.Reader(), from.Size(), from, nil
}

// comparedWith returns the document that the new one is compared with, or nil.
func comparedWith(ctx context.Context, p *command.Program, o *testOptions) (*rules.Set, error) {
	if o.against != "" {
		d, err := p.ReadDocument(kinds.Rules, o.against)
		if err != nil {
			return nil, err
		}
		return kinds.RulesOf(d).Set, nil
	}
	if p.FleetFile == "" && len(o.names) == 0 {
		p.Say("no fleet file, so there is no active document to compare with; --against FILE compares with another")
		return nil, nil
	}
	d, err := versions.ActiveDocument(ctx, p, kinds.Rules, o.names, "document", "leave --fleet and WEIR_FLEET out, or name a document with --against")
	if err != nil {
		return nil, err
	}
	return kinds.RulesOf(d).Set, nil
}
