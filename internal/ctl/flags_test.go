package ctl

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// A flag has one shorthand and one type on all commands, and whoever changes something can say who
// they are and why, and that they are not to be asked. Commands that do something, and different names of
// flags, become no more: whoever adds one that is needed raises the number.
func TestFlagsOfCommands(t *testing.T) {
	commands, flags := 0, map[string]string{}
	takes := map[string]*pflag.FlagSet{}
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		switch {
		case !c.IsAvailableCommand() || c.Name() == "completion" || c.Name() == "help":
			return
		case !c.HasAvailableSubCommands() || c.Name() == "dns":
			commands++
		}
		takes[strings.TrimPrefix(c.CommandPath(), "regionctl ")] = c.Flags()
		check := func(f *pflag.Flag) {
			if f.Name == "help" || f.Name == "version" {
				return
			}
			kind := f.Shorthand + " " + strings.TrimSuffix(f.Value.Type(), "Slice")                       // --listen of dns may be repeated
			if before, known := flags[f.Name]; known && c.Parent() != nil && c.Parent().Name() != "dns" { // which asks for PoPs of one region
				require.Equal(t, before, kind, "%s --%s", c.CommandPath(), f.Name)
			} else if !known {
				flags[f.Name] = kind
			}
		}
		c.LocalFlags().VisitAll(check)
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	root := Commands()
	root.PersistentFlags().VisitAll(func(f *pflag.Flag) { flags[f.Name] = f.Shorthand + " " + f.Value.Type() })
	look(root)
	for _, line := range changeCommands {
		words := strings.Fields(line)
		name := words[0]
		if takes[strings.Join(words[:2], " ")] != nil {
			name = strings.Join(words[:2], " ")
		}
		for _, flag := range []string{"yes", "by", "message"} {
			switch name + " " + flag {
			case "clients sync by": // the list is the author
			case "prune message": // the history of documents has no entry of it
			default:
				require.NotNil(t, takes[name].Lookup(flag), "%s --%s", name, flag)
			}
		}
	}
	t.Logf("%d commands, %d flags", commands, len(flags))
	require.LessOrEqual(t, commands, 59)
	require.LessOrEqual(t, len(flags), 90)
}
