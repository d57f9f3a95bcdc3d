// Command run loads the lab with the scenarios of loadtest/, each a k6 script, and writes a
// report. It starts the lab if there is none, applies the rules of the scenarios, causes the
// faults that the scripts request, checks what the oracle found, and leaves the lab as it
// was. make loadtest builds and starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// scenario is one k6 script.
type scenario struct {
	name     string
	mustFail bool // the proof that a run can fail
	global   bool // under the rules that regions share
}

var scenarios = []scenario{
	{name: "steady"}, {name: "flash-crowd"}, {name: "attacker"}, {name: "zipf-tail"}, {name: "shedder-step"},
	{name: "region-loss"}, {name: "redis-master-loss"}, {name: "rules-swap"}, {name: "spill"}, {name: "leases"}, {name: "reports"}, {name: "behavior"}, {name: "shadow", mustFail: true},
	{name: "global-eventual", global: true}, {name: "global-escrow", global: true}, {name: "global-partition", global: true},
	{name: "follow-the-sun", global: true}, {name: "global-flash", global: true},
}

type options struct {
	root, lab, vars, out, only string
	full                       bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the `FOLDER` of the checkout, with bin/ built")
	flag.StringVar(&o.lab, "lab", os.Getenv("LAB"), "the lab's `FOLDER` (default $LAB, or .lab)")
	flag.StringVar(&o.vars, "vars", "", "the `FILE` of variables that the lab was started with, if any")
	flag.StringVar(&o.out, "out", "bin/loadtest", "the `FOLDER` for report.html, report.json and logs")
	flag.StringVar(&o.only, "only", "", "`NAMES` of scenarios, as in steady,shadow (default all): "+strings.Join(names(), ", "))
	flag.BoolVar(&o.full, "full", false, "the long form: minutes for each phase")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "loadtest: unexpected %q; name scenarios as in -only %s\n", flag.Arg(0), flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// Ctrl-C also ends a tee that we write to; the lab must be restored anyway.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	good, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
	}
	if err != nil || !good {
		os.Exit(1)
	}
}

func names() []string {
	var all []string
	for _, s := range scenarios {
		all = append(all, s.name)
	}
	return all
}

