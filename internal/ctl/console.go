package ctl

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/console"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/internal/version"
)

const consoleHelp = `Serves a web page, and the HTTP API under it, to look at the fleet and to change it:

  Fleet     regions, PoPs and edges as they are now; drain and undrain
  Rules     what each rule allows and limits; edit, validate, compare, apply, roll back
  Client    which rules decide for an address, what it has left; reset a counter
  Shedder   how busy each edge is and what it sheds; change settings, the kill switch
  Audit     who changed what, and whether the histories are whole

Each button and each operation of the API runs a command of regionctl with the fleet file of
this one, under the same locks, and shows that command. Histories name you (WEIR_USER, or
user@host) as they do when you type it. Changes are also logged on standard error.

Whoever can open the page can do what your fleet file allows, so it listens on loopback
only. To reach it from your own machine, forward the port:

  ssh -L 8090:127.0.0.1:8090 operator.example.com

Pages of other sites that your browser has open cannot use it: requests must name this host,
come from this page, and carry its token to change anything.

The API is described at /api/v1/openapi.json. A change needs the token of /api/v1/session:

  token=$(curl -s http://127.0.0.1:8090/api/v1/session | jq -r .token)
  curl -s http://127.0.0.1:8090/api/v1/pops/ams1/drain -H "Weir-Console-Token: $token" \
    -H 'Content-Type: application/json' -d '{"reason": "kernel update"}' | jq

Serves until it is interrupted.`

func (p *program) consoleCommand() *cobra.Command {
	var listen string
	c := command("console", "serve a web page to look at the fleet and change it", consoleHelp,
		`  regionctl console
  regionctl console --listen 127.0.0.1:9000 --fleet production.yaml`,
		func(ctx context.Context, _ []string) error { return p.serveConsole(ctx, listen) })
	c.Flags().StringVarP(&listen, "listen", "l", "127.0.0.1:8090", "`ADDRESS:PORT`, of loopback")
	return c
}

// serveConsole serves until ctx ends.
func (p *program) serveConsole(ctx context.Context, listen string) error {
	addr, err := parseListen(listen)
	if err != nil {
		return term.Misused("--listen %q: must be address:port, as 127.0.0.1:8090 or [::1]:8090", listen)
	}
	if !console.Loopback(addr) {
		return term.Misused("--listen %s: must be an address of loopback, because whoever can connect may change the fleet and there is no login yet; listen on 127.0.0.1 and forward the port with ssh -L", listen)
	}
	if _, err := p.fleet(); err != nil {
		return err // better now than on the first page
	}
	user, err := whoami("")
	if err != nil {
		return err
	}
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return term.Failed("--listen %s: %w", listen, err)
	}
	log := logs.JSON(p.ErrOut, slog.LevelInfo)
	if p.Live && !p.WantsJSON() {
		log = logs.Text(p.ErrOut)
	}
	at := consoleAt{"http://" + ln.Addr().String(), user}
	if err := p.Show(at, at.write); err != nil {
		_ = ln.Close()
		return err
	}
	return console.Run(ctx, console.Config{Run: p.again, Answers: answers(), User: user, Version: version.String(), Log: log}, ln)
}

// consoleAt is what console prints when it can be opened.
type consoleAt struct {
	URL  string `json:"url"`
	User string `json:"user"`
}

func (a consoleAt) write(b *bytes.Buffer, s term.Style) {
	fmt.Fprintf(b, "open %s; changes are made as %s; Ctrl-C ends it\n", s.Bold(a.URL), term.Printable(a.User))
}

// again runs another command as this one was called: for the same fleet.
func (p *program) again(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	own := []string{"--fleet=" + p.fleetFile, "--timeout=" + p.timeout.String(), fmt.Sprintf("--insecure-admin=%t", p.insecureAdmin)}
	next := newProgram(term.New(in, out, errOut))
	next.registering, next.look, next.lockWait, next.dial = p.registering, p.look, p.lockWait, p.dial
	return term.ExitStatus(next.run(ctx, append(own, args...)))
}

// answers are the types of what the console's operations print, by their IDs.
func answers() map[string]reflect.Type {
	return map[string]reflect.Type{
		"fleet": reflect.TypeFor[fleetStatus](), "drain": reflect.TypeFor[drainReport](), "undrain": reflect.TypeFor[drainReport](),
		"rules": reflect.TypeFor[ruleList](), "rules.status": reflect.TypeFor[convergence](), "rules.document": reflect.TypeFor[shown](),
		"rules.history": reflect.TypeFor[[]past](), "rules.validate": reflect.TypeFor[validation](), "rules.diff": reflect.TypeFor[diffReport](),
		"rules.apply": reflect.TypeFor[changeReport](), "rules.rollback": reflect.TypeFor[changeReport](),
		"limits.inspect": reflect.TypeFor[[]*inspected](), "limits.explain": reflect.TypeFor[[]explained](), "limits.reset": reflect.TypeFor[[]resetNode](),
		"shedder": reflect.TypeFor[[]*settingsInForce](), "shedder.live": reflect.TypeFor[convergence](), "shedder.set": reflect.TypeFor[changeReport](),
		"shedder.rollback": reflect.TypeFor[changeReport](), "shedder.history": reflect.TypeFor[[]past](),
		"audit": reflect.TypeFor[[]audited](),
	}
}
