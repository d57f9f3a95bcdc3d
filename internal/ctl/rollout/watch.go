package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// longestMeasure bounds the measurement of the sites before a change.
const longestMeasure = time.Minute

// Site is a PoP of a region.
type Site struct{ Region, PoP string }

func (s Site) String() string { return s.PoP + " in " + s.Region }

// Watch reads the figures of all nodes while a change goes from group to group, and judges
// each group before the next one follows.
type Watch struct {
	Bounds
	Interval time.Duration
	Timeout  time.Duration   // of one look
	Kind     *fleet.Kind     // whose versions nodes report
	Targets  []*fleet.Target // all regions of the change
	// Unchanged checks a region before its nodes are read. A *term.Failure ends the change.
	Unchanged func(context.Context, *fleet.Target) error
	// Tried is the version of a canary that an earlier run left: what nodes do that still run it
	// is not their past.
	Tried     string
	Progress  func(text string)
	Say, Warn func(format string, args ...any)
	// Mine and Others are what happened in the last group and elsewhere.
	Mine, Others fleet.Traffic

	before map[Site]*fleet.Tally
	past   []counts        // at each look before the change
	known  map[string]bool // nodes whose figures could be read
	warned map[Site]bool   // sites that could not be judged
}

// Group is what a change has reached.
type Group struct {
	Name   string // of all that is judged
	Stage  string // for the progress: wave 1 of 3
	Soak   time.Duration
	Has    func(Site) bool // where the version is
	Judged func(Site) bool // of these, the sites that are judged
	Alone  bool            // each of them alone, too
	Past   bool            // what they did before they had the version was measured
	// Runs returns the version that the nodes of a region should run.
	Runs func(region string) string
}

// reading is the figures of one node.
type reading struct {
	Site
	node    consul.Node
	figures *fleet.Figures
	err     error
}

// read reads the figures of all nodes once. lost says why regions could not be read.
func (w *Watch) read(ctx context.Context) (all []reading, lost map[string]error, err error) {
	// Nodes that do not answer must not prevent judging those that do.
	brief, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	answers := fleet.AskUnbounded(brief, w.Targets, func(ctx context.Context, target *fleet.Target) ([]reading, error) {
		if err := w.Unchanged(ctx, target); err != nil {
			return nil, err
		}
		nodes, err := target.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		list := make([]reading, len(nodes))
		fleet.Each(nodes, func(i int, n consul.Node) {
			f, err := target.Admin.Figures(ctx, n, fleet.DecisionsMetric)
			list[i] = reading{Site{target.Name, n.PoP}, n, f, err}
		})
		return list, nil
	})
	if ctx.Err() != nil {
		return nil, nil, term.Interrupted("interrupted")
	}
	lost = map[string]error{}
	for _, a := range answers {
		var f *term.Failure
		if errors.As(a.Err, &f) {
			return nil, nil, a.Err
		} else if a.Err != nil {
			lost[a.Target.Name] = fmt.Errorf("%s: %w", a.Target.Name, a.Err)
		}
		all = append(all, a.Value...)
	}
	return all, lost, nil
}

// Measure reads the figures of all sites for a short time, before the first group changes.
func (w *Watch) Measure(ctx context.Context, soak time.Duration) error {
	w.before, w.known, w.warned = map[Site]*fleet.Tally{}, map[string]bool{}, map[Site]bool{}
	long := w.baseline(soak)
	w.Progress(fmt.Sprintf("all sites are measured for %s before the change", long))
	for left := long; ; left -= min(w.Interval, long) {
		if err := w.measure(ctx); err != nil || left <= 0 {
			return err
		}
		if consul.Pause(ctx, min(w.Interval, left)) != nil {
			return term.Interrupted("interrupted")
		}
	}
}

// baseline returns how long sites are measured before a change.
func (w *Watch) baseline(soak time.Duration) time.Duration {
	return min(soak/5, longestMeasure, 12*w.Interval)
}

func (w *Watch) measure(ctx context.Context) error {
	readings, lost, err := w.read(ctx)
	if err != nil {
		return err
	}
	for _, r := range readings {
		if r.err == nil && (w.Tried == "" || r.figures.Version(w.Kind) != w.Tried) {
			w.add(w.before, r)
		}
	}
	w.past = append(w.past, totals(w.before))
	return errors.Join(fleet.Map(slices.Sorted(maps.Keys(lost)), func(name string) error { return lost[name] })...)
}

// Foretell warns of rules in shadow mode that would limit more than chance and the bounds allow,
// where the change enforces them.
func (w *Watch) Foretell(changes func(Site) bool, enforces func(rule string) bool) {
	for _, at := range sorted(w.before) {
		past := &w.before[at].Total
		for _, id := range slices.Sorted(maps.Keys(past.Shadow)) {
			share := fleet.Ratio(past.Shadow[id], past.Requests)
			chance := deviations * math.Sqrt(share*(1-share)/past.Requests)
			if changes(at) && enforces(id) && past.Requests >= leastPast && share > w.Limited+chance {
				w.Warn("%s: rule %s, which is in shadow mode now, would have limited at least %s of %.0f requests; if it refuses as many when it is enforced, this ends: %s allows %s",
					at, term.Printable(id), term.Percent(share), past.Requests, moreLimited, points(w.Limited))
			}
		}
	}
}

