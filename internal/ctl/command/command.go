package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/sign"
)

// instead names the commands that do what these would, were they like those of rules.
var instead = map[string]string{
	"regionctl shedder apply":   "regionctl shedder set FILE",
	"regionctl shedder diff":    "regionctl shedder set FILE, which shows the difference and asks",
	"regionctl shedder status":  "regionctl shedder show --live",
	"regionctl topology status": "regionctl topology history, or regionctl status",

	"regionctl rules rollback":    "regionctl undo rules --to VERSION",
	"regionctl shedder rollback":  "regionctl undo shedder --to VERSION",
	"regionctl policy rollback":   "regionctl undo policy --to VERSION",
	"regionctl topology rollback": "regionctl undo topology --to VERSION",
}

// Group returns a command that only holds others.
func Group(use, short, long string) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, DisableFlagsInUseLine: true}
	c.Args = cobra.ArbitraryArgs
	c.SuggestionsMinimumDistance = 2
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		hint := ""
		if other := instead[cmd.CommandPath()+" "+args[0]]; other != "" {
			hint = "; use " + other
		} else if elsewhere := sameName(cmd.Root(), args[0]); len(elsewhere) > 0 {
			hint = "; use " + strings.Join(elsewhere, " or ")
		} else if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = "; did you mean " + strings.Join(near, " or ") + "?"
		}
		return term.Misused("no command %q%s; see %s --help", cmd.CommandPath()+" "+args[0], hint, cmd.CommandPath())
	}
	// Flags of commands elsewhere are unknown here, which would be reported first.
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
			return cmd.RunE(cmd, args)
		}
		return nearFlag(cmd, err)
	})
	return c
}

// synonyms are what other programs call a flag.
var synonyms = map[string]string{
	"reason": "message", "why": "message", "comment": "message", "note": "message", "description": "message",
	"duration": "for", "ttl": "for", "expires": "for", "expire": "for", "until": "for", "lasts": "for",
	"user": "by", "author": "by", "who": "by",
	"confirm": "yes", "assume-yes": "yes", "no-prompt": "yes", "non-interactive": "yes",
	"format": "output", "json": "output", "regions": "region", "version": "to",
}

// nearFlag adds the command's flag nearest to an unknown one to the error.
func nearFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	name := unknown.GetSpecifiedName()
	if name == "dry-run" {
		return fmt.Errorf("%w%s", err, noTrial(cmd))
	}
	if own := synonyms[name]; own != "" && cmd.Flags().Lookup(own) != nil {
		return fmt.Errorf("%w; did you mean --%s?", err, own)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	hint := field.Suggest(name, names...)
	return fmt.Errorf("%w%s", err, strings.Replace(hint, "mean ", "mean --", 1))
}

// noTrial says what there is instead of --dry-run.
func noTrial(cmd *cobra.Command) (hint string) {
	switch {
	case asks(cmd):
		hint = "; without --yes, it shows what it would do and asks first"
	case cmd.Flags().Lookup("by") != nil:
		hint = "; it acts at once, without a trial"
	}
	for _, other := range cmd.Parent().Commands() {
		if other.Name() == "diff" {
			hint += "; " + other.CommandPath() + " FILE only shows it"
		}
	}
	return hint
}

// asks reports whether a command asks before it changes something.
func asks(cmd *cobra.Command) bool {
	yes := cmd.Flags().Lookup("yes")
	return yes != nil && yes.Usage != neverAsks
}

// sameName returns the paths of all commands of this name.
func sameName(c *cobra.Command, name string) (paths []string) {
	for _, sub := range c.Commands() {
		if sub.Name() == name && sub.IsAvailableCommand() {
			paths = append(paths, sub.CommandPath())
		}
		paths = append(paths, sameName(sub, name)...)
	}
	return paths
}

// New returns a command that does something. names are those of its arguments; one that
// begins with [ is optional, one that ends in … may be repeated.
func New(use, short, long, examples string, do func(ctx context.Context, args []string) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Example: examples}
	names := strings.Fields(use)[1:]
	c.Args = func(cmd *cobra.Command, args []string) error {
		need, most := 0, len(names)
		for _, name := range names {
			if !strings.HasPrefix(name, "[") {
				need++
			}
			if strings.Contains(name, "…") {
				most = len(args)
			}
		}
		switch {
		case len(args) < need:
			return term.Misused("%s is missing; use %s, and see %s --help", strings.Trim(names[len(args)], "…"), cmd.CommandPath()+strings.TrimPrefix(use, cmd.Name()), cmd.CommandPath())
		case len(args) > most && spacedWatch(cmd, args[most]):
			return term.Misused("unexpected argument %q; to repeat that often, pass --watch=%s; see %s --help", args[most], args[most], cmd.CommandPath())
		case len(args) > most:
			return term.Misused("unexpected argument %q; see %s --help", args[most], cmd.CommandPath())
		}
		return nil
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		err := do(cmd.Context(), args)
		var f *term.Failure
		if err != nil && !errors.As(err, &f) {
			err = &term.Failure{Status: term.StatusFailed, Err: err}
		}
		return err
	}
	return c
}

// KindOf returns the kind with this name.
func KindOf(list []*fleet.Kind, name string) (*fleet.Kind, error) {
	if i := slices.IndexFunc(list, func(k *fleet.Kind) bool { return k.Name == name }); i >= 0 {
		return list[i], nil
	}
	return nil, term.Misused("KIND %q: must be one of %s", name, strings.Join(KindNames(list), ", "))
}

func KindNames(list []*fleet.Kind) []string {
	return fleet.Map(list, func(k *fleet.Kind) string { return k.Name })
}

// Stage adds commands to c that are for one stage of work.
func Stage(c *cobra.Command, title string, commands ...*cobra.Command) {
	c.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, sub := range commands {
		sub.GroupID = title
		c.AddCommand(sub)
	}
}

// Signer reads the key of --sign, or returns nil without one.
func Signer(file string) (*sign.Key, error) {
	if file == "" {
		return nil, nil
	}
	key, err := sign.ReadKey(file)
	if err != nil {
		return nil, term.Misused("--sign: %w (nothing was changed)", err)
	}
	return key, nil
}
