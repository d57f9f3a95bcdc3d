package versions

import (
	"bytes"
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const DiffHelp = `Shows what would change if FILE were applied: for each rule, which fields get which
new value. Rules are compared by what they mean, so comments, the order of rules and
defaults that are written out make no difference.

Regions that run the same version are shown together. Nothing is changed.

A rule whose key, algorithm or storage changes counts from zero; one whose limit or
window changes keeps what was counted. The difference says which ones start over.

Exits with 0 whether there is a difference or not; with --exit-code, as with git, 1
says that there is one.`

const diffExamples = `  regionctl rules diff rules.yaml
  regionctl rules diff rules.yaml --region eu-west
  regionctl rules diff --from 3f2a0c1b9d4e --to 77aa01e2c3d4
  regionctl rules diff rules.yaml --exit-code >/dev/null || echo "not applied yet"`

const diffVersionsHelp = `

With --from, FILE is compared with that version instead. Without FILE, it is --to, which is
the active version by default, that is compared with --from: so --from REPLACED --to VERSION
shows what a change of the history did. --from none compares with nothing.`

func DiffCommand(p *command.Program, k *fleet.Kind, help string) *cobra.Command {
	var names []string
	var from, to string
	var exitCode bool
	c := command.New("diff [FILE]", "show what differs from what each region runs, or between versions", help+diffVersionsHelp, k.Reworded(diffExamples),
		func(ctx context.Context, args []string) error {
			var in *command.Input
			switch {
			case len(args) == 0 && from == "":
				return term.Misused("FILE is missing; name a document, or versions of the history with --from and --to")
			case len(args) > 0 && to != "":
				return term.Misused("--to: %s is already what is compared; leave one of them out", args[0])
			case len(args) > 0:
				in = new(p.Input(args[0]))
			}
			if from != "" {
				r, err := Compare(ctx, p, k, names, from, to, in)
				err = command.Show(p, r, err, (*VersionsReport).write)
				return cmp.Or(err, differing(exitCode && err == nil && !r.Identical))
			}
			r, err := Diff(ctx, p, k, names, *in)
			err = command.Show(p, r, err, (*DiffReport).write)
			return cmp.Or(err, differing(exitCode && err == nil && r.Different))
		})
	p.RegionFlag(c, &names)
	c.Flags().StringVar(&from, "from", "", "compare with this `VERSION`, or with none")
	c.Flags().StringVar(&to, "to", "", "compare this `VERSION` instead of FILE (default: the active one)")
	c.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 if anything differs")
	for _, flag := range []string{"from", "to"} {
		_ = c.RegisterFlagCompletionFunc(flag, p.CompleteVersions(k, &names)) // the flags are known
	}
	c.ValidArgsFunction = command.CompleteDocument
	return c
}

// Diff returns what a document would change.
func Diff(ctx context.Context, p *command.Program, k *fleet.Kind, names []string, in command.Input) (*DiffReport, error) {
	d, err := p.ReadDocument(k, in)
	if err != nil {
		return nil, err
	}
	targets, err := p.Targets(k, names)
	if err != nil {
		return nil, err
	}
	answers := fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (*Step, error) {
		s, err := fleet.Look(ctx, t)
		return &Step{From: s, Next: d}, err
	})
	r := &DiffReport{Version: d.Version(), Groups: GroupByVersion(answers)}
	if book, ok := d.Body.(*kinds.RuleBook); ok {
		r.Rules = new(len(book.Written))
	}
	for _, g := range r.Groups {
		r.Different = r.Different || !g.Identical
	}
	var there []*fleet.Target
	for _, a := range answers {
		if a.Err == nil {
			there = append(there, a.Target)
		}
	}
	for _, o := range Unread(ctx, p, there) {
		p.Warn("%s", o.Line)
	}
	return r, command.Unanswered(answers)
}

func (r *DiffReport) write(b *bytes.Buffer, s term.Style) { WriteGroups(b, s, r.Groups, 0) }

// differing returns the exit status that --exit-code requires for a difference.
func differing(different bool) error {
	if different {
		return &term.Failure{Status: term.StatusFailed}
	}
	return nil
}

// DiffReport is what diff prints with -o json.
type DiffReport struct {
	Version   string  `json:"version"`
	Rules     *int    `json:"rules,omitempty"` // of a rule document
	Different bool    `json:"different"`
	Groups    []Group `json:"groups"`
}
