package command

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// BindRegions adds --region.
func BindRegions(f *pflag.FlagSet, names *[]string) {
	f.StringSliceVar(names, "region", nil, "only this `REGION`; several: repeat it, or separate them by commas (default: all of the fleet file)")
}

func YesFlag(f *pflag.FlagSet, yes *bool) { f.BoolVarP(yes, "yes", "y", false, "do not ask") }

// neverAsks is the usage of --yes of a command that asks nothing.
const neverAsks = "accepted as everywhere; this command never asks"

// NoQuestion adds a --yes that changes nothing: who is in a hurry does not know which commands ask.
func NoQuestion(f *pflag.FlagSet) { f.BoolP("yes", "y", false, neverAsks) }

// LongestMessage bounds --message, in bytes.
const LongestMessage = 1024

// MessageFlag adds --message of a command that does not need it.
func MessageFlag(f *pflag.FlagSet, message *string) {
	f.StringVarP(message, "message", "m", "", "`TEXT` for the history: why")
}

// ByFlag adds --by.
func ByFlag(f *pflag.FlagSet, by *string) {
	f.StringVar(by, "by", "", "`NAME` for the history and locks (default: WEIR_USER, or user@host)")
}

// RegionFlag adds --region, with its completion.
func (p *Program) RegionFlag(c *cobra.Command, names *[]string) {
	BindRegions(c.Flags(), names)
	_ = c.RegisterFlagCompletionFunc("region", p.CompleteRegions) // fails only if the flag is unknown
}

// Fleet reads the fleet file.
func (p *Program) Fleet() (*region.Fleet, error) {
	if p.FleetFile == "" {
		return nil, term.Misused("no fleet file; name it with --fleet FILE or in WEIR_FLEET")
	}
	f, err := region.LoadFleet(p.FleetFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, term.Misused("no fleet file %s here; name another with --fleet FILE or in WEIR_FLEET (regionctl --help shows what one looks like)", p.FleetFile)
	}
	if err != nil {
		return nil, term.Misused("%w", err)
	}
	return f, nil
}

// KnownRegions returns the regions of the fleet file, or nil if none is named.
func (p *Program) KnownRegions() ([]string, error) {
	if p.FleetFile == "" {
		return nil, nil
	}
	file, err := p.Fleet()
	if err != nil {
		return nil, err
	}
	return fleet.Map(file.Regions, func(r region.FleetRegion) string { return r.Name }), nil
}

// Targets opens the selected regions, in the order of the fleet file, for one kind of
// document. It does not connect yet.
func (p *Program) Targets(k *fleet.Kind, names []string) (list []*fleet.Target, err error) {
	file, err := p.Fleet()
	if err != nil {
		return nil, err
	}
	chosen, err := file.Select(names)
	if err != nil {
		return nil, term.Misused("--region: %w", err)
	}
	for _, r := range chosen {
		t := &fleet.Target{Name: r.Name, Kind: k, Timeout: p.Timeout, Prefix: cmp.Or(r.Consul.Prefix, consul.DefaultPrefix), Warn: p.Warn}
		r.Consul.Dial, r.Consul.Guard = p.Dial, t.Confirm
		c, err := consul.Open(r.Consul)
		if err != nil {
			return nil, term.Misused("%s: region %s: %w", p.FleetFile, r.Name, err)
		}
		admin, err := fleet.NewAdmin(&r, p.InsecureAdmin, p.Timeout)
		if err != nil {
			c.Close()
			return nil, term.Misused("%s: region %s: %w", p.FleetFile, r.Name, err)
		}
		t.Consul, t.Docs, t.Admin = c, c.Documents(k.Name), admin
		if k.Temporary {
			t.Docs = t.Docs.Temporary()
		}
		if err := p.away[r.Name]; err != nil {
			c.Abandon(err)
		}
		list, p.opened = append(list, t), append(p.opened, t)
	}
	return list, nil
}

