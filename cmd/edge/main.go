// Command edge is a weir edge node: it limits requests and forwards those that pass.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/weir-edge/weir/internal/edge"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/internal/version"
)

const usage = `edge limits HTTP requests and forwards those that pass.

Usage:
  edge -dev                  try it: memory store, a built-in origin, sample rules
  edge -overload             overload the node of -dev for 5 s, and show what it sheds
  edge -config FILE          run a node
  edge -check -config FILE   check configuration and rules, then exit: 0 good, 2 not
  edge -version              print the version

Flags:
`

const devHint = `
weir is running. Try, in another terminal:

  curl -i http://%[1]s/hello                                      # passes; the headers show what is left
  for i in $(seq 10); do curl -s -o /dev/null -w '%%{http_code}\n' http://%[1]s/; done   # with the one above, the tenth of these is the 11th in 10 s: 429
  curl 'http://%[2]s/v1/explain?client=127.0.0.1&path=/hello'      # which rules decide, and why
  %[3]s -overload   # 5 s of more than the origin serves: what is shed

or open http://%[2]s/ in a browser: the page shows the node's state.

Ctrl-C stops it.

`

// errUsage exits with status 2; the fault is already printed.
var errUsage = errors.New("usage")

// untouched is memory that the node never writes to, so that it takes up none. The collector
// counts it, and so lets this much garbage collect before it runs. A node has little else in
// its heap, so the collector would run many times per second.
const untouched = 64 << 20 // bytes

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case err == nil:
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("edge", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // a fault is printed below, in one line
	file := flags.String("config", "", "configuration `FILE`; https://github.com/weir-edge/weir/blob/main/docs/CONFIG.md describes it")
	check := flags.Bool("check", false, "check the configuration and its rules, then exit")
	dev := flags.Bool("dev", false, "run with a memory store, a built-in origin and sample rules")
	busy := flags.Bool("overload", false, "overload the node of -dev for 5 s, and show what it sheds")
	showVersion := flags.Bool("version", false, "print the version")
	fail := func(format string, args ...any) error {
		fmt.Fprintf(stderr, "edge: "+format+"\n", args...)
		return errUsage
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil
	case err != nil:
		return fail("%v; edge --help lists the flags", err)
	case flags.NArg() > 0:
		return fail("unexpected argument %q; see edge -help", flags.Arg(0))
	case *showVersion:
		fmt.Fprintln(stdout, "weir edge", version.String())
		return nil
	case *busy && (*dev || *file != "" || *check):
		return fail("-overload needs a node of edge -dev in another terminal; leave other flags out")
	case *busy:
		return overload(ctx, config.Dev("").Listen.Public, stdout)
	case *dev && (*file != "" || *check):
		return fail("-dev brings its own configuration; leave -config and -check out")
	case *dev:
		return runDev(ctx, stdout, stderr)
	case *file == "":
		return fail("name a configuration with -config FILE, or try edge -dev; see edge -help")
	}
	load := config.Load
	if *check {
		load = func(file string) (*config.Config, error) {
			c, warnings, err := config.CheckFile(file)
			for _, w := range warnings {
				fmt.Fprintln(stderr, "edge: warning:", w)
			}
			return c, err
		}
	}
	c, err := load(*file)
	if err != nil {
		return fail("%v", err)
	}
	if *check {
		good := "configuration and rules are good"
		if c.Rules.Source == "consul" {
			good = "configuration and cached rules, if any, are good; consul was not asked"
		}
		fmt.Fprintln(stdout, good)
		return nil
	}
	return serve(ctx, c, "", stderr, nil)
}

func runDev(ctx context.Context, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	origin, err := edge.StartOrigin(ctx, logs.JSON(stderr, slog.LevelInfo))
	if err != nil {
		return err
	}
	return inUse(serve(ctx, config.Dev(origin), config.SampleRules, stderr, func(public, admin net.Addr) {
		fmt.Fprintf(stdout, devHint, public, admin, os.Args[0])
	}))
}

// inUse adds a remedy if another program has one of the addresses of -dev, which are fixed.
func inUse(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: set listen.public and listen.admin in a configuration (docs/CONFIG.md), and run edge -config FILE instead of -dev", err)
	}
	return err
}

// serve runs a node until ctx ends.
func serve(ctx context.Context, c *config.Config, builtin string, stderr io.Writer, ready func(public, admin net.Addr)) error {
	defer runtime.KeepAlive(make([]byte, untouched))
	log := logs.JSON(stderr, c.LogLevel())
	edge.LogRedis(log)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	node, err := edge.New(c, builtin, log)
	if err != nil {
		fmt.Fprintln(stderr, "edge:", err)
		return errUsage
	}
	return node.Run(ctx, reload, ready)
}