func (w *Watch) add(tallies map[Site]*fleet.Tally, r reading) {
	w.known[r.Region+" "+r.node.ID] = true
	if tallies[r.Site] == nil {
		tallies[r.Site] = &fleet.Tally{}
	}
	tallies[r.Site].Add(r.node.ID, r.figures)
}

// look adds the figures of all nodes to the tallies of their sites. It returns what could
// not be read of the group. A node that could never be read does not count as missing.
func (w *Watch) look(ctx context.Context, g *Group, tallies map[Site]*fleet.Tally) (silent []string, err error) {
	readings, lost, err := w.read(ctx)
	if err != nil {
		return nil, err
	}
	here := map[string]bool{}
	for _, r := range readings {
		has := g.Has(r.Site)
		here[r.Region] = here[r.Region] || has
		switch {
		case r.err != nil && has && w.known[r.Region+" "+r.node.ID]:
			silent = append(silent, fmt.Sprintf("%s (%v)", term.Printable(r.node.ID), r.err))
		case r.err != nil:
		case has && other(r.figures.Version(w.Kind), g.Runs(r.Region)): // its figures belong to another version
			silent = append(silent, fmt.Sprintf("%s (it runs %s)", term.Printable(r.node.ID), r.figures.Version(w.Kind)))
		default:
			w.add(tallies, r)
		}
	}
	regions := map[string]bool{}
	for at := range w.before {
		regions[at.Region] = regions[at.Region] || g.Has(at)
	}
	for _, name := range slices.Sorted(maps.Keys(regions)) {
		switch err := lost[name]; {
		case !regions[name]:
		case err != nil:
			silent = append(silent, err.Error())
		case !here[name]:
			silent = append(silent, name+" (its edges are gone)")
		}
	}
	return silent, nil
}

// other reports whether a node runs something else than it should. One that does not say
// what it runs was waited for.
func other(runs, should string) bool { return runs != "" && runs != should }

// Judge watches a group for its soak. It returns why the next group must not follow, or nil.
func (w *Watch) Judge(ctx context.Context, g *Group) error {
	tallies, j, ends := map[Site]*fleet.Tally{}, newJudge(&w.Bounds, g, w.past), time.Time{}
	for {
		silent, err := w.look(ctx, g, tallies)
		if err != nil {
			return err
		}
		// The first look only shows where the counters stand, and may take as long as a soak.
		if ends.IsZero() {
			ends = time.Now().Add(g.Soak)
		}
		now := totals(tallies)
		why := j.look(time.Now(), now)
		left := time.Until(ends)
		w.Progress(fmt.Sprintf("%s: %s; %s left", g.Stage, j.compared(now), max(0, left).Round(time.Second)))
		w.Mine, w.Others = j.subjects[0].now, now.of(j.others)
		switch {
		case j.outside == outsideLooks, left <= 0 && j.outside > 0:
			return errors.New(why)
		case left > 0:
		case len(silent) > 0:
			return fmt.Errorf("the figures of %s could not be read at the end", strings.Join(silent, ", "))
		case !w.enough(&w.Mine):
			return fmt.Errorf("%s had only %.0f requests in %s, and an evaluation needs at least %d; watch longer, or lower --min-requests", g.Name, w.Mine.Requests, g.Soak, w.Requests)
		default:
			w.Say("%s is within the bounds after %s: %s", g.Stage, g.Soak, j.compared(now))
			return w.idle(g, now)
		}
		_ = consul.Pause(ctx, min(w.Interval, left))
	}
}

// idle reports sites with the version that had too few requests in a soak to be judged. If
// one had enough of them before, in a fraction of the time, that is an error: they may be gone
// because of the change. Otherwise it is only a warning: the site may never have any.
func (w *Watch) idle(g *Group, now counts) error {
	for _, at := range sorted(w.before) {
		was, is := w.before[at].Total, now[at]
		switch {
		case !g.Has(at) || w.enough(&is):
		case w.enough(&was):
			return fmt.Errorf("%s had only %.0f requests in %s, and %.0f in %s before; find out why its clients are gone", at, is.Requests, g.Soak, was.Requests, w.baseline(g.Soak))
		case !w.warned[at]:
			w.warned[at] = true
			w.Warn("%s had only %.0f requests in %s, and needs at least %d: whether the change harms it is unknown", at, is.Requests, g.Soak, w.Requests)
		}
	}
	return nil
}

func sorted[V any](sites map[Site]V) []Site {
	return slices.SortedFunc(maps.Keys(sites), func(a, b Site) int { return cmp.Compare(a.String(), b.String()) })
}

func totals(tallies map[Site]*fleet.Tally) counts {
	all := counts{}
	for at, t := range tallies {
		all[at] = t.Total
	}
	return all
}
