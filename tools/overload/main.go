// Command overload shows what the load shedder holds under overload. It prints one
// table of a simulation in virtual time and one of real edge nodes in front of an
// origin of known capacity, each with a column per contender. docs/SHEDDING.md records
// a run of it.
//
// It starts every server itself on loopback; bin/edge must be built, and wrk installed
// for the cost of a refusal (make overload does both).
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/weir-edge/weir/tools/internal/overload"
)

func main() {
	role := flag.String("role", "", "internal: run one of the servers: origin, refuse, refuse-same or edge")
	listen := flag.String("listen", "", "internal: its address")
	config := flag.String("config", "", "internal: the configuration of an edge by the published law")
	var o options
	flag.StringVar(&o.edge, "edge", "bin/edge", "the edge `BINARY` to measure")
	flag.StringVar(&o.only, "only", "", "`NAMES` of contenders and loads, as in weir,2x (default all): "+strings.Join(names(), ", "))
	flag.BoolVar(&o.short, "short", false, "no step of a load takes longer than 20 s: 5 minutes a contender instead of 8")
	flag.BoolVar(&o.simulate, "sim", false, "the simulation only")
	flag.Uint64Var(&o.seed, "seed", 1, "of arrivals and service times")
	flag.StringVar(&o.svg, "svg", "", "plot goodput against offered load into this `FILE`")
	flag.StringVar(&o.document, "doc", "", "write the tables into this Markdown `FILE`, between its comments")
	flag.StringVar(&o.traces, "trace", "", "write each run second by second, as CSV, into this `FOLDER`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once

	var err error
	switch *role {
	case "":
		err = o.run(ctx)
	case "origin":
		err = serveOrigin(ctx, *listen, o.seed)
	case "refuse", "refuse-same":
		err = serveRefusals(ctx, *listen, *role == "refuse-same")
	case "edge":
		err = serveEdge(ctx, *config)
	default:
		err = fmt.Errorf("unknown role %q", *role)
	}
	if errors.Is(err, context.Canceled) {
		err = errors.New("interrupted; no file was changed")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "overload:", err)
		os.Exit(1)
	}
}

type options struct {
	edge, only, svg, document, traces string
	short, simulate                   bool
	seed                              uint64
}

// refusal is the name of the one load that is not a scenario.
const refusal = "refusal"

// ours must hold every bar.
const ours = "weir"

// forInterest is simulated, and run only if -only names it.
const forInterest = "integrator"

func names() []string {
	var all []string
	for _, c := range overload.Contenders() {
		all = append(all, c.Name)
	}
	for _, s := range overload.Scenarios(false) {
		all = append(all, s.Name)
	}
	return append(all, refusal)
}

// wants reports whether -only names one of a kind, or none of that kind.
func (o *options) wants(name string, kind []string) bool {
	wanted := strings.Split(o.only, ",")
	return slices.Contains(wanted, name) || !slices.ContainsFunc(wanted, func(w string) bool { return slices.Contains(kind, w) })
}

// chosen returns the contenders and loads that -only selects.
func (o *options) chosen() (contenders []overload.Contender, scenarios []overload.Scenario, refusals bool, err error) {
	known := names()
	if o.only != "" {
		for name := range strings.SplitSeq(o.only, ",") {
			if !slices.Contains(known, name) {
				return nil, nil, false, fmt.Errorf("-only: there is no %q; choose from %s", name, strings.Join(known, ", "))
			}
		}
	}
	all := overload.Contenders()
	for _, c := range all {
		if o.wants(c.Name, known[:len(all)]) {
			contenders = append(contenders, c)
		}
	}
	for _, s := range overload.Scenarios(o.short) {
		if o.wants(s.Name, known[len(all):]) {
			scenarios = append(scenarios, s)
		}
	}
	return contenders, scenarios, o.wants(ours, known[:len(all)]) && o.wants(refusal, known[len(all):]), nil
}

func (o *options) run(ctx context.Context) error {
	contenders, scenarios, refusals, err := o.chosen()
	if err != nil {
		return err
	}
	var curves []overload.Curve
	report := report{texts: map[string]string{}}
	if len(scenarios) > 0 {
		fmt.Printf("Simulating %d contenders\n", len(contenders))
		var columns []overload.Column
		if columns, curves, err = o.simulation(contenders, scenarios); err != nil {
			return err
		}
		if err := report.add("simulation", fmt.Sprintf("Simulated, seed %d", o.seed), columns); err != nil {
			return err
		}
	}
	if !o.simulate {
		columns, err := o.real(ctx, contenders, scenarios, refusals)
		if err != nil {
			return err
		}
		title := fmt.Sprintf("Real nodes on %d %s that node, origin and clients share, %s, seed %d", runtime.NumCPU(), plural("core", runtime.NumCPU()), runtime.Version(), o.seed)
		if err := report.add("real", title, columns); err != nil {
			return err
		}
		for i := range curves {
			curves[i].Real = points(columns, curves[i].Name)
		}
	}
	if err := o.save(curves, report.texts); err != nil {
		return err
	}
	if len(report.missed) > 0 {
		return fmt.Errorf("%s misses:\n  %s", ours, strings.Join(report.missed, "\n  "))
	}
	return nil
}

