// Command overload shows what the load shedder holds under overload. It prints one
// table of a simulation in virtual time and one of real edge nodes in front of an
// origin of known capacity, each with a column per contender. docs/OVERLOAD.md records
// a run of it.
//
// It starts every server itself on loopback; bin/edge must be built, and wrk installed
// for the cost of a refusal (make overload does both).
package main

import (
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
	"github.com/weir-edge/weir/tools/internal/report"
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
	flag.StringVar(&o.svg, "svg", "", "plot critical requests and goodput against offered load into this `FILE`")
	flag.StringVar(&o.document, "doc", "", "write the tables into this Markdown `FILE`, between its comments")
	flag.StringVar(&o.results, "results", "", "keep what real nodes measure in this `FILE`, and make tables and picture of all that it has")
	flag.IntVar(&o.parallel, "parallel", 1, "real runs at the same time; several need a machine that is otherwise idle")
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
	edge, only, svg, document, results, traces string
	short, simulate                            bool
	parallel                                   int
	seed                                       uint64
}

// refusal is the name of the one load that is not a scenario.
const refusal = "refusal"

// ours must hold every bar.
const ours = "weir"

// forInterest names contenders that are simulated but run only if -only names them.
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
	results := &overload.Results{}
	virtual := *o
	if o.results != "" {
		if results, err = overload.LoadResults(o.results); err != nil {
			return err
		}
		virtual.only = "" // it takes seconds, and the document shows all of it
	}
	simulate, in, _, err := virtual.chosen()
	if err != nil {
		return err
	}
	var curves []overload.Curve
	if len(in) > 0 {
		fmt.Printf("Simulating %d contenders\n", len(simulate))
		var columns []overload.Column
		if columns, curves, err = o.simulation(simulate, in); err != nil {
			return err
		}
		results.Put(simulated, fmt.Sprintf("Simulated, seed %d", o.seed), columns)
	}
	if !o.simulate {
		columns, err := o.real(ctx, contenders, scenarios, refusals)
		if err != nil {
			return err
		}
		results.Put(measured, o.title(), columns)
	}
	out := outcome{texts: map[string]string{}}
	for _, kind := range []string{simulated, measured} {
		if columns := results.Columns(kind); columns != nil {
			if err := out.add(kind, results.Title(kind), columns); err != nil {
				return err
			}
		}
	}
	for i := range curves {
		curves[i].Real = points(results.Columns(measured), curves[i].Name)
	}
	if err := o.save(curves, out.texts); err != nil {
		return err
	}
	if o.results != "" {
		if err := results.Save(o.results, measured); err != nil {
			return err
		}
	}
	if len(out.missed) > 0 {
		return fmt.Errorf("missed:\n  %s", strings.Join(out.missed, "\n  "))
	}
	return nil
}

// The tables.
const simulated, measured = "simulation", "real"

// title says how the real nodes ran.
func (o *options) title() string {
	cores := runtime.NumCPU()
	text := fmt.Sprintf("Real nodes on %d %s that node, origin and clients share, %s, seed %d", cores, plural("core", cores), runtime.Version(), o.seed)
	if o.short {
		text += ", steps of at most 20 s"
	}
	if o.parallel > 1 {
		text += fmt.Sprintf(", %d runs at the same time", o.parallel)
	}
	return text
}

func plural(word string, n int) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// outcome collects the tables, as Markdown by name, and the required bars that were missed.
type outcome struct {
	texts  map[string]string
	missed []string
}

// add prints a table and keeps it.
func (r *outcome) add(name, title string, columns []overload.Column) error {
	table := overload.NewTable(columns)
	fmt.Printf("\n%s\n\n", title)
	if err := table.Terminal(os.Stdout); err != nil {
		return err
	}
	page := table
	if name == simulated {
		page = table.Brief() // the simulation takes seconds, and prints the rest
	}
	r.texts[name] = "\n" + title + ".\n\n" + page.Markdown() + "\n"
	for _, missed := range table.Missed(ours) {
		r.missed = append(r.missed, ours+", "+name+": "+missed)
	}
	for _, missed := range table.MissedAlone(overload.Estimated) {
		r.missed = append(r.missed, overload.Estimated+", "+name+": "+missed)
	}
	return nil
}

// simulation runs everything in virtual time, one run per core at a time.
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
			run := overload.Simulate(s.Plan, c, o.seed, s.Changes...)
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
			curves[i].Simulated = append(curves[i].Simulated, overload.Point{Offered: r.Offered, Goodput: r.Goodput, Critical: r.Critical})
		}
	}
	return columns, curves, failed
}

// save writes the picture and the document, if requested.
func (o *options) save(curves []overload.Curve, tables map[string]string) error {
	if o.svg != "" && len(curves) > 0 {
		if err := os.WriteFile(o.svg, overload.Plot(curves), 0o644); err != nil {
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
		if text, err = report.Regenerate(text, "overload", name, table); err != nil {
			return fmt.Errorf("%s: %w", o.document, err)
		}
	}
	return os.WriteFile(o.document, text, 0o644)
}
