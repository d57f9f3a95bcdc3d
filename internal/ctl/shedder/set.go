package shedder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/staging"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/field"
)

// longestFor bounds temporary settings: they may last over a long weekend.
const longestFor = 7 * 24 * time.Hour

const setHelp = `Activates new shedder settings in all regions of the fleet file, or in those of
--region: the settings in FILE, or the active ones with other values for some FIELDs. It
validates them, shows the difference, asks for confirmation (--yes skips that, and is
required without a terminal), and waits until every registered edge runs them. The steps
are those of regionctl rules apply: if a region cannot be reached, nothing changes
anywhere (--partial continues without it); if two people change the settings at the same
time, the second learns of the first (status 4); and running the same command again
completes a change that ended early (status 3).

With --for the settings are temporary: when that time is over, every edge returns to the
previous ones automatically, even while Consul or this program is unreachable. Temporary
settings may replace temporary settings; the edges still return to the permanent ones.
While temporary settings are active, FIELD=VALUE needs --for, because without it they
would all become permanent; a whole FILE does not. regionctl undo ends them
immediately.

A FIELD is a path in the document and a VALUE what it holds; classes, upstream groups and
candidates go by their names. Each region starts from its own active settings, so regions
may end up with different documents. Where nothing is published, it starts from the
built-in defaults, not from the edges' configuration.

` + staging.WavesOfSettings + `

FILE may be - for standard input; --yes is then required.`

func setCommand(p *command.Program) *cobra.Command {
	c := &change.Change{Program: p}
	cmd := command.New("set FILE|FIELD=VALUE…", "activate other settings and wait for every edge", setHelp,
		`  regionctl shedder set enabled=false --for 1h -m "kill switch, INC-1234"
  regionctl shedder set signals.inflight.high=400 signals.inflight.low=100
  regionctl shedder set classes.read.max_in_flight=500 --region eu-west
  regionctl shedder set candidates.stricter.target=0.6
  regionctl shedder set 'classes.critical.match=[{paths: ["/checkout"]}]' --for 1h
  regionctl shedder set shedder.yaml --for 30m`,
		func(ctx context.Context, args []string) error {
			if args[0] == "-" && !c.Yes {
				return term.Misused("the document comes from standard input, which leaves no terminal to prompt on; pass --yes")
			}
			r, err := Set(ctx, c, args)
			return command.Show(p, r, err, (*change.Report).Write)
		})
	SetFlags(c, cmd.Flags())
	c.Completions(cmd, p)
	command.CompleteWords(cmd, "for", "15m", "30m", "1h", "4h", "24h")
	cmd.ValidArgsFunction = completeSetting
	return cmd
}

// completeSetting completes the first argument with files, and all of them with fields.
func completeSetting(_ *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && !strings.Contains(args[0], "=") || strings.Contains(text, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for _, f := range (&kinds.Settings{Document: shedding.Defaults()}).Fields() {
		if strings.HasPrefix(f.Name, text) {
			words = append(words, f.Name+"=")
		}
	}
	if len(args) == 0 && len(words) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return words, cobra.ShellCompDirectiveNoSpace
}

func SetFlags(c *change.Change, f *pflag.FlagSet) {
	c.Flags(f)
	c.EdgeFlags(f)
	c.DocumentFlags(f)
	command.LifetimeFlag(f, &c.Lasts, longestFor, "how long the settings last; then the previous ones return (default: until the next change)")
	c.Staging.WaveFlags(f)
}

// Set activates the settings in one file, or the active ones with other values for some fields.
func Set(ctx context.Context, c *change.Change, args []string) (_ *change.Report, err error) {
	if err := c.CheckFlags(c.Program); err != nil {
		return nil, err
	}
	if c.Staging.Staged() && c.Lasts > 0 {
		return nil, term.Misused("--for and --waves: choose one; temporary settings end everywhere at once")
	}
	assignments := fleet.Filter(args, func(arg string) bool { return strings.Contains(arg, "=") })
	switch {
	case len(assignments) == len(args):
		c.AimAt = assign(c, args)
	case len(args) > 1:
		return nil, term.Misused("pass either one FILE, or any number of FIELD=VALUE (got %q)", args)
	default:
		if c.Doc, err = c.Program.ReadDocument(kinds.Shedder, c.Program.Input(args[0])); err != nil {
			return nil, err
		}
	}
	return c.RunIn(ctx, kinds.Shedder)
}

// assign derives each region's document from its active one.
func assign(c *change.Change, assignments []string) func(context.Context, *fleet.Target, *versions.Step) error {
	var warned sync.Map // warnings already shown: most regions have the same
	warn := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if _, known := warned.LoadOrStore(text, true); !known {
			c.Program.Warn("%s", text)
		}
	}
	return func(_ context.Context, t *fleet.Target, s *versions.Step) error {
		what := strings.Join(assignments, " ")
		base := shedding.Defaults()
		switch {
		case s.From.Damage != nil:
			return term.Failed("nothing was changed: %s: %w; set a whole FILE", t.Name, s.From.Damage)
		case s.From.Until() != nil && c.Lasts == 0:
			return term.Misused("%s: %s is active until %s, and without --for it would last with %s; give --for, or end it first with regionctl undo shedder (nothing was changed)",
				t.Name, s.From.Version(), report.Until(s.From.Pointer), what)
		case s.From.State == fleet.Active:
			base = s.From.Document.Body.(*kinds.Settings).Document
		default:
			what += " on top of the built-in defaults"
		}
		made, err := SetAll(base, assignments)
		if err != nil {
			return badSettings(t, base, assignments, err)
		}
		text, err := made.YAML()
		if err != nil {
			return fmt.Errorf("nothing was changed: %s: %w", t.Name, err)
		}
		if s.Next, err = fleet.ParseDocument(kinds.Shedder, what, text); err != nil {
			return badSettings(t, base, assignments, err)
		}
		s.Next.Made = true
		if s.From.Until() != nil {
			warn("the new settings start from the temporary ones that are active until %s; what they keep of those will last as long", report.Until(s.From.Pointer))
		}
		before := base.Warnings()
		for _, w := range made.Warnings() {
			if !slices.Contains(before, w) {
				warn("%s", w)
			}
		}
		return nil
	}
}

// SetAll makes all assignments. Some are valid only after others, as when start and target
// both fall, so failed ones are retried after the rest.
func SetAll(d *shedding.Document, assignments []string) (*shedding.Document, error) {
	for len(assignments) > 0 {
		var left []string
		var errs []error
		for _, a := range assignments {
			field, value, _ := strings.Cut(a, "=")
			next, err := shedding.Set(d, field, value)
			if err != nil {
				left, errs = append(left, a), append(errs, err)
				continue
			}
			d = next
		}
		if len(left) == len(assignments) {
			return nil, errors.Join(errs...)
		}
		assignments = left
	}
	return d, nil
}

func badSettings(t *fleet.Target, base *shedding.Document, assignments []string, err error) error {
	found := field.All(err)
	for _, f := range found {
		for i, class := range base.Classes {
			if rest, of := strings.CutPrefix(f.Path, field.Index("classes", i)+"."); of {
				f.Path = "classes." + class.Name + "." + rest // as it was assigned
			}
		}
	}
	text := strings.ReplaceAll(found.Error(), "\n", "\n  ")
	return term.Misused("%s: %s has %s (nothing was changed):\n  %s", t.Name, strings.Join(assignments, " "), term.Plural(len(found), "problem"), text)
}
