package ctl

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/bind"
	"github.com/weir-edge/weir/internal/console"
	"github.com/weir-edge/weir/internal/console/access"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/hour"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/version"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

const consoleHelp = `Serves a web page, and the HTTP API under it, to look at the fleet and to change it:

  Fleet     regions, PoPs and edges as they are now: health, drains, requests, refusals, shedding,
            clocks, versions; drain and undrain
  Rules     what each rule allows and limits, and would limit in shadow mode; its last match;
            versions by region; history; edit, with faults next to their lines, compare, try on
            traffic, apply, roll out, resume, roll back
  Client    which rules decide for an address, an API key, a cookie or a query parameter, and why;
            what is left of each; tier and signals; blocks and allows; recent refusals; reset a
            counter; block or allow
  Shedder   level, utilization, each signal between its knees, what was shed of each class,
            candidates; change settings, also temporarily or as a candidate; the kill switch
  Behavior  which policy evaluates clients where; the policy; who changed it; restore
  Global    limits that regions share: the age of each region's knowledge, excess and bound,
            rights in escrow
  DNS       what PoPs receive and can serve, which clients they give to whom, on a map; where one
            client is sent, and why
  Audit     who changed what, including drains, resets and failed canaries, and whether the
            histories are whole; undo, filter, export
  Tokens    with --config: those with which programs use the API; create, revoke

Each button and each operation of the API does what a command of regionctl does with the fleet
file of this one, under the same locks, and shows that command. Histories name you (WEIR_USER, or
user@host) as they do when you type it. Changes are also logged on standard error.

Without --config, it listens on loopback only, and its page opens only for you: by a file that
only you can read, which it names when it starts. Each opening changes the file. To reach it from
your own machine, forward the port, and open a copy of that file there:

  ssh -L 8090:127.0.0.1:8090 operator.example.com

For a team, --config says where it listens, who may do what, and how users log in: by an OpenID
Connect issuer (code flow with PKCE), or by an authenticating proxy. File names are relative to
that file. If it has a fault, the console does not start and names the field and the remedy.

  listen: 0.0.0.0:8443
  public: https://weir.example.com          # what browsers open: the only Host and Origin answered
  tls: {cert_file: weir.pem, key_file: weir.key}    # required unless listen is on loopback; read
                                            # again every minute
  oidc:
    issuer: https://id.example.com          # the client's callback there: PUBLIC/auth/callback
    client_id: weir
    client_secret_file: client.secret       # not for a public client
    scopes: [email, profile, groups]        # besides openid; default: email, profile
    name_claim: email                       # of the ID token; email counts only with email_verified
    groups_claim: groups                    # a list, or one text
  session:
    key_files: [console.key, old.key]       # openssl rand -hex 32; the first seals, all open; read
                                            # again every minute
    lifetime: 8h                            # 1m to 24h, then people log in again
  roles:                                    # all that match count; people without one are refused
    - {who: {groups: ["*"]}, may: reader}   # everyone known to the issuer
    - {who: {groups: [sre]}, may: operator} # drain, reset, switch off, roll back
    - {who: {groups: [eu]}, may: admin, regions: [eu-west], kinds: [rules, limits]}
    - {who: {groups: [sre-leads], users: [ana@example.com]}, may: admin}
  tokens: {file: tokens.json}               # of programs; the console writes it
  sign: {key_file: console.pem}             # signs what the console publishes, for nodes with
                                            # require_signed; also without a login; see regionctl keys
  rate: {session: 600, address: 3000, login: 60}    # requests per minute; the defaults

Behind an authenticating proxy, in place of tls, oidc, session and tokens:

  listen: 127.0.0.1:8443
  proxy:
    from: [127.0.0.1/32]                    # nobody else is answered, not even with a page
    header: X-Forwarded-User                # who; histories name them, at most 128 printable bytes
    groups_header: X-Forwarded-Groups       # their groups, separated by commas; optional

Histories then name the logged-in user. Who may change some regions only names them in each change.

Pages of other sites that your browser has open cannot use it: requests must name this host,
come from this page, and carry its token to change anything.

The API is described at /api/v1/openapi.json. It needs the token, whose file is named at the start;
with --config, programs use one of the page Tokens:

  token=$(cat /run/user/1000/weir-console-2739/token)
  curl -s http://127.0.0.1:8090/api/v1/pops/ams1/drain -H "Weir-Console-Token: $token" \
    -H 'Content-Type: application/json' -d '{"reason": "kernel update"}' | jq

With --prometheus, the pages Rules and Shedder show the last hour. Without it, their charts begin
when the page is opened, and the pages say since when they count.

Serves until it is interrupted.`

func consoleCommand(p *command.Program) *cobra.Command {
	var o consoleOptions
	c := command.New("console", "serve a web page to look at the fleet and change it", consoleHelp,
		`  regionctl console
  regionctl console --listen 127.0.0.1:9000 --fleet production.yaml
  regionctl console --prometheus http://prometheus.example.com:9090
  regionctl console --config console.yaml --fleet production.yaml`,
		func(ctx context.Context, _ []string) error { return serveConsole(ctx, p, &o) })
	c.Flags().StringVarP(&o.listen, "listen", "l", "", "`ADDRESS:PORT`, of loopback (default 127.0.0.1:8090)")
	c.Flags().StringVar(&o.config, "config", "", "the `FILE` that says who may do what")
	command.CompleteFiles(c, "config", "yaml", "yml")
	hour.Flag(p, c)
	return c
}

