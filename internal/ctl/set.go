package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/shedding"
)

// longestFor is how long something may be in force for a time: over a long weekend.
const longestFor = 7 * 24 * time.Hour

const setHelp = `Puts settings of the shedder in force in all regions of the fleet file, or in those of
--region: those of FILE, or what is in force with other values for some FIELDs. It
validates them, shows the difference, asks (--yes does not), and waits until every
registered edge runs them, in the same steps as regionctl rules apply: nothing changes
anywhere if a region cannot be reached (--partial goes on without it), of two people who
change the settings at the same time one is told about the other (status 4), and running
the same command again finishes what ended early (status 3).

With --for they are in force for that time only. Then what was in force before returns
by itself on every edge, also when Consul or this program is away. Settings that are
for a time may be replaced by others that are: what was in force before them returns.
While such settings are in force, FIELD=VALUE needs --for, for without it all of them
would last; a whole FILE does not. regionctl shedder rollback ends them at once.

A FIELD is a path as in the document, a VALUE what it holds there: a class, an upstream
group or a candidate goes by its name. Each region starts from what it has in force, so
they may end with different documents. Where nothing is published, that is the built-in
defaults, not what the configuration of the edges says.

FILE may be - for standard input; --yes is needed then.`

func (p *program) setCommand() *cobra.Command {
	var names []string
	var by string
	c := &change{p: p}
	cmd := command("set FILE|FIELD=VALUE…", "put other settings in force and wait for every edge", setHelp,
		`  regionctl shedder set enabled=false --for 1h -m "kill switch, INC-1234"
  regionctl shedder set signals.inflight.high=400 signals.inflight.low=100
  regionctl shedder set classes.read.max_in_flight=500 --region eu-west
  regionctl shedder set candidates.stricter.target=0.6
  regionctl shedder set shedder.yaml --for 30m`,
		func(ctx context.Context, args []string) error {
			if err := c.checkFlags(by); err != nil {
				return err
			}
			return c.set(ctx, names, args)
		})
	p.regionFlag(cmd, &names)
	c.flags(cmd, &by)
	f := cmd.Flags()
	f.StringVarP(&c.message, "message", "m", "", "`TEXT` for the history: why")
	f.DurationVar(&c.lasts, "for", 0, "for how long; then what was in force before returns (default: until the next change)")
	complete(cmd, "for", "15m", "30m", "1h", "4h", "24h")
	cmd.ValidArgsFunction = completeSetting
	return cmd
}

// completeSetting offers files as the first argument, and the fields.
func completeSetting(_ *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && !strings.Contains(args[0], "=") || strings.Contains(text, "=") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for _, f := range (&settings{shedding.Defaults()}).fields() {
		if strings.HasPrefix(f.name, text) {
			words = append(words, f.name+"=")
		}
	}
	if len(args) == 0 && len(words) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return words, cobra.ShellCompDirectiveNoSpace
}

func (c *change) set(ctx context.Context, names, args []string) (err error) {
	if c.lasts < 0 || c.lasts > longestFor || c.lasts > 0 && c.lasts < time.Second {
		return misused("--for %s: must be between 1s and %s", c.lasts, short(longestFor))
	}
	assignments := filter(args, func(arg string) bool { return strings.Contains(arg, "=") })
	switch {
	case len(assignments) == len(args):
		c.aimAt = c.assign(args)
	case len(args) > 1:
		return misused("give either one FILE, or FIELD=VALUE as often as you like (got %q)", args)
	case args[0] == "-" && !c.yes:
		return misused("the document comes from standard input, so nobody can be asked; give --yes")
	default:
		if c.doc, err = c.p.readDocument(shedderKind, args[0]); err != nil {
			return err
		}
	}
	targets, closeAll, err := c.p.targetsOf(shedderKind, names)
	if err != nil {
		return err
	}
	defer closeAll()
	return c.run(ctx, targets, nil)
}

// assign makes the document of a region out of the one that it has in force.
func (c *change) assign(assignments []string) func(context.Context, *target, *aim) error {
	return func(_ context.Context, t *target, a *aim) error {
		what := strings.Join(assignments, " ")
		base := shedding.Defaults()
		switch {
		case a.broken != nil:
			return failed("nothing was changed: %s: %w; set a whole FILE", t.name, a.broken)
		case a.until() != nil && c.lasts == 0:
			return misused("%s: %s is in force until %s, and without --for it would last with %s; give --for, or end it first with regionctl shedder rollback (nothing was changed)",
				t.name, a.version(), until(a.pointer), what)
		case a.running != nil:
			base = a.running.body.(*settings).Document
		default:
			what += " on top of the built-in defaults"
		}
		made, err := setAll(base, assignments)
		if err != nil {
			return badSettings(t, assignments, err)
		}
		text, err := made.YAML()
		if err != nil {
			return fmt.Errorf("nothing was changed: %s: %w", t.name, err)
		}
		if a.next, err = parseDocument(shedderKind, what, text); err != nil {
			return badSettings(t, assignments, err)
		}
		a.next.made = true
		return nil
	}
}

// setAll makes all assignments. One may be good only after another, as when start and
// target both fall, so those that are not are tried again after those that are.
func setAll(d *shedding.Document, assignments []string) (*shedding.Document, error) {
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

func badSettings(t *target, assignments []string, err error) error {
	var lines strings.Builder
	found := problems(err)
	for _, e := range found {
		lines.WriteString("\n  " + e.String())
	}
	return misused("%s: %s has %s (nothing was changed):%s", t.name, strings.Join(assignments, " "), plural(len(found), "problem"), lines.String())
}
