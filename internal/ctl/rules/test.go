package rules

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

// Trial is a replay of requests against a document.
type Trial struct {
	Document, Log command.Input
	Regions       []string
	FromNodes     bool // instead of Log
	against       string
	format        string
	replay        replay.Config
}

// Tested is what a replay found and, for requests of edges, where they came from.
type Tested struct {
	*replay.Report
	Sample *requests.Recent `json:"sample,omitempty"`
}

var pathModes = []string{"match_all", "strict", "normalized"}

func testCommand(p *command.Program) *cobra.Command {
	var o Trial
	c := command.New("test FILE [TRAFFIC]", "replay a log: which clients would have been limited?", testHelp,
		`  regionctl rules test rules.yaml access.log.gz
  regionctl rules test rules.yaml access.log --against yesterday.yaml
  regionctl rules test rules.yaml --from-nodes --region eu-west
  zcat access.log.*.gz | regionctl rules test rules.yaml - --host shop.example.com -o json`,
		func(ctx context.Context, args []string) error {
			if o.Document = p.Input(args[0]); len(args) > 1 {
				o.Log = p.Input(args[1])
			}
			if o.Document.From != nil && o.Log.From != nil {
				return term.Misused("FILE and TRAFFIC cannot both be standard input")
			}
			v, err := o.Run(ctx, p)
			return command.Show(p, v, err, (*Tested).write)
		})
	p.RegionFlag(c, &o.Regions)
	o.Flags(c.Flags())
	command.CompleteWords(c, "format", "auto", "json", "combined")
	command.CompleteWords(c, "paths", pathModes...)
	command.CompleteFiles(c, "against", "yaml", "yml", "json")
	c.ValidArgsFunction = command.CompleteDocument
	return c
}

// Flags binds the fields to flags.
func (o *Trial) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.against, "against", "", "compare with the document in this `FILE`, not with the active one")
	f.BoolVar(&o.FromNodes, "from-nodes", false, "replay what the edges of one region recently decided, instead of a log")
	f.StringVar(&o.format, "format", "auto", "`FORMAT` of the log: auto, json or combined")
	f.StringVar(&o.replay.Host, "host", "", "the `HOST` of lines that name none")
	f.BoolVar(&o.replay.Trusted, "trusted", false, "the requests came through a trusted proxy: believe their cost and tier headers")
	f.StringVar(&o.replay.TierHeader, "tier-header", "", "the `HEADER` that holds the tier, as in the edge's configuration")
	f.StringVar(&o.replay.Paths, "paths", "match_all", "server.paths of the edges, a `MODE`: match_all, strict or normalized")
	f.IntVar(&o.replay.Top, "top", 10, "how many clients to list for each rule")
}

// Run replays the requests.
func (o *Trial) Run(ctx context.Context, p *command.Program) (*Tested, error) {
	format, err := replay.ParseFormat(o.format)
	if err != nil {
		return nil, term.Misused("--%w", err)
	}
	if !slices.Contains(pathModes, o.replay.Paths) {
		return nil, term.Misused("--paths %q: must be match_all, strict or normalized, as server.paths of the edges", o.replay.Paths)
	}
	switch {
	case o.Log.Name == "" && !o.FromNodes:
		return nil, term.Misused("TRAFFIC is missing; name a log, - for standard input, or pass --from-nodes; see regionctl rules test --help")
	case o.Log.Name != "" && o.FromNodes:
		return nil, term.Misused("--from-nodes takes the place of TRAFFIC; leave out %q", o.Log.Name)
	case o.against == "-":
		return nil, term.Misused("--against must name a file")
	case o.against != "" && len(o.Regions) > 0 && !o.FromNodes:
		return nil, term.Misused("--against and --region name different documents to compare with; pass one of them")
	}
	candidate, err := p.ReadDocument(kinds.Rules, o.Document)
	if err != nil {
		return nil, err
	}
	config := o.replay
	config.Candidate, config.Format = kinds.RulesOf(candidate).Set, format
	if config.Running, err = o.comparedWith(ctx, p); err != nil {
		return nil, err
	}
	in, size, from, err := o.requests(ctx, p)
	if err != nil {
		return nil, err
	}
	defer in.Close() // only read
	bar := p.Progress()
	if p.Live {
		config.Progress = func(bytes, lines int64) { bar.Update([]string{requests.ProgressBar(bytes, size, lines)}) }
	}
	report, err := replay.Run(ctx, config, in)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		return nil, term.Misused("%s: %w", cmp.Or(o.Log.Name, "the requests of the edges"), err)
	}
	if from != nil {
		report.Notes = append(from.Notes(), report.Notes...)
	}
	return &Tested{report, from}, from.Partly()
}

func (v *Tested) write(b *bytes.Buffer, _ term.Style) {
	var text strings.Builder
	_ = v.WriteText(&text) // a builder takes everything
	b.WriteString(term.Clean(text.String()))
}

// requests opens what is to be replayed.
func (o *Trial) requests(ctx context.Context, p *command.Program) (in io.ReadCloser, size int64, from *requests.Recent, err error) {
	if !o.FromNodes {
		in, size, err = o.Log.Open()
		return in, size, nil, err
	}
	if from, err = requests.TakeSample(ctx, p, o.Regions); err != nil {
		return nil, 0, nil, err
	}
	p.Say("%s of %s since %s", term.Plural(len(from.Lines), "request"), term.Plural(from.Edges, "edge"), term.Stamp(from.Since))
	return from.Reader(), from.Size(), from, nil
}

// comparedWith returns the document that the new one is compared with, or nil.
func (o *Trial) comparedWith(ctx context.Context, p *command.Program) (*rules.Set, error) {
	if o.against != "" {
		d, err := p.ReadDocument(kinds.Rules, p.Input(o.against))
		if err != nil {
			return nil, err
		}
		return kinds.RulesOf(d).Set, nil
	}
	if p.FleetFile == "" && len(o.Regions) == 0 {
		p.Say("no fleet file, so there is no active document to compare with; --against FILE compares with another")
		return nil, nil
	}
	d, err := versions.ActiveDocument(ctx, p, kinds.Rules, o.Regions, "document", "leave --fleet and WEIR_FLEET out, or name a document with --against")
	if err != nil {
		return nil, err
	}
	return kinds.RulesOf(d).Set, nil
}
