// Command bench compares weir with its alternatives on one machine in one run, and prints
// ratios. make bench writes them to docs/BENCHMARKS.md, each table with a chart.
//
// It starts every server on loopback: redis-server, nginx, Caddy, HAProxy, wrk, h2load and
// the edge must be installed or built (make bench does both). The contenders of a table take
// turns for several rounds; a ratio is the median of the ratios within each round.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-edge/weir/tools/internal/paired"
	"github.com/weir-edge/weir/tools/internal/report"
)

func main() {
	role := flag.String("role", "", "internal: run one of the bare servers")
	listen := flag.String("listen", "", "internal: its address")
	origin := flag.String("origin", "", "internal: where it forwards")
	redis := flag.String("redis", "", "internal: which Redis it asks")
	certificate := flag.String("certificate", "", "internal: its certificate, for TLS")
	key := flag.String("key", "", "internal: the certificate's key")
	o := options{}
	flag.StringVar(&o.edge, "edge", "bin/edge", "the edge `BINARY` to measure")
	flag.StringVar(&o.before, "before", "", "also measure this older edge `BINARY`, in the same rounds")
	flag.IntVar(&o.rounds, "rounds", 0, "rounds of each comparison; 0 for as many as each part needs")
	flag.DurationVar(&o.duration, "duration", 0, "of one measurement; 0 for what suits each part")
	flag.StringVar(&o.only, "only", "", "comma-separated `PARTS`: "+strings.Join(names(), ", ")+" (default all)")
	flag.StringVar(&o.profiles, "profiles", "", "write CPU profiles of the edge under load, and with latency execution traces, into this `FOLDER`")
	flag.StringVar(&o.document, "doc", "", "write the tables into this Markdown `FILE`, between its comments, and their charts into the folder plots next to it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var err error
	if *role != "" {
		err = serveBare(ctx, *role, *listen, *origin, *redis, *certificate, *key)
	} else {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	edge, before, only, profiles, document string
	rounds                                 int
	duration                               time.Duration
}

// bench is one run.
type bench struct {
	options
	length  paired.Length
	dir     string
	started []*exec.Cmd       // servers that run until the comparison ends
	admins  map[string]string // of edges, by public address
	held    []net.Conn        // with requests in flight
	tables  []*report.Table
	// earlier has the contenders of the older edge by table, while starting only.
	earlier  map[string][]*contender
	starting bool
}

// part is a group of comparisons that share servers.
type part struct {
	name     string
	length   paired.Length
	duration time.Duration
	run      func(*bench, context.Context) error
}

// The comparison of refusals runs until the ratio's standard error is 0.5%: then five runs
// agree within 2%, except about one run in twenty.
var (
	few     = paired.Length{Least: 5}
	precise = paired.Length{Least: 15, Most: 150, Precision: 0.005}
)

var parts = []part{
	{"proxy", few, 4 * time.Second, (*bench).proxy},
	{"latency", paired.Length{Least: 20}, 2 * time.Second, (*bench).latency},
	{"leased", few, 4 * time.Second, (*bench).leased},
	{"http2", few, 4 * time.Second, (*bench).http2},
	{"behavior", paired.Length{Least: 15, Most: 60, Precision: 0.01}, 2 * time.Second, (*bench).behavior},
	{"forward", few, 4 * time.Second, (*bench).forward},
	{"gateways", few, 2 * time.Second, (*bench).gateways},
	{"refuse", precise, time.Second, (*bench).refuse},
	{"shed", precise, time.Second, (*bench).shed},
	{"rls", few, 4 * time.Second, (*bench).rls},
	{"authz", few, 4 * time.Second, (*bench).authz},
	{"store", few, 3 * time.Second, (*bench).store},
	{"hot", few, 3 * time.Second, (*bench).hot},
	{"memory", paired.Length{Least: 3}, 3 * time.Second, (*bench).memory},
	{"swap", paired.Length{Least: 3}, 10 * time.Second, (*bench).swap},
}

func names() (all []string) {
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

func run(ctx context.Context, o options) error {
	var only []string
	if o.only != "" {
		only = strings.Split(o.only, ",")
	}
	for _, name := range only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("-only: there is no part %q; choose from %s", name, strings.Join(names(), ", "))
		}
	}
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return err
	}
	b := &bench{options: o, dir: dir, admins: map[string]string{}}
	defer b.close()
	for _, p := range parts {
		if only != nil && !slices.Contains(only, p.name) {
			continue
		}
		b.length, b.duration = p.length, p.duration
		if o.rounds > 0 {
			b.length = paired.Length{Least: o.rounds}
		}
		if o.duration > 0 {
			b.duration = o.duration
		}
		if err := b.beforeToo(func() error { return p.run(b, ctx) }); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		b.stopAll()
	}
	if o.document == "" {
		return nil
	}
	return report.Save(o.document, "bench", b.tables)
}

// beforeToo runs a part. With an older edge it first only starts the part's contenders with
// that.
func (b *bench) beforeToo(run func() error) error {
	b.earlier = map[string][]*contender{}
	if b.before != "" {
		edge := b.edge
		b.edge, b.starting = b.before, true
		err := run()
		b.edge, b.starting = edge, false
		if err != nil {
			return err
		}
	}
	return run()
}

func (b *bench) close() {
	b.stopAll()
	_ = os.RemoveAll(b.dir)
}
