package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

// target is a region that a command works on.
type target struct {
	name   string
	consul *region.Consul
	kind   *kind
	docs   *region.Documents // of that kind
	admin  *admin

	prefix  string // of the keys that its edges follow
	warn    func(format string, args ...any)
	strayed sync.Once // the warning of strangers
}

// nodes are the registered edges of the region. One datacenter may serve several
// regions, each with a prefix of its own.
func (t *target) nodes(ctx context.Context) ([]region.Node, error) {
	all, err := t.consul.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var own []region.Node
	renamed, misled := map[string]int{}, map[string]int{}
	for _, n := range all {
		switch here := n.Prefix == "" || n.Prefix == t.prefix; {
		case here && n.Region == t.name:
			own = append(own, n)
		case here:
			renamed[n.Region]++
		case n.Region == t.name:
			misled[n.Prefix]++
		}
	}
	if len(renamed)+len(misled) > 0 {
		t.strayed.Do(func() {
			for _, name := range sortedKeys(renamed) {
				t.warn("%s: %s in region %s; the fleet file calls this one %s", t.name, claim(renamed[name]), orDash(name), t.name)
			}
			for _, prefix := range sortedKeys(misled) {
				t.warn("%s: %s configured with consul.prefix %s; the fleet file says %s", t.name, claim(misled[prefix]), printable(prefix), t.prefix)
			}
		})
	}
	return own, nil
}

// claim begins a sentence about what nodes say of themselves.
func claim(nodes int) string {
	if nodes == 1 {
		return "1 node says it is"
	}
	return fmt.Sprintf("%d nodes say they are", nodes)
}

// regionFlag adds --region.
func (p *program) regionFlag(c *cobra.Command, names *[]string) {
	c.Flags().StringSliceVar(names, "region", nil, "only this `REGION`; several: repeat it, or separate them by commas (default: all of the fleet file)")
	_ = c.RegisterFlagCompletionFunc("region", p.completeRegions) // fails only if the flag is unknown
}

// watchFlag adds --watch, which alone means so often.
func watchFlag(c *cobra.Command, every *time.Duration, alone string) {
	f := c.Flags()
	f.DurationVarP(every, "watch", "w", 0, "look again and again, so `OFTEN`")
	f.Lookup("watch").NoOptDefVal = alone
}

// fleet reads the fleet file.
func (p *program) fleet() (*region.Fleet, error) {
	if p.fleetFile == "" {
		return nil, misused("no fleet file; name it with --fleet FILE or in WEIR_FLEET")
	}
	f, err := region.LoadFleet(p.fleetFile)
	if err != nil {
		return nil, misused("%w", err)
	}
	return f, nil
}

// targets opens the chosen regions for the rules.
func (p *program) targets(names []string) (list []*target, closeAll func(), err error) {
	return p.targetsOf(rulesKind, names)
}

// targetsOf opens the chosen regions, in the order of the fleet file, for one kind of
// document. It connects to none of them yet.
func (p *program) targetsOf(k *kind, names []string) (list []*target, closeAll func(), err error) {
	fleet, err := p.fleet()
	if err != nil {
		return nil, nil, err
	}
	chosen, err := fleet.Select(names)
	if err != nil {
		return nil, nil, misused("--region: %w", err)
	}
	closeAll = func() {
		for _, t := range list {
			t.consul.Close()
			t.admin.close()
		}
	}
	for _, r := range chosen {
		c, err := region.OpenConsul(r.Consul)
		if err != nil {
			closeAll()
			return nil, nil, misused("%s: region %s: %w", p.fleetFile, r.Name, err)
		}
		list = append(list, &target{
			name: r.Name, consul: c, kind: k, docs: c.Documents(k.name), prefix: cmp.Or(r.Consul.Prefix, region.DefaultPrefix), warn: p.warn,
			admin: newAdmin(r.AdminTokenFile, p.insecureAdmin, p.timeout),
		})
	}
	return list, closeAll, nil
}

// bounded limits one question to a Consul.
func (p *program) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("no answer within %s", p.timeout))
}

// answer is what one region gave.
type answer[T any] struct {
	target *target
	value  T
	err    error
}

// ask asks all regions at once and returns their answers in the same order. Each has
// the time of --timeout.
func ask[T any](ctx context.Context, p *program, targets []*target, question func(context.Context, *target) (T, error)) []answer[T] {
	return askUnbounded(ctx, targets, func(ctx context.Context, t *target) (T, error) {
		ctx, cancel := p.bounded(ctx)
		defer cancel()
		return question(ctx, t)
	})
}

func askUnbounded[T any](ctx context.Context, targets []*target, question func(context.Context, *target) (T, error)) []answer[T] {
	answers := make([]answer[T], len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() {
			value, err := question(ctx, t)
			answers[i] = answer[T]{t, value, err}
		})
	}
	all.Wait()
	return answers
}

// failures are the regions that gave an error, and those errors joined.
func failures[T any](answers []answer[T]) (names []string, err error) {
	var errs []error
	for _, a := range answers {
		if a.err != nil {
			names = append(names, a.target.name)
			errs = append(errs, fmt.Errorf("%s: %w", a.target.name, a.err))
		}
	}
	return names, errors.Join(errs...)
}

// unanswered reports on regions that could not be asked, after the others were
// shown: nil when there are none.
func unanswered[T any](answers []answer[T]) error {
	names, err := failures(answers)
	switch {
	case err == nil:
		return nil
	case len(names) == len(answers):
		status := ExitStatus(answers[0].err)
		for _, a := range answers {
			if ExitStatus(a.err) != status {
				status = statusFailed
			}
		}
		return &failure{status, err}
	}
	return partial("no answer from %s:\n%w", strings.Join(names, ", "), err)
}

func regionNames(targets []*target) []string {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.name
	}
	return names
}

// whoami is whom the history will name.
func whoami(flag string) (string, error) {
	name, from := flag, "--by"
	if name == "" {
		name, from = os.Getenv("WEIR_USER"), "WEIR_USER"
	}
	if name == "" {
		login := "unknown"
		if u, err := user.Current(); err == nil {
			login = u.Username
		}
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		name = login + "@" + host
	}
	return name, checkText(from, name, 128)
}

// checkText refuses what others could not read in the history.
func checkText(what, text string, longest int) error {
	if len(text) > longest {
		return misused("%s: must be at most %d bytes (got %d)", what, longest, len(text))
	}
	if printable(text) != text {
		return misused("%s: must be one line without control characters (got %q)", what, text)
	}
	return nil
}

// distinct returns the different values of a list, in order of appearance.
func distinct(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
