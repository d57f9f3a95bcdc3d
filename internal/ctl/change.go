package ctl

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

// What became of a region in a change.
const (
	untouched    = "not changed"
	unreachable  = "unreachable"
	alreadyThere = "already there"
	applied      = "applied"
	lost         = "conflict" // someone else was faster
	unsuccessful = "failed"
)

// change puts one document in force in some regions. apply and rollback are changes.
//
// The order of its steps is what makes it safe. The document is stored everywhere
// before any region is pointed at it. The regions are pointed one after another, in
// the order of the fleet file, each on condition that nobody has touched it since the
// difference was shown; whoever loses the first one has changed nothing.
type change struct {
	p       *program
	doc     *document
	by      string
	message string
	yes     bool
	partial bool
	wait    time.Duration

	regions []*regionChange
	pointer region.Pointer // set when the regions are pointed
}

// regionChange is one region of a change.
type regionChange struct {
	Region string `json:"region"`
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`
	// Before is what was in force when the difference was shown, Now what is after a
	// conflict.
	Before *region.Pointer `json:"before"`
	Now    *region.Pointer `json:"now,omitempty"`
	// Edges are the registered ones, Running those that run what they should; both
	// are missing where nothing was waited for.
	Edges   *int       `json:"edges,omitempty"`
	Running *int       `json:"running,omitempty"`
	Behind  []nodeView `json:"behind,omitempty"`

	target *target
	index  uint64
}

func (r *regionChange) fail(result string, err error) {
	r.Result, r.Error = result, err.Error()
}

// changeReport is what apply and rollback print with -o json.
type changeReport struct {
	Version   string          `json:"version"`
	SHA256    string          `json:"sha256"`
	AppliedAt time.Time       `json:"applied_at,omitzero"`
	AppliedBy string          `json:"applied_by"`
	Message   string          `json:"message,omitempty"`
	Regions   []*regionChange `json:"regions"`
	Converged bool            `json:"converged"`
	Canary    *canaryReport   `json:"canary,omitempty"`
}

// prepare reads what is in force everywhere and shows the difference. Unless the
// change may be partial, it stops when a region cannot be reached.
func (c *change) prepare(ctx context.Context, targets []*target) error {
	answers := ask(ctx, c.p, targets, look)
	names, err := failures(answers)
	if len(names) == len(targets) {
		return failed("nothing was changed, no region can be reached:\n%w", err)
	}
	if err != nil && !c.partial {
		return failed("nothing was changed, because %s cannot be reached:\n%w\nrepair that, choose other regions with --region, or go on without with --partial",
			strings.Join(names, ", "), err)
	}
	report := diffReport{Version: c.doc.version(), Rules: len(c.doc.rules), Groups: groupByVersion(answers, c.doc)}
	for _, a := range answers {
		r := &regionChange{Region: a.target.name, Result: untouched, target: a.target}
		c.regions = append(c.regions, r)
		if a.err != nil {
			r.fail(unreachable, a.err)
			continue
		}
		r.Before, r.index = a.value.pointer, a.value.index
		if a.value.version() == c.doc.version() {
			r.Result = alreadyThere
		}
	}
	var b bytes.Buffer
	w, s := c.p.out, c.p.outStyle()
	if c.p.wantsJSON() {
		w, s = c.p.errOut, c.p.errStyle()
	}
	const mostRules = 50
	report.write(&b, s, c.doc.label(), mostRules)
	if err != nil {
		fmt.Fprintf(&b, "%s: %s\n", s.bold(strings.Join(names, ", ")), s.yellow("cannot be reached, goes without"))
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// with are the regions with one of these results.
func (c *change) with(results ...string) []*regionChange {
	return filter(c.regions, func(r *regionChange) bool { return slices.Contains(results, r.Result) })
}

func namesOf(regions []*regionChange) string {
	names := make([]string, len(regions))
	for i, r := range regions {
		names[i] = r.Region
	}
	return strings.Join(names, ", ")
}

// store writes the document to every region, also where it should be already.
func (c *change) store(ctx context.Context) error {
	var targets []*target
	for _, r := range c.with(untouched, alreadyThere) {
		targets = append(targets, r.target)
	}
	answers := ask(ctx, c.p, targets, func(ctx context.Context, t *target) (string, error) {
		return t.rules.Put(ctx, c.doc.bytes)
	})
	names, err := failures(answers)
	if err == nil {
		return nil
	}
	if !c.partial || len(names) == len(targets) {
		return failed("nothing was changed, because %s did not store the document:\n%w", strings.Join(names, ", "), err)
	}
	for _, a := range answers {
		if a.err != nil {
			c.region(a.target.name).fail(unsuccessful, a.err)
		}
	}
	return nil
}

func (c *change) region(name string) *regionChange {
	return c.regions[slices.IndexFunc(c.regions, func(r *regionChange) bool { return r.Region == name })]
}

// point switches the regions over. It stops at the first one if that fails, and goes
// on after that: a fleet should not stay divided because one region is away.
func (c *change) point(ctx context.Context) error {
	waiting := c.with(untouched)
	if len(waiting) == 0 {
		return nil
	}
	if err := c.unmoved(ctx); err != nil {
		return err
	}
	c.pointer = region.NewPointer(c.doc.bytes, c.by, time.Now())
	var history sync.WaitGroup
	defer history.Wait()
	for i, r := range waiting {
		if ctx.Err() != nil {
			break
		}
		// What is on its way is seen through, or nobody would know how it ended.
		detached := context.WithoutCancel(ctx)
		done, err := r.target.rules.Point(detached, c.pointer, r.index)
		switch {
		case err != nil:
			r.fail(unsuccessful, err)
		case !done:
			r.lose(detached, c.p)
		default:
			r.Result = applied
			history.Go(func() { c.record(detached, r) })
		}
		if i == 0 && r.Result != applied {
			break
		}
	}
	return nil
}

// unmoved looks again at the regions that are there already: they are not written, so
// nothing else would notice that someone has just moved them on.
func (c *change) unmoved(ctx context.Context) error {
	for _, r := range c.with(alreadyThere) {
		brief, cancel := c.p.bounded(ctx)
		now, index, err := r.target.rules.Current(brief)
		cancel()
		if err != nil {
			return failed("nothing was changed: %s: %w", r.Region, err)
		}
		if index != r.index {
			r.Result, r.Now, r.Error = lost, now, whoMoved(now)
		}
	}
	if moved := c.with(lost); len(moved) > 0 {
		return conflict("nothing was changed anywhere: %s: %s", moved[0].Region, moved[0].Error)
	}
	return nil
}

// lose finds out who was faster.
func (r *regionChange) lose(ctx context.Context, p *program) {
	ctx, cancel := p.bounded(ctx)
	defer cancel()
	now, _, err := r.target.rules.Current(ctx)
	if err != nil {
		r.fail(lost, fmt.Errorf("someone changed the rules meanwhile, and who cannot be read: %w", err))
		return
	}
	r.Result, r.Now, r.Error = lost, now, whoMoved(now)
}

func (c *change) record(ctx context.Context, r *regionChange) {
	entry := region.Change{Pointer: c.pointer, Message: c.message}
	if r.Before != nil {
		entry.Replaced = r.Before.Version
	}
	if err := r.target.rules.Record(ctx, entry); err != nil {
		c.p.warn("%s: the rules are in force, but the history was not written: %v", r.Region, err)
	}
}

// outcome is what is wrong after the regions were pointed, nil if nothing is.
func (c *change) outcome(ctx context.Context) error {
	took, have := c.with(applied), c.with(applied, alreadyThere)
	left, losing, failing := c.with(untouched), c.with(lost), c.with(unsuccessful, unreachable)
	without := filter(c.regions, func(r *regionChange) bool { return !slices.Contains(have, r) })
	var reasons []string
	for _, r := range append(slices.Clone(losing), failing...) {
		reasons = append(reasons, r.Region+": "+r.Error)
	}
	why := strings.Join(reasons, "\n")
	divided := fmt.Sprintf("%s has %s and %s has not", namesOf(have), c.doc.version(), namesOf(without))
	switch {
	case len(losing) > 0 && len(took) == 0:
		return conflict("nothing was changed anywhere: %s", why)
	case len(losing) > 0:
		return conflict("the fleet is divided: %s:\n%s", divided, why)
	case len(without) == 0:
		return nil
	case len(left) > 0 && ctx.Err() != nil && len(have) == 0:
		return interrupted("interrupted; nothing was changed")
	case len(left) > 0 && ctx.Err() != nil:
		return interrupted("interrupted: %s; running this again finishes it", divided)
	case len(have) == 0:
		return failed("nothing was changed: %s", why)
	}
	return partial("%s:\n%s\nrunning this again finishes it", divided, why)
}

// await waits for the edges of all regions that have the version.
func (c *change) await(ctx context.Context) error {
	have := c.with(applied, alreadyThere)
	if c.wait <= 0 || len(have) == 0 {
		return nil
	}
	var targets []*target
	for _, r := range have {
		targets = append(targets, r.target)
	}
	version := c.doc.version()
	w := &awaiting{p: c.p, version: version, moved: func(v *regionView) bool {
		return v.Error == "" && (v.Pointer == nil || v.Pointer.Version != version)
	}}
	arrivals := w.run(ctx, targets, c.wait)
	for i := range arrivals {
		a, r := &arrivals[i], have[i]
		if a.view == nil {
			continue
		}
		r.Behind = a.view.behind()
		edges := len(a.view.Nodes)
		running := edges - len(r.Behind)
		r.Edges, r.Running = &edges, &running
		if a.moved {
			r.Now = a.view.Pointer
		}
		if edges == 0 && a.err == nil {
			c.p.warn("%s: no edge is registered there, or this token may not see them; nothing to wait for", r.Region)
		}
	}
	if ctx.Err() != nil {
		return interrupted("interrupted while waiting; %s has %s, and regionctl rules status shows who runs it", namesOf(have), version)
	}
	return w.verdict(arrivals, c.wait)
}

// report prints how it ended. A divided fleet matters more than edges that are late.
func (c *change) report(canary *canaryReport, outcome, waiting error) error {
	r := changeReport{
		Version: c.doc.version(), SHA256: region.NewPointer(c.doc.bytes, "", time.Time{}).SHA256, AppliedAt: c.pointer.AppliedAt,
		AppliedBy: c.by, Message: c.message, Regions: c.regions, Canary: canary,
		Converged: outcome == nil && waiting == nil && c.wait > 0,
	}
	err := c.p.show(r, func(b *bytes.Buffer, s style) { r.write(b, s) })
	return cmp.Or(outcome, waiting, err)
}

func (r *changeReport) write(b *bytes.Buffer, s style) {
	t := table{}
	t.row("REGION", "RESULT", "VERSION", "EDGES")
	for _, c := range r.Regions {
		version, edges := "-", "-"
		if c.Before != nil {
			version = c.Before.Version
		}
		if c.Result == applied || c.Result == alreadyThere {
			version = r.Version
		}
		if c.Now != nil {
			version = c.Now.Version
		}
		if c.Edges != nil {
			edges = fmt.Sprintf("%d of %d", *c.Running, *c.Edges)
		}
		result := s.red(c.Result)
		switch c.Result {
		case applied, alreadyThere:
			result = s.green(c.Result)
		case untouched:
			result = s.yellow(c.Result)
		}
		t.row(c.Region, result, version, edges)
	}
	t.write(b)
}