func plural(word string, n int) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// report collects tables, as Markdown by name, and the bars that ours missed.
type report struct {
	texts  map[string]string
	missed []string
}

// add prints a table and keeps it.
func (r *report) add(name, title string, columns []overload.Column) error {
	table := overload.NewTable(columns)
	fmt.Printf("\n%s\n\n", title)
	if err := table.Terminal(os.Stdout); err != nil {
		return err
	}
	r.texts[name] = "\n" + title + ".\n\n" + table.Markdown() + "\n"
	for _, missed := range table.Missed(ours) {
		r.missed = append(r.missed, name+": "+missed)
	}
	return nil
}

// simulation runs everything in virtual time, as many runs at once as there are cores.
func (o *options) simulation(contenders []overload.Contender, scenarios []overload.Scenario) ([]overload.Column, []overload.Curve, error) {
	loads := overload.CurveLoads()
	columns, curves := make([]overload.Column, len(contenders)), make([]overload.Curve, len(contenders))
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	run := func(c overload.Contender, s overload.Scenario, into *overload.Result) {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			run := overload.Simulate(s.Plan, c, o.seed)
			*into = overload.Measure(s, run)
			if err := o.trace("simulated", c, s, run); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	plotted := make([][]overload.Result, len(contenders))
	for i, c := range contenders {
		columns[i] = overload.Column{Name: c.Name, Results: make([]overload.Result, len(scenarios))}
		for j, s := range scenarios {
			run(c, s, &columns[i].Results[j])
		}
		plotted[i] = make([]overload.Result, len(loads))
		if o.svg == "" {
			continue
		}
		for j, load := range loads {
			s := overload.Overload(load)
			s.Plan = s.Plan.Scale(o.short)
			run(c, s, &plotted[i][j])
		}
	}
	wg.Wait()
	for i, c := range contenders {
		curves[i].Name = c.Name
		for _, r := range plotted[i] {
			curves[i].Simulated = append(curves[i].Simulated, overload.Point{Offered: r.Offered, Goodput: r.Goodput})
		}
	}
	return columns, curves, failed
}

// real runs one contender after another, each load with its own node and origin.
func (o *options) real(ctx context.Context, contenders []overload.Contender, scenarios []overload.Scenario, refusals bool) (columns []overload.Column, err error) {
	l, err := newLab()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	for _, c := range contenders {
		if c.Name == forInterest && !strings.Contains(o.only, forInterest) {
			continue
		}
		column := overload.Column{Name: c.Name}
		for _, s := range scenarios {
			if c.Name != ours && s.Load > 1 && s.Load < 2 {
				continue // two minutes each, and the simulation shows what they do
			}
			fmt.Printf("%s, %s, %s: ", c.Name, s.Name, s.Plan.Length())
			result, err := o.one(ctx, l, c, s)
			if err != nil {
				fmt.Println("broken off")
				return nil, fmt.Errorf("%s, %s: %w", c.Name, s.Name, err)
			}
			fmt.Printf("offered %.2f C, answered %.3f C, p99 %d ms, %d shed, at most %d in flight\n",
				result.Offered, result.Goodput, result.P99.Milliseconds(), result.Sheds, result.MaxInFlight)
			column.Results = append(column.Results, result)
		}
		if c.Name == ours && refusals {
			if column.Refusal, err = o.refusal(ctx, l); err != nil {
				return nil, fmt.Errorf("cost of a refusal: %w", err)
			}
		}
		columns = append(columns, column)
	}
	return columns, nil
}

func (o *options) one(ctx context.Context, l *lab, c overload.Contender, s overload.Scenario) (overload.Result, error) {
	defer l.stop()
	origin, _, err := l.self("origin", "-seed", fmt.Sprint(o.seed))
	if err != nil {
		return overload.Result{}, err
	}
	n, err := l.startNode(o.edge, origin, c.Settings, true)
	if err != nil {
		return overload.Result{}, err
	}
	run, err := n.measure(ctx, s, o.seed)
	if err != nil {
		return overload.Result{}, err
	}
	return overload.Measure(s, run), o.trace("real", c, s, run)
}

// points returns a contender's measures at constant loads.
func points(columns []overload.Column, name string) []overload.Point {
	var all []overload.Point
	for _, c := range columns {
		for _, r := range c.Results {
			if c.Name == name && !slices.Contains([]string{overload.Calm, overload.Latch, overload.Storm}, r.Scenario) {
				all = append(all, overload.Point{Offered: r.Offered, Goodput: r.Goodput})
			}
		}
	}
	return all
}

// save writes the picture and the document, if requested.
func (o *options) save(curves []overload.Curve, tables map[string]string) error {
	if o.svg != "" && len(curves) > 0 {
		var picture bytes.Buffer
		if err := overload.Plot(&picture, curves); err != nil {
			return err
		}
		if err := os.WriteFile(o.svg, picture.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if o.document == "" {
		return nil
	}
	text, err := os.ReadFile(o.document)
	if err != nil {
		return err
	}
	for name, table := range tables {
		if text, err = overload.Regenerate(text, name, table); err != nil {
			return fmt.Errorf("%s: %w", o.document, err)
		}
	}
	return os.WriteFile(o.document, text, 0o644)
}
