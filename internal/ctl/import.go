package ctl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/ctl/nginx"
	"github.com/weir-edge/weir/internal/ctl/replay"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/traefik"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

const importNginxHelp = `Reads an nginx configuration with the files that it includes, and prints the rules that
limit as its limit_req and limit_conn do: by zone, server, location and key, with maps and
geos that exempt requests.

Standard error has a line for each setting that cannot be translated, and why. Nothing is sent
anywhere. Check the result with regionctl rules validate. CONF may be - for standard input.

--prove replays an access log against a model of nginx and against the rules, and says where
they disagree; the command then fails. Logs with fractions of a second prove the most:

  log_format weir escape=json '{"msec":"$msec","client":"$remote_addr","host":"$host",'
    '"request":"$request","request_time":"$request_time"}';`

const importTraefikHelp = `Reads a dynamic configuration of Traefik, YAML or TOML, and prints the rules that limit
as its middlewares rateLimit and inFlightReq do, for each router that uses them.

Standard error has a line for each setting that cannot be translated, and why. Nothing is sent
anywhere. Check the result with regionctl rules validate. FILE may be - for YAML on standard
input.

--prove replays an access log against a model of Traefik and against the rules, and says where
they disagree; the command then fails. Traefik's JSON access log can be read as it is.`

// proof is the flags of an import that can be proved.
type proof struct{ log, host string }

func (o *proof) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.log, "prove", "", "replay this `LOG` against a model of the source and the rules")
	c.Flags().StringVar(&o.host, "host", "", "the `HOST` of lines of the log that name none")
}

func (p *program) importCommand() *cobra.Command {
	c := group("import", "translate another program's limits", "Translate another program's limits into rules.")
	c.AddCommand(p.importEnvoyCommand(), p.importNginxCommand(), p.importTraefikCommand())
	return c
}

func (p *program) importNginxCommand() *cobra.Command {
	var o proof
	c := command("nginx CONF", "of nginx", importNginxHelp,
		`  regionctl rules import nginx /etc/nginx/nginx.conf >rules.yaml
  regionctl rules import nginx nginx.conf --prove access.log >rules.yaml`,
		func(ctx context.Context, args []string) error {
			source := nginx.Source{Read: p.readInput}
			if args[0] != "-" {
				source.Glob = func(pattern string) ([]string, error) {
					if !filepath.IsAbs(pattern) {
						pattern = filepath.Join(filepath.Dir(args[0]), pattern)
					}
					return filepath.Glob(pattern)
				}
			}
			t, err := nginx.Translate(args[0], source)
			if err != nil {
				return term.Misused("%w", err)
			}
			if err := p.writeImported(t.Document, t.Report); err != nil {
				return err
			}
			return p.prove(ctx, &o, t.Document, t.Model.Refuses)
		})
	o.flags(c)
	return c
}

func (p *program) importTraefikCommand() *cobra.Command {
	var o proof
	c := command("traefik FILE", "of Traefik", importTraefikHelp,
		`  regionctl rules import traefik dynamic.yaml >rules.yaml
  regionctl rules import traefik dynamic.toml --prove access.log >rules.yaml`,
		func(ctx context.Context, args []string) error {
			text, err := p.readInput(traefik.MaxBytes, args[0])
			if err != nil {
				return err
			}
			t, err := traefik.Translate(inputName(args[0]), text)
			if err != nil {
				return term.Misused("%w", err)
			}
			if err := p.writeImported(t.Document, t.Report); err != nil {
				return err
			}
			return p.prove(ctx, &o, t.Document, t.Model.Refuses)
		})
	o.flags(c)
	return c
}

// writeImported prints rules, and on standard error what they leave out.
func (p *program) writeImported(doc *rules.Document, report []string) error {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(doc); err != nil {
		return err
	}
	for _, line := range report {
		fmt.Fprintln(p.ErrOut, line)
	}
	_, err := p.Out.Write(out.Bytes())
	return err
}

// prove replays a log against rules and the model of the program they were imported from.
func (p *program) prove(ctx context.Context, o *proof, doc *rules.Document, refuses func(*replay.Request) bool) error {
	if o.log == "" {
		return nil
	}
	set, err := rules.Compile(doc)
	if err != nil {
		return err
	}
	in := p.In
	if o.log != "-" {
		log, err := os.Open(o.log)
		if err != nil {
			return term.Misused("%w", err)
		}
		defer log.Close() // only read
		in = log
	}
	r, err := replay.Prove(ctx, replay.Config{Candidate: set, Host: o.host}, in, refuses)
	if err != nil {
		return term.Misused("%s: %w", o.log, err)
	}
	return p.showProof(o.log, r)
}

func (p *program) showProof(log string, r *replay.Proof) error {
	differ := r.OnlyModel + r.OnlyRules + r.BadRequests
	fmt.Fprintf(p.ErrOut, "%s: %d requests, decided alike: %d; refused by the source only: %d, by the rules only: %d; answered 400 by edges: %d; lines that cannot be read: %d\n",
		log, r.Requests, r.Requests-differ, r.OnlyModel, r.OnlyRules, r.BadRequests, r.Skipped)
	for _, d := range r.Disagreements {
		who := "only the source refuses"
		if d.ByRules {
			who = "only rule " + d.Rule + " refuses"
		}
		_, _ = io.WriteString(p.ErrOut, term.Clean(fmt.Sprintf("%s:%d: %s: %s %s %s %s%s\n", log, d.Line, who,
			d.Time.Format(time.RFC3339Nano), d.Client, d.Method, d.Host, d.Path)))
	}
	if differ > 0 {
		return term.Failed("%d of %d requests are decided differently", differ, r.Requests)
	}
	return nil
}