// LeaveOut makes targets of a region that are opened later fail at once, so that a Consul that does
// not answer costs a run one timeout.
func (p *Program) LeaveOut(region string, why error) {
	if p.away == nil {
		p.away = map[string]error{}
	}
	p.away[region] = why
}

// TargetsToChange opens the selected regions for a change. It refuses a Consul that is not that of its
// region, unless the change may be partial and there are others. A region that is refused or
// does not answer is not asked again.
func (p *Program) TargetsToChange(ctx context.Context, k *fleet.Kind, names []string, partial bool) ([]*fleet.Target, error) {
	targets, err := p.Targets(k, names)
	var wrong []string
	for _, a := range Confirmed(ctx, targets) {
		var foreign *fleet.Foreign
		if errors.As(a.Err, &foreign) {
			wrong = append(wrong, a.Target.Name+": "+a.Err.Error())
		}
		if a.Err != nil && ctx.Err() == nil {
			a.Target.Consul.Abandon(a.Err)
		}
	}
	if wrong != nil && (!partial || len(wrong) == len(targets)) {
		return nil, term.Misused("nothing was changed: %s", strings.Join(wrong, "\n"))
	}
	return targets, err
}

func Confirmed(ctx context.Context, targets []*fleet.Target) []fleet.Answer[struct{}] {
	return fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (struct{}, error) { return struct{}{}, t.Confirm(ctx) })
}

// Close closes the connections to all regions that were opened.
func (p *Program) Close() {
	for _, t := range p.opened {
		t.Consul.Close()
		t.Admin.Close()
	}
}

// Unanswered reports on regions that could not be asked, after the others were shown, or
// returns nil.
func Unanswered[T any](answers []fleet.Answer[T]) error {
	names, err := fleet.Failures(answers)
	switch {
	case err == nil:
		return nil
	case !slices.ContainsFunc(answers, func(a fleet.Answer[T]) bool { return a.Err == nil }):
		status := term.ExitStatus(answers[0].Err)
		for _, a := range answers {
			if term.ExitStatus(a.Err) != status {
				status = term.StatusFailed
			}
		}
		return &term.Failure{Status: status, Err: err}
	}
	return term.Partial("no answer from %s:\n%w", strings.Join(names, ", "), err)
}

// AskRegions returns what each region answers; failed stands for one that does not.
func AskRegions[T any](ctx context.Context, targets []*fleet.Target, ask func(context.Context, *fleet.Target) (*T, error), failed func(region, why string) *T) ([]*T, error) {
	answers := fleet.AskUnbounded(ctx, targets, ask)
	list := make([]*T, len(answers))
	for i, a := range answers {
		if list[i] = a.Value; a.Err != nil {
			list[i] = failed(a.Target.Name, a.Err.Error())
		}
	}
	return list, Unanswered(answers)
}

// ShowEach is Show for a list.
func ShowEach[T any](p *Program, list []*T, wrong error, write func(*T, *bytes.Buffer, term.Style)) error {
	return Show(p, list, wrong, func(list []*T, b *bytes.Buffer, s term.Style) {
		for _, v := range list {
			write(v, b, s)
		}
	})
}

func RegionNames(targets []*fleet.Target) []string {
	return fleet.Map(targets, func(t *fleet.Target) string { return t.Name })
}

// Whoami returns the name for the history.
func (p *Program) Whoami(flag string) (string, error) {
	name, from := flag, "--by"
	if name == "" {
		name, from = p.User, "user"
	}
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
	return name, CheckText(from, name, 128)
}

// CheckText rejects text that would be unreadable in the history.
func CheckText(what, text string, longest int) error {
	if len(text) > longest {
		return term.Misused("%s: must be at most %d bytes (got %d)", what, longest, len(text))
	}
	if term.Printable(text) != text {
		return term.Misused("%s: must be one line without control characters (got %q)", what, text)
	}
	return nil
}
