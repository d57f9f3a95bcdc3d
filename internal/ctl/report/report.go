// Package report says in words how a change to the fleet proceeds and ended, whatever it
// changes: documents, the topology, drains.
package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Locks reports about locks to the user.
type Locks struct {
	Program *command.Program
	What    string
}

// Waits implements rollout.Reporter.
func (n *Locks) Waits(region string, other consul.Lock) {
	n.Program.Say("%s: waiting for %s, who is changing the %s; %s", region, term.OrDash(other.By), n.What, ends())
}

// ends says when a lock is released if its holder died.
func ends() string {
	return fmt.Sprintf("if that regionctl has died, its lock is free after %s", consul.StaleAfter)
}

// Takes implements rollout.Reporter.
func (n *Locks) Takes(regions []string, from string, broken bool) {
	if broken {
		n.Program.Warn("%s: broke the lock of %s; if that regionctl is still running, it stops before its next write", strings.Join(regions, ", "), term.OrDash(from))
		return
	}
	n.Program.Say("%s: took over the lock of %s, which was not renewed for %s", strings.Join(regions, ", "), term.OrDash(from), consul.StaleAfter)
}

// StaysLocked implements rollout.Reporter.
func (n *Locks) StaysLocked(region string, err error) {
	n.Program.Warn("%s: it may still be locked; the next change of the %s waits %s for it: %v", region, n.What, consul.StaleAfter, err)
}

// displaced says what happened to the locks of a change.
func displaced(s *rollout.Stop) string {
	switch by := s.Other; {
	case by == nil:
		return fmt.Sprintf("%s: the lock of this change is gone: it was removed, or taken by a change that has ended", s.Region)
	case by.Broke:
		return fmt.Sprintf("%s: %s broke the lock of this change at %s", s.Region, term.OrDash(by.By), term.Stamp(by.Since))
	default:
		return fmt.Sprintf("%s: %s took over the lock of this change at %s, because it was not renewed", s.Region, term.OrDash(by.By), term.Stamp(by.Since))
	}
}

// Region is one region of a change, as shown to users.
type Region struct {
	rollout.Result
	Gets string // the version that it has after the change
	Why  string // why it did not get it
	Redo string // the command that gives it that later; "": the same again
}

// Failed returns a region that did not answer, or refused.
func Failed(r rollout.Result, gets string) Region {
	t := Region{Result: r, Gets: gets}
	if r.Err != nil {
		t.Why = r.Err.Error()
	}
	return t
}

func With(regions []Region, outcomes ...rollout.Outcome) []Region {
	return fleet.Filter(regions, func(r Region) bool { return slices.Contains(outcomes, r.Outcome) })
}

func joined(regions []Region, separator string, of func(Region) string) string {
	return strings.Join(term.Distinct(fleet.Map(regions, of)), separator)
}

func NamesOf(regions []Region) []string {
	return fleet.Map(regions, func(r Region) string { return r.Name })
}

func Names(regions []Region) string {
	return joined(regions, ", ", func(r Region) string { return r.Name })
}

// Verb returns the form of a verb that follows the names of regions.
func Verb(regions []Region, one, several string) string {
	if len(regions) == 1 {
		return one
	}
	return several
}

// Holding says which version regions have.
func Holding(regions []Region) string {
	return Names(regions) + Verb(regions, " has ", " have ") + gets(regions)
}

func gets(regions []Region) string {
	return joined(regions, " and ", func(r Region) string { return r.Gets })
}

func ReasonsOf(regions []Region) string {
	return joined(regions, "\n", func(r Region) string { return r.Name + ": " + r.Why })
}

// OtherRegions is the remedy of commands that have --region.
const OtherRegions = "choose other regions with --region, "

// Reached names the regions that did not answer. Its error says that the change cannot
// begin without them.
func Reached(results []rollout.Result, partial bool, or string) (away []string, err error) {
	for _, r := range results {
		if r.Err != nil {
			away = append(away, r.Name)
			err = errors.Join(err, fmt.Errorf("%s: %w", r.Name, r.Err))
		}
	}
	switch {
	case len(away) == len(results):
		return nil, term.Failed("nothing was changed; no region can be reached:\n%w", err)
	case err != nil && !partial:
		return nil, term.Unreachable("nothing was changed, because %s cannot be reached:\n%w\nrepair that, %sor pass --partial to continue without it", strings.Join(away, ", "), err, or)
	}
	return away, nil
}

