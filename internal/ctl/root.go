// Package ctl holds the commands of regionctl and their text.
//
// Consul is reached through pkg/region, the edges through their admin listeners.
// What a command finds out goes to standard output; questions, progress and
// warnings go to standard error.
package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/version"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const rootHelp = `regionctl changes the rules of a fleet of weir edge nodes, and the settings of their
load shedders, region by region, and shows what the nodes do.

Both live in Consul, in each region its own copy. This is how to change them:

  regionctl rules validate rules.yaml             is it valid? every fault, with its path
  regionctl rules test rules.yaml access.log.gz   which clients would have been limited yesterday?
  regionctl rules diff rules.yaml                 what differs from what runs?
  regionctl rules apply rules.yaml -m "why"       switch all regions, wait for every edge
  regionctl rules status                          what does each edge run now?
  regionctl undo                                  take back the last change

Try a risky change on one site first; it is taken back automatically when that site
refuses more than before:

  regionctl rules apply rules.yaml --canary ams1 --bake 5m

When the edges shed too much or too little, or must shed nothing temporarily:

  regionctl shedder show --live                       what each edge sheds, and by which signal
  regionctl shedder set signals.inflight.high=400     other settings, on every edge
  regionctl shedder set enabled=false --for 1h        off; the previous settings return after that

When clients misbehave within the limits:

  regionctl policy example > policy.yaml                   judge them by what they do; in shadow mode first
  regionctl policy apply policy.yaml                       on every edge that follows policies

When you must block or allow clients manually:

  regionctl clients block 203.0.113.7 --for 2h --reason "scans"   403, on every edge within two seconds
  regionctl clients list                                          which are blocked, by whom, why, until when

When a client asks why it was refused:

  regionctl limits explain --client 203.0.113.7 --path /login                which rules decide, and why
  regionctl limits inspect 203.0.113.7                                       what it has left
  regionctl limits reset --rule login --client 203.0.113.7 --path /login     serve it again at once

Where clients are sent, and when a PoP must be emptied:

  regionctl status --watch                               the whole fleet on one screen
  regionctl topology apply topology.yaml                 which PoPs there are, and where
  regionctl dns --listen 192.0.2.53:53                   answer with the nearest healthy one
  regionctl dns explain --client 203.0.113.7             which one is that, and why?
  regionctl drain ams1 --reason "kernel update"          out of DNS; undrain puts it back

The same in a browser, or for scripts over HTTP:

  regionctl console                                      http://127.0.0.1:8090

The fleet file (--fleet FILE, or WEIR_FLEET) names the regions. File names in it are
relative to it:

  regions:
    - name: eu-west
      consul: {addr: "https://consul.eu-west.example.com:8501", token_file: eu-west.token}
      admin_token_file: admin.token     # of the edges' admin listeners, if they require one
      admin_networks: [10.1.0.0/16]     # theirs; the token goes nowhere else
      admin_tls: {ca_file: ca.pem}      # and how to verify them, if they speak TLS
    - name: us-east
      consul: {addr: "https://consul.us-east.example.com:8501", token_file: us-east.token}

Name a new region once, with regionctl init, before its first change. A change compares the
names with the fleet file.

The first region of the file is locked and changed before all others, so all operators
should use the same one.

Exit status:
  0    success
  1    failed; the message says whether anything was changed
  2    wrong usage or bad input: a flag, a document, the fleet file
  3    partly done: some regions took it and some did not, or not all edges run it yet
  4    conflict: someone else changed the same document in the meantime, or is about to
  130  interrupted

With -o json, standard output holds results only, and the last line of standard error of a
run that fails is a JSON object:

  {"error":{"status":4,"reason":"conflict","message":"…"}}

The reason is failed, usage, partial, conflict, interrupted or, if --partial would continue
without regions that do not answer, unreachable.