type consoleOptions struct{ listen, config string }

// load returns the configuration, which by default lets only this user in, with all rights.
func (o *consoleOptions) load() (*access.Config, error) {
	switch {
	case o.config != "" && o.listen != "":
		return nil, term.Misused("--listen: the file of --config says where to listen; pass one of the two")
	case o.config != "":
		c, err := access.Load(o.config)
		if err != nil {
			return nil, term.Misused("--config: %w", err)
		}
		return c, nil
	case o.listen == "":
		return &access.Config{Listen: "127.0.0.1:8090"}, nil
	}
	addr, err := command.ParseListen(o.listen)
	if err != nil {
		return nil, term.Misused("--listen %q: must be address:port, as 127.0.0.1:8090 or [::1]:8090", o.listen)
	}
	if !console.Loopback(addr) {
		return nil, term.Misused("--listen %s: must be a loopback address, because anyone who can connect may change the fleet; set up access in --config FILE and listen there, or forward the port with ssh -L", o.listen)
	}
	return &access.Config{Listen: addr.String()}, nil
}

// serveConsole serves until ctx ends.
func serveConsole(ctx context.Context, p *command.Program, o *consoleOptions) error {
	if err := hour.Check(p.Prometheus); err != nil {
		return err
	}
	config, err := o.load()
	if err != nil {
		return err
	}
	known, err := p.KnownRegions()
	if err == nil && known == nil {
		_, err = p.Fleet()
	}
	if err != nil {
		return err // better now than on the first page
	}
	if unknown := config.Roles.Unknown(known); unknown != nil {
		return term.Misused("--config %s: roles: no region %s in the fleet file; it has %s", o.config, strings.Join(unknown, ", "), strings.Join(known, ", "))
	}
	user, err := p.Whoami("")
	if err != nil {
		return err
	}
	key, err := command.Signer(config.Sign.KeyFile)
	if err != nil {
		return term.Misused("--config %s: sign.key_file: %w", o.config, err)
	}
	p.SignFile = config.Sign.KeyFile
	gate, err := access.New(config, user)
	if err != nil {
		return term.Misused("--config %s: %w", o.config, err)
	}
	ln, err := bind.TCP(config.Listen)
	if err != nil {
		where := "--listen"
		if o.config != "" {
			where = "--config " + o.config + ": listen"
		}
		return term.Failed("%s: %w", where, err)
	}
	gate.Log = p.Log()
	at := consoleAt{URL: cmp.Or(config.Origin(), "http://"+ln.Addr().String()), User: user, Login: gate.Login()}
	if !at.Login {
		if at.Page, at.TokenFile, err = gate.Offer(at.URL); err != nil {
			_ = ln.Close()
			return term.Failed("the page that opens the console cannot be written: %w", err)
		}
		defer gate.Withdraw() // fails only if it is gone
	}
	if err := p.Show(at, at.write); err != nil {
		_ = ln.Close()
		return err
	}
	var looking sync.WaitGroup
	defer looking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	looking.Go(func() { warnOfSignatures(ctx, p, key, gate.Log) })
	return console.Run(ctx, console.Config{Do: perform(p), Answers: answers(), Access: gate, Origin: config.Origin(), Version: version.String(), Log: gate.Log}, ln)
}

// warnOfSignatures logs the regions whose nodes require a signature that this console cannot make.
func warnOfSignatures(ctx context.Context, p *command.Program, key *sign.Key, log *slog.Logger) {
	var ids []string
	if key != nil {
		ids = append(ids, key.ID())
	}
	targets, err := p.Targets(kinds.Rules, nil)
	if err != nil {
		return // each command says so
	}
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) ([]consul.Node, error) { return t.Registered(ctx) }) {
		if slices.ContainsFunc(a.Value, func(n consul.Node) bool { return !fleet.Accepts(n, ids...) }) {
			log.Warn("this console cannot publish here: nodes with documents.require_signed accept none of its keys; set sign.key_file in --config, or publish with regionctl --sign", "region", a.Target.Name)
		}
	}
}

// consoleAt is what console prints when it can be opened.
type consoleAt struct {
	URL string `json:"url"`
	// User is the name in histories, unless users log in.
	User  string `json:"user"`
	Login bool   `json:"login"`
	// Page opens the console of one user, and TokenFile has the token for scripts.
	Page      string `json:"page,omitempty"`
	TokenFile string `json:"token_file,omitempty"`
}

func (a consoleAt) write(b *bytes.Buffer, s term.Style) {
	if a.Login {
		fmt.Fprintf(b, "open %s; changes are made as the person who is logged in; Ctrl-C ends it\n", s.Bold(a.URL))
		return
	}
	fmt.Fprintf(b, "serving %s; to open it, open this file in a browser, which only you can read:\n  %s\nchanges are made as %s; scripts find the token in %s; Ctrl-C ends it\n",
		a.URL, s.Bold(a.Page), term.Printable(a.User), a.TokenFile)
}
