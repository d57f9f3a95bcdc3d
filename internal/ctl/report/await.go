package report

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Edges describes the wait: those that wanted accepts (nil: all) should run version or, of what
// others may edit later, what the region's pointer names then. moved reports that a region no
// longer wants that.
type Edges struct {
	Edits   bool
	Version func(*fleet.Target) string
	Wanted  func(consul.Node) bool
	Moved   func(*fleet.Target, *fleet.RegionView) bool
}

func Await(ctx context.Context, p *command.Program, e Edges, targets []*fleet.Target, limit time.Duration) []rollout.Arrival {
	progress := p.Progress()
	text := make([]string, len(targets))
	for i, t := range targets {
		if p.Live {
			text[i] = fmt.Sprintf("%-*s  asking", longest(targets), t.Name)
		}
	}
	w := rollout.Waiter{
		View: func(ctx context.Context, t *fleet.Target) (*fleet.RegionView, error) {
			if e.Edits {
				return t.View(ctx, e.Wanted, "")
			}
			return t.View(ctx, e.Wanted, e.Version(t))
		},
		Moved: e.Moved, Registering: p.Registering,
		Seen: func(i int, a *rollout.Arrival) {
			version := e.Version(a.Target)
			if p := a.View.Pointer; e.Edits && p != nil {
				version = p.Version
			}
			text[i] = fmt.Sprintf("%-*s  %s", longest(targets), a.Target.Name, describe(a, version))
			progress.Update(text)
		},
	}
	return w.Run(ctx, targets, limit)
}

// describe is one line of progress.
func describe(a *rollout.Arrival, version string) string {
	v := &a.View
	switch {
	case a.Err != nil:
		return "cannot look: " + term.Clip(term.Printable(a.Err.Error()), 120)
	case a.State == rollout.Superseded:
		return "changed by someone else"
	case len(v.Nodes) == 0:
		return "no edge is registered"
	}
	behind := v.Behind()
	text := fmt.Sprintf("%d of %d edges run %s", len(v.Nodes)-len(behind), len(v.Nodes), version)
	if len(behind) > 0 {
		names := fleet.Map(behind[:min(3, len(behind))], func(n fleet.NodeView) string { return Behind(&n) })
		if len(behind) > 3 {
			names = append(names, fmt.Sprintf("%d more", len(behind)-3))
		}
		text += "; " + strings.Join(names, ", ")
	}
	return text
}

// Verdict turns arrivals into what is wrong, or nil if all nodes are there. A region
// without nodes is not an error.
func Verdict(arrivals []rollout.Arrival, versionOf func(*fleet.Target) string, limit time.Duration) error {
	var wrong, versions []string
	refused := false
	k := arrivals[0].Target.Kind
	for i := range arrivals {
		a := &arrivals[i]
		versions = append(versions, versionOf(a.Target))
		switch {
		case a.State == rollout.Arrived:
		case a.State == rollout.Superseded:
			return term.Conflict("%s: %s", a.Target.Name, WhoMoved(k, a.View.Pointer))
		case a.State == rollout.Refusing:
			refused = true
			for _, n := range a.Refused {
				wrong = append(wrong, fmt.Sprintf("%s: node %s refuses %s and keeps %s:\n    %s", a.Target.Name, term.Printable(n.ID),
					n.Expected, term.OrDash(n.Version), term.Indented(Refusal(&n))))
			}
		case a.Err != nil:
			wrong = append(wrong, fmt.Sprintf("%s: %v", a.Target.Name, a.Err))
		case a.State == rollout.Unseen:
			wrong = append(wrong, fmt.Sprintf("%s: not known yet", a.Target.Name))
		default:
			if a.View.Error != "" {
				wrong = append(wrong, fmt.Sprintf("%s: %s", a.Target.Name, a.View.Error))
			}
			for _, n := range a.View.Behind() {
				wrong = append(wrong, fmt.Sprintf("%s: %s", a.Target.Name, Behind(&n)))
			}
		}
	}
	version := strings.Join(term.Distinct(versions), " and ")
	switch {
	case len(wrong) == 0:
		return nil
	case refused:
		return term.Partial("not all edges run %s:\n  %s\ncorrect the document, or go back with regionctl undo %s", version, strings.Join(wrong, "\n  "), k.Name)
	}
	return term.Partial("not all edges run %s after %s:\n  %s\n%s shows whether they get there; running this again waits again",
		version, limit, strings.Join(wrong, "\n  "), k.Watch)
}

func WhoMoved(k *fleet.Kind, now *consul.Pointer) string {
	if now == nil {
		return fmt.Sprintf("someone deleted the pointer to the %s in the meantime; %s again to set it", k.What, k.Put)
	}
	return fmt.Sprintf("%s %s %s at %s in the meantime; look at it with %s, and %s again if yours should replace it",
		term.Printable(now.AppliedBy), k.Did, now.Version, term.Stamp(now.AppliedAt), k.Look, k.Put)
}

func longest(targets []*fleet.Target) int {
	n := 0
	for _, t := range targets {
		n = max(n, len(t.Name))
	}
	return n
}