Environment:
  WEIR_FLEET   the fleet file, if --fleet is not given
  WEIR_USER    the name in history and locks, if --by is not given
  NO_COLOR     no colors, as --no-color`

// program is one run of regionctl.
type program struct {
	*term.Terminal
	// registering is how long to wait for the first edge of a region, look how long one
	// look at all figures may take, and lockWait how long to wait for concurrent changes.
	registering, look, lockWait time.Duration
	// dial, if not nil, replaces the network.
	dial consul.Dialer

	// user, if not "", is the user of the console who sent a request.
	user          string
	fleetFile     string
	timeout       time.Duration
	insecureAdmin bool
	opened        []*fleet.Target // until the run ends
}

const defaultTimeout = 5 * time.Second

// Run runs regionctl with its arguments until it is done or ctx ends. It prints errors on
// stderr; ExitStatus turns the error into the program's status.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return newProgram(term.Open(stdin, stdout, stderr)).run(ctx, args)
}

// Commands returns all commands, to document them.
func Commands() *cobra.Command {
	return newProgram(term.Open(strings.NewReader(""), io.Discard, io.Discard)).rootCommand()
}

func newProgram(t *term.Terminal) *program {
	return &program{Terminal: t, registering: registering, look: defaultTimeout, lockWait: lockWait}
}

func (p *program) run(ctx context.Context, args []string) error {
	defer p.close()
	root := p.rootCommand()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var f *term.Failure
	if err != nil && !errors.As(err, &f) {
		// Every command's own errors are failures, so this is about the command line.
		err = term.Misused("%w; see %s --help", err, cmd.CommandPath())
	}
	if err = term.Settle(ctx, err); err == nil {
		return nil
	}
	if asksJSON(args) {
		p.Format = "json"
	}
	p.Fail("regionctl", err)
	return err
}

// asksJSON reports whether arguments ask for JSON, even if another one cannot be parsed.
func asksJSON(args []string) bool {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.ParseErrorsAllowlist.UnknownFlags = true
	f.Usage = func() {}
	format := f.StringP("output", "o", "", "")
	_ = f.Parse(args) // the command has reported it
	return *format == "json"
}

func (p *program) rootCommand() *cobra.Command {
	root := group("regionctl", "change and show the rules of a fleet of edge nodes", rootHelp)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = version.String()
	root.SetVersionTemplate("regionctl {{.Version}}\n")
	// A group alone only prints this help.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return p.checkFlags() }

	flags := root.PersistentFlags()
	flags.StringVar(&p.fleetFile, "fleet", os.Getenv("WEIR_FLEET"), "the fleet `FILE`, which names the regions (or WEIR_FLEET)")
	flags.Lookup("fleet").DefValue = ""
	flags.StringVarP(&p.Format, "output", "o", "table", "`FORMAT` of what goes to standard output: table or json")
	flags.BoolVar(&p.NoColor, "no-color", false, "no colors, not even on a terminal (or NO_COLOR)")
	flags.DurationVar(&p.timeout, "timeout", defaultTimeout, "how long a Consul or an edge may take to answer; at most 5s")
	flags.BoolVar(&p.insecureAdmin, "insecure-admin", false, "also send the admin token over plain HTTP to edges that are not on this host")
	complete(root, "output", "table", "json")
	completeFiles(root, "fleet", "yaml", "yml", "json")

	root.AddCommand(p.rulesCommand(), p.shedderCommand(), p.limitsCommand(), p.policyCommand(), p.clientsCommand(), p.topologyCommand(), p.dnsCommand(),
		p.undoCommand(), p.drainCommand(), p.undrainCommand(), p.fleetStatusCommand(), p.initCommand(), p.auditCommand(), p.consoleCommand(), p.keysCommand(), p.versionCommand())
	return root
}

func (p *program) checkFlags() error {
	if p.Format != "table" && p.Format != "json" {
		return term.Misused("--output %q: unknown; use table or json", p.Format)
	}
	if p.timeout <= 0 || p.timeout > defaultTimeout {
		return term.Misused("--timeout %s: must be above 0 and at most %s", p.timeout, defaultTimeout)
	}
	return nil
}

// instead names the commands that do what these would, were they like those of rules.
var instead = map[string]string{
	"regionctl shedder apply":  "regionctl shedder set FILE",
	"regionctl shedder diff":   "regionctl shedder set FILE, which shows the difference and asks",
	"regionctl shedder status": "regionctl shedder show --live",
	"regionctl topology diff":  "regionctl topology apply FILE, which shows the difference and asks",
}

// group returns a command that only holds others.
func group(use, short, long string) *cobra.Command {
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

// nearFlag adds the command's flag nearest to an unknown one to the error.
func nearFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	if unknown.GetSpecifiedName() == "dry-run" {
		return fmt.Errorf("%w; without --yes, a change shows what it would do and asks first; regionctl rules diff FILE only shows it", err)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	hint := field.Suggest(unknown.GetSpecifiedName(), names...)
	return fmt.Errorf("%w%s", err, strings.Replace(hint, "mean ", "mean --", 1))
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

// command returns a command that does something. names are those of its arguments; one that
// begins with [ is optional, one that ends in … may be repeated.
func command(use, short, long, examples string, do func(ctx context.Context, args []string) error) *cobra.Command {
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

func (p *program) versionCommand() *cobra.Command {
	return command("version", "print the version", "Prints version, commit and Go version of this program.", "", func(context.Context, []string) error {
		if p.WantsJSON() {
			return p.WriteJSON(map[string]string{"version": version.String()})
		}
		_, err := io.WriteString(p.Out, "regionctl "+version.String()+"\n")
		return err
	})
}
