// Package ctl holds the commands of regionctl and their text.
//
// Consul is reached through pkg/region, the edges through their admin listeners.
// What a command finds out goes to standard output; questions, progress and
// warnings go to standard error.
package ctl

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/audit"
	"github.com/weir-edge/weir/internal/ctl/clients"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/dns"
	"github.com/weir-edge/weir/internal/ctl/drain"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/limits"
	"github.com/weir-edge/weir/internal/ctl/overview"
	"github.com/weir-edge/weir/internal/ctl/policy"
	"github.com/weir-edge/weir/internal/ctl/rules"
	"github.com/weir-edge/weir/internal/ctl/shedder"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/topology"
	"github.com/weir-edge/weir/internal/ctl/undo"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/internal/version"
)

const rootHelp = `regionctl changes the rules of a fleet of weir edge nodes, and the settings of their
load shedders, region by region, and shows what the nodes do.

Both live in Consul, in each region its own copy. This is how to change them:

  regionctl rules validate rules.yaml             is it valid? every fault, with its path
  regionctl rules test rules.yaml access.log.gz   which clients would have been limited yesterday?
  regionctl rules diff rules.yaml                 what differs from what runs?
  regionctl rules apply rules.yaml -m "why"       switch all regions, wait for every edge
  regionctl rules status                          what does each edge run now?
  regionctl undo                                  undo the last change

Try a risky change on one site first; it is withdrawn automatically when that site
refuses more than before:

  regionctl rules apply rules.yaml --canary ams1 --bake 5m

When the edges shed too much or too little, or must shed nothing temporarily:

  regionctl shedder show --live                       what each edge sheds, and by which signal
  regionctl shedder set signals.inflight.high=400     other settings, on every edge
  regionctl shedder set enabled=false --for 1h        off; the previous settings return after that

When clients misbehave within the limits:

  regionctl policy example > policy.yaml                   act on what they do; in shadow mode first
  regionctl policy apply policy.yaml                       on every edge that follows policies

When you must block or allow clients manually:

  regionctl clients block 203.0.113.7 --for 2h --message "scans"   403, on every edge in about 0.1 s
  regionctl clients list                                          which are blocked, by whom, why, until when

When a client asks why it was refused:

  regionctl limits explain --client 203.0.113.7 --method POST --path /login                which rules decide, and why
  regionctl limits inspect 203.0.113.7                                                     what it has left
  regionctl limits reset --rule login --client 203.0.113.7 --method POST --path /login     serve it again at once

Where clients are sent, and when a PoP must be emptied:

  regionctl status --watch                               the whole fleet on one screen
  regionctl topology apply topology.yaml                 which PoPs there are, and where
  regionctl dns --listen 192.0.2.53:53                   answer with the nearest healthy one
  regionctl dns explain --client 203.0.113.7             which one is that, and why?
  regionctl drain ams1 --message "kernel update"          out of DNS; undrain puts it back

When an alert fires:

  regionctl runbook WeirStoreDown                        confirm, mitigate, repair

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

// Run runs regionctl with its arguments until it is done or ctx ends. It prints errors on
// stderr; ExitStatus turns the error into the program's status.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return run(ctx, command.NewProgram(term.Open(stdin, stdout, stderr)), args)
}

// Commands returns all commands, to document them.
func Commands() *cobra.Command {
	return rootCommand(command.NewProgram(term.Open(strings.NewReader(""), io.Discard, io.Discard)))
}

func run(ctx context.Context, p *command.Program, args []string) error {
	defer p.Close()
	root := rootCommand(p)
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

func rootCommand(p *command.Program) *cobra.Command {
	root := command.Group("regionctl", "change and show the rules of a fleet of edge nodes", rootHelp)
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.Version = version.String()
	root.SetVersionTemplate("regionctl {{.Version}}\n")
	// A group alone only prints this help.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return p.CheckFlags() }

	flags := root.PersistentFlags()
	flags.StringVar(&p.FleetFile, "fleet", os.Getenv("WEIR_FLEET"), "the fleet `FILE`, which names the regions (or WEIR_FLEET)")
	flags.Lookup("fleet").DefValue = ""
	flags.StringVarP(&p.Format, "output", "o", "table", "`FORMAT` of what goes to standard output: table or json")
	flags.BoolVar(&p.NoColor, "no-color", false, "no colors, not even on a terminal (or NO_COLOR)")
	flags.DurationVar(&p.Timeout, "timeout", command.DefaultTimeout, "how long a Consul or an edge may take to answer; at most 5s")
	flags.BoolVar(&p.InsecureAdmin, "insecure-admin", false, "also send the admin token over plain HTTP to edges that are not on this host")
	command.CompleteWords(root, "output", "table", "json")
	command.CompleteFiles(root, "fleet", "yaml", "yml", "json")

	root.AddCommand(rules.Command(p), shedder.Command(p), limits.Command(p), policy.Command(p), clients.Command(p), topology.Command(p), dns.Command(p),
		undo.Command(p), versions.PruneCommand(p, kinds.Rules, kinds.Shedder, kinds.Policy, kinds.Topology), drain.Command(p), drain.UndrainCommand(p), overview.Command(p), initCommand(p), audit.Command(p), consoleCommand(p), keysCommand(p), runbookCommand(p))
	return root
}