// Stopped says why a change of what stopped before it wrote anything.
func Stopped(err error, what string, regions []Region) error {
	var stop *rollout.Stop
	if !errors.As(err, &stop) {
		return err
	}
	switch stop.Why {
	case rollout.Interrupted:
		return term.Interrupted("interrupted; nothing was changed")
	case rollout.Unanswered:
		return term.Unreachable("nothing was changed: %w", err)
	case rollout.Busy:
		return term.Conflict("nothing was changed: %s: %s is changing the %s since %s; %s, and --break-lock does not wait",
			stop.Region, term.OrDash(stop.Other.By), what, term.Stamp(stop.Other.Since), ends())
	case rollout.Displaced:
		return term.Conflict("nothing was changed: %s", displaced(stop))
	case rollout.NotStored:
		list := With(regions, rollout.Failed)
		return term.Failed("nothing was changed, because %s did not store the document:\n%s", Names(list), ReasonsOf(list))
	}
	return term.Conflict("nothing was changed anywhere: %s", ReasonsOf(With(regions, rollout.Lost)[:1]))
}

// Outcome returns what is wrong after the regions were written, or nil. lost says which
// lock was lost before all writes were made; divided makes the error for a fleet that
// someone else has partly changed.
func Outcome(ctx context.Context, regions []Region, wrote bool, lost *rollout.Stop, divided func(string, ...any) error) error {
	have, left := With(regions, rollout.Applied, rollout.AlreadyThere), With(regions, rollout.Untouched)
	losing, unclear := With(regions, rollout.Lost), With(regions, rollout.Unknown)
	without := With(regions, rollout.Untouched, rollout.Lost, rollout.Failed, rollout.Unreachable)
	why := ReasonsOf(append(losing, With(regions, rollout.Unknown, rollout.Failed, rollout.Unreachable)...))
	if len(left) == 0 {
		lost = nil // all writes were made before
	}
	if lost != nil {
		why = strings.TrimSuffix(displaced(lost)+"\n"+why, "\n")
	}
	var parts []string
	if len(have) > 0 {
		parts = append(parts, Holding(have))
	}
	if len(without) > 0 {
		parts = append(parts, Names(without)+Verb(without, " has not", " have not"))
	}
	if len(unclear) > 0 {
		parts = append(parts, "in "+Names(unclear)+" it may have taken effect")
	}
	state, finish := strings.Join(parts, " and "), "running this again finishes it"
	if missing := fleet.Filter(append(without, unclear...), func(r Region) bool { return r.Redo != "" }); len(missing) > 0 {
		finish = joined(missing, "\n", func(r Region) string { return "left to do:  " + r.Redo })
	}
	nowhere := len(have)+len(unclear) == 0
	switch {
	case len(losing) > 0 && wrote && nowhere:
		return term.Conflict("this was briefly active:\n%s", why)
	case len(losing) > 0 && !wrote && len(unclear) == 0:
		return term.Conflict("nothing was changed anywhere: %s", why)
	case len(losing) > 0 || lost != nil:
		return divided("the fleet is divided: %s:\n%s", state, why)
	case len(without)+len(unclear) == 0:
		return nil
	case len(left) > 0 && ctx.Err() != nil && nowhere:
		return term.Interrupted("interrupted; nothing was changed")
	case len(left) > 0 && ctx.Err() != nil:
		return term.Interrupted("interrupted: %s; %s", state, finish)
	case nowhere:
		return term.Failed("nothing was changed: %s", why)
	case len(have) == 0:
		return term.Failed("%s may have taken effect in %s:\n%s\n%s", gets(unclear), Names(unclear), why, finish)
	}
	return term.Partial("%s:\n%s\n%s", state, why, finish)
}

// RegionResult is what every change prints about a region with -o json.
type RegionResult struct {
	Region string          `json:"region"`
	Result rollout.Outcome `json:"result"`
	Error  string          `json:"error,omitempty"`
}

func ResultOf(t Region) RegionResult { return RegionResult{t.Name, t.Outcome, t.Why} }

func WriteResults(b *bytes.Buffer, s term.Style, results []RegionResult) {
	t := term.Table{}
	t.Row("REGION", "RESULT")
	for _, r := range results {
		t.Row(r.Region, PaintOutcome(s, r.Result))
	}
	t.Print(b)
}

// PaintOutcome returns the outcome of a region for a table.
func PaintOutcome(s term.Style, o rollout.Outcome) string {
	switch o {
	case rollout.Applied, rollout.AlreadyThere:
		return s.Green(o.String())
	case rollout.Untouched, rollout.Unknown:
		return s.Yellow(o.String())
	}
	return s.Red(o.String())
}

// Until returns when a canary expires.
func Until(p *consul.Pointer) string {
	if p.ExpiresAt == nil {
		return "it is ended"
	}
	return term.Stamp(*p.ExpiresAt)
}