// chosen returns the scenarios that -only selects.
func (o *options) chosen() ([]scenario, error) {
	if o.only == "" {
		return scenarios, nil
	}
	wanted := strings.Split(o.only, ",")
	for _, w := range wanted {
		if !slices.Contains(names(), w) {
			return nil, fmt.Errorf("-only: there is no %q; choose from %s", w, strings.Join(names(), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(scenarios), func(s scenario) bool { return !slices.Contains(wanted, s.name) }), nil
}

func (o *options) run(ctx context.Context) (good bool, err error) {
	chosen, err := o.chosen()
	if err != nil {
		return false, err
	}
	for _, path := range []*string{&o.root, &o.lab, &o.out} {
		if *path == "" {
			*path = ".lab"
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return false, err
		}
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return false, err
	}
	// An earlier run's results must not pass for this one's.
	for _, name := range []string{"report.html", "report.json"} {
		if err := os.Remove(filepath.Join(o.out, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
	}
	all := report{Began: time.Now(), Form: "short", Chosen: len(chosen)}
	if o.full {
		all.Form = "full"
	}
	err = o.load(ctx, chosen, &all)
	all.Seconds = time.Since(all.Began).Seconds()
	if err != nil {
		all.Incomplete = err.Error()
	}
	if e := all.write(o.out); e != nil {
		return false, errors.Join(err, e)
	}
	all.print(os.Stdout, o.out)
	return all.good(), err
}

var errInterrupted = errors.New("interrupted")

// load plays the scenarios. If it fails, the report contains what it has.
func (o *options) load(ctx context.Context, chosen []scenario, all *report) (err error) {
	l, leave, err := openLab(ctx, o.root, o.lab, o.vars)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(errInterrupted, err)
		}
		return err
	}
	defer func() {
		if e := leave(); e != nil {
			err = errors.Join(err, fmt.Errorf("the lab is not as it was: %w", e))
		}
	}()
	all.Lab = l.state
	for i, s := range chosen {
		fmt.Printf("[%d/%d] %s\n", i+1, len(chosen), s.name)
		r, err := o.repeat(ctx, l, s, all.Form)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		all.Scenarios = append(all.Scenarios, *r)
		r.print(os.Stdout, all.Lab)
	}
	return nil
}

// attempts is how often a scenario is tried while the machine is too busy for a verdict.
const attempts = 3

// repeat replays a scenario that failed while the machine was too busy: decisions were made
// without Redis where nothing was broken, or k6 could not send its requests. The last attempt
// counts, whatever its outcome.
func (o *options) repeat(ctx context.Context, l *lab, s scenario, form string) (*result, error) {
	var repeated []string
	for {
		r, err := o.play(ctx, l, s, form)
		if err != nil {
			return nil, err
		}
		r.Repeated = repeated
		why := r.busy()
		if why == "" || len(r.Problems) == 0 || s.mustFail {
			return r, nil
		}
		if len(repeated) == attempts-1 {
			r.Problems = append(r.Problems, fmt.Sprintf("%s; the same happened in %d attempts", why, attempts))
			return r, nil
		}
		repeated = append(repeated, why+". Found: "+strings.Join(r.Problems, "; "))
		fmt.Printf("   again: %s\n", why)
	}
}

// play runs one scenario.
func (o *options) play(ctx context.Context, l *lab, s scenario, form string) (*result, error) {
	if err := l.routed(ctx); err != nil {
		return nil, err
	}
	if err := l.use(ctx, s.rules()); err != nil {
		return nil, err
	}
	c, err := l.control(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	before := l.fallbacks(ctx)
	points, summary, log := o.file(s, "points.json"), o.file(s, "summary.json"), o.file(s, "log")
	for _, name := range []string{points, summary} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	k6 := exec.CommandContext(ctx, filepath.Join(o.root, "bin", "k6"), "run", "--quiet", "--no-usage-report", "--address", "", "--out", "json="+points, filepath.Join(o.root, "loadtest", s.name+".js"))
	k6.Stdout, k6.Stderr = out, out
	k6.Env = append(os.Environ(), "LAB="+l.json(), "CONTROL="+c.url, "FORM="+form, "OUT="+summary, fmt.Sprintf("RUN=%d", time.Now().Unix()/7%250))
	apart(k6)
	k6.WaitDelay = 20 * time.Second
	began := time.Now()
	ended := k6.Run()
	c.close()
	if ctx.Err() != nil {
		fmt.Println("   interrupted; restoring the lab, which a second interrupt cuts short")
		ended = errInterrupted
	}
	// Whatever happened, repair what the script broke first.
	if err := c.calm(); err != nil {
		return nil, errors.Join(ended, err)
	}
	status := 0
	if ended != nil {
		var exit *exec.ExitError
		if !errors.As(ended, &exit) {
			return nil, ended
		}
		status = exit.ExitCode()
	}
	phases, failed := c.found()
	r := &result{Name: s.name, MustFail: s.mustFail, Began: began, Status: status, Phases: phases, Failed: failed, Fallback: difference(before, l.fallbacks(ctx))}
	if err := r.read(summary, points); err != nil {
		text, _ := os.ReadFile(log)
		return nil, fmt.Errorf("%w; k6 ended with status %d and said: %s", err, status, tail(string(text), 1500))
	}
	r.Problems = r.judge(l.state)
	_ = os.Remove(points)
	return r, nil
}

// rules names the document in loadtest/ that a scenario runs under.
func (s scenario) rules() string {
	if s.global {
		return "rules-global.json"
	}
	return "rules.json"
}

func (o *options) file(s scenario, kind string) string { return filepath.Join(o.out, s.name+"."+kind) }

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
