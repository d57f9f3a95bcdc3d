// Command import translates the limits of nginx and Traefik into rules. A release holds it as
// weir-import.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/ctl/replay"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/version"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/tools/import/nginx"
	"github.com/weir-edge/weir/tools/import/traefik"
)

const rootHelp = `Reads the limits of another program, and prints rules that make the same decisions.

Standard error has a line for each setting that cannot be translated, and why. Nothing is sent
anywhere. Check the result with regionctl rules validate; regionctl rules import envoy
translates the configuration of Envoy's reference rate limit service.

--prove replays an access log against a model of the other program and against the rules, and
says where they disagree; then the exit status is 1.`

const nginxHelp = `Reads an nginx configuration with the files that it includes, and prints the rules that
limit as its limit_req and limit_conn do: by zone, server, location and key, with maps and
geos that exempt requests. CONF may be - for standard input.

Logs with fractions of a second prove the most:

  log_format weir escape=json '{"msec":"$msec","client":"$remote_addr","host":"$host",'
    '"request":"$request","request_time":"$request_time"}';`

const traefikHelp = `Reads a dynamic configuration of Traefik, YAML or TOML, and prints the rules that limit
as its middlewares rateLimit and inFlightReq do, for each router that uses them. FILE may be -
for YAML on standard input.

Traefik's JSON access log can be read as it is.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(term.ExitStatus(err))
}

// run prints the error; its kind determines the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	p := &program{in: stdin, out: stdout, errOut: stderr}
	root := p.commands()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil {
		_, _ = io.WriteString(stderr, term.Clean(fmt.Sprintf("weir-import: %v\n", err)))
	}
	return err
}

type program struct {
	in        io.Reader
	out       io.Writer
	errOut    io.Writer
	log, host string // the flags
}

// translation is what one program's limits become.
type translation struct {
	document *rules.Document
	report   []string
	refuses  func(*replay.Request) bool // as a model of the program decides
}

func (p *program) commands() *cobra.Command {
	misused := func(c *cobra.Command, err error) error {
		if err == nil {
			return nil
		}
		return term.Misused("%w; see %s --help", err, c.CommandPath())
	}
	root := &cobra.Command{
		Use: "weir-import", Short: "translate the limits of nginx and Traefik into rules", Long: rootHelp, Version: version.String(), SilenceErrors: true, SilenceUsage: true,
		Args: func(c *cobra.Command, args []string) error { return misused(c, cobra.NoArgs(c, args)) },
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(misused)
	root.PersistentFlags().StringVar(&p.log, "prove", "", "replay this `LOG` against a model of the source and the rules")
	root.PersistentFlags().StringVar(&p.host, "host", "", "the `HOST` of lines of the log that name none")
	add := func(use, short, long, example string, translate func(name string) (*translation, error)) {
		root.AddCommand(&cobra.Command{
			Use: use, Short: short, Long: long, Example: example,
			Args: func(c *cobra.Command, args []string) error { return misused(c, cobra.ExactArgs(1)(c, args)) },
			RunE: func(c *cobra.Command, args []string) error {
				t, err := translate(args[0])
				if err != nil {
					return term.Misused("%w", err)
				}
				if err := p.write(t); err != nil {
					return err
				}
				return p.prove(c.Context(), t)
			},
		})
	}
	add("nginx CONF", "translate limit_req and limit_conn", nginxHelp, `  weir-import nginx /etc/nginx/nginx.conf >rules.yaml
  weir-import nginx nginx.conf --prove access.log >rules.yaml`, p.fromNginx)
	add("traefik FILE", "translate rateLimit and inFlightReq", traefikHelp, `  weir-import traefik dynamic.yaml >rules.yaml
  weir-import traefik dynamic.toml --prove access.log >rules.yaml`, p.fromTraefik)
	return root
}

func (p *program) fromNginx(name string) (*translation, error) {
	source := nginx.Source{Read: p.read}
	if name != "-" {
		source.Glob = func(pattern string) ([]string, error) {
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(name), pattern)
			}
			return filepath.Glob(pattern)
		}
	}
	t, err := nginx.Translate(name, source)
	if err != nil {
		return nil, err
	}
	return &translation{t.Document, t.Report, t.Model.Refuses}, nil
}

func (p *program) fromTraefik(name string) (*translation, error) {
	text, err := p.read(traefik.MaxBytes, name)
	if err != nil {
		return nil, err
	}
	if name == "-" {
		name = "standard input"
	}
	t, err := traefik.Translate(name, text)
	if err != nil {
		return nil, err
	}
	return &translation{t.Document, t.Report, t.Model.Refuses}, nil
}

// read reads a file, or standard input, up to one byte more than allowed, so that the reader
// notices if it is too long.
func (p *program) read(longest int, name string) ([]byte, error) {
	in := p.in
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close() // only read
		in = file
	}
	return io.ReadAll(io.LimitReader(in, int64(longest)+1))
}

// write prints rules, and on standard error what they leave out.
func (p *program) write(t *translation) error {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(t.document); err != nil {
		return err
	}
	for _, line := range t.report {
		fmt.Fprintln(p.errOut, line)
	}
	_, err := p.out.Write(out.Bytes())
	return err
}

// prove replays a log against the rules and the model.
func (p *program) prove(ctx context.Context, t *translation) error {
	if p.log == "" {
		return nil
	}
	set, err := rules.Compile(t.document)
	if err != nil {
		return err
	}
	in := p.in
	if p.log != "-" {
		log, err := os.Open(p.log)
		if err != nil {
			return term.Misused("%w", err)
		}
		defer log.Close() // only read
		in = log
	}
	r, err := replay.Prove(ctx, replay.Config{Candidate: set, Host: p.host}, in, t.refuses)
	if err != nil {
		return term.Misused("%s: %w", p.log, err)
	}
	return p.show(r)
}

func (p *program) show(r *replay.Proof) error {
	differ := r.OnlyModel + r.OnlyRules + r.BadRequests
	fmt.Fprintf(p.errOut, "%s: %d requests, decided alike: %d; refused by the source only: %d, by the rules only: %d; answered 400 by edges: %d; lines that cannot be read: %d\n",
		p.log, r.Requests, r.Requests-differ, r.OnlyModel, r.OnlyRules, r.BadRequests, r.Skipped)
	for _, d := range r.Disagreements {
		who := "only the source refuses"
		if d.ByRules {
			who = "only rule " + d.Rule + " refuses"
		}
		_, _ = io.WriteString(p.errOut, term.Clean(fmt.Sprintf("%s:%d: %s: %s %s %s %s%s\n", p.log, d.Line, who,
			d.Time.Format(time.RFC3339Nano), d.Client, d.Method, d.Host, d.Path)))
	}
	if differ > 0 {
		return term.Failed("%d of %d requests are decided differently", differ, r.Requests)
	}
	return nil
}
