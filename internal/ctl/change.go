package ctl

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
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
	unknown      = "unknown" // the answer was lost; it may have taken effect
)

// change puts one document in force in some regions. apply and rollback are changes.
//
// The order of its steps is what makes it safe. The document is stored everywhere
// before any region is pointed at it. The regions are pointed one after another, in
// the order of the fleet file, under a lock of them all and on condition that nobody has
// touched any since the difference was shown; whoever comes second has changed nothing.
// Only then are canaries ended, so that what every edge should run is the version.
type change struct {
	p   *program
	doc *document // for all regions, or
	// aimAt says for each region which document is meant; a.published is filled in.
	aimAt func(ctx context.Context, t *target, a *aim) error
	// stillGood looks under the lock whether there is any other reason not to go on; nil:
	// none.
	stillGood func(ctx context.Context) error
	// lasts is for how long; 0: until the next change.
	lasts   time.Duration
	by      string
	message string
	yes     bool
	partial bool
	wait    time.Duration

	regions  []*regionChange
	at       time.Time // when the regions were pointed
	pointed  bool      // at least one was
	deserted bool      // a region has no edge that could run anything
}

// regionChange is one region of a change.
type regionChange struct {
	Region string `json:"region"`
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`
	// Version is the one that this region is to run, where that may differ. Then is
	// what follows when its time is over.
	Version string        `json:"version,omitempty"`
	Then    *region.Named `json:"then,omitempty"`
	// Before is what was in force when the difference was shown, Now what is after a
	// conflict.
	Before *region.Pointer `json:"before"`
	Now    *region.Pointer `json:"now,omitempty"`
	// Edges are the registered ones, Running those that run what they should; both
	// are missing where nothing was waited for.
	Edges   *int       `json:"edges,omitempty"`
	Running *int       `json:"running,omitempty"`
	Behind  []nodeView `json:"behind,omitempty"`

	*aim   // nil if it did not answer
	target *target
}

// runs is the version that its edges should run.
func (r *regionChange) runs() string {
	if r.ends {
		return own
	}
	return r.next.version()
}

// runsAll are the versions that the edges of these regions should run.
func runsAll(regions []*regionChange) string {
	var list []string
	for _, r := range regions {
		list = append(list, r.runs())
	}
	return strings.Join(distinct(list), " and ")
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
	ExpiresAt time.Time       `json:"expires_at,omitzero"`
	Message   string          `json:"message,omitempty"`
	Regions   []*regionChange `json:"regions"`
	Converged bool            `json:"converged"`
	Canary    *canaryReport   `json:"canary,omitempty"`
}

// prepare reads what is in force everywhere and shows the difference. Unless the
// change may be partial, it stops when a region cannot be reached.
func (c *change) prepare(ctx context.Context, targets []*target) error {
	answers := ask(ctx, c.p, targets, c.look)
	names, err := failures(answers)
	if len(names) == len(targets) {
		return failed("nothing was changed, no region can be reached:\n%w", err)
	}
	if err != nil && !c.partial {
		return failed("nothing was changed, because %s cannot be reached:\n%w\nrepair that, choose other regions with --region, or go on without with --partial",
			strings.Join(names, ", "), err)
	}
	for _, a := range answers {
		if a.err == nil && a.value.wrong != nil {
			return a.value.wrong
		}
	}
	for _, a := range answers {
		r := &regionChange{Region: a.target.name, Result: untouched, target: a.target}
		c.regions = append(c.regions, r)
		if a.err != nil {
			r.fail(unreachable, a.err)
			continue
		}
		r.aim, r.Before = a.value, a.value.pointer
		if a.target.kind.temporary {
			r.Version = r.runs()
		}
		if c.lasts > 0 {
			r.Then = r.returns()
		} else if r.already() {
			r.Result = alreadyThere
		}
	}
	var b bytes.Buffer
	w, s := c.p.out, c.p.outStyle()
	if c.p.wantsJSON() {
		w, s = c.p.errOut, c.p.errStyle()
	}
	const mostChanges = 50
	writeGroups(&b, s, groupByVersion(answers), mostChanges)
	if err != nil {
		fmt.Fprintf(&b, "%s: %s\n", s.bold(strings.Join(names, ", ")), s.yellow("cannot be reached, goes without"))
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// look finds out what a region has in force, and what it shall have.
func (c *change) look(ctx context.Context, t *target) (*aim, error) {
	s, err := look(ctx, t)
	if err != nil {
		return nil, err
	}
	a := &aim{published: s, next: c.doc}
	if c.aimAt != nil {
		a.wrong = c.aimAt(ctx, t, a)
	}
	if c.lasts > 0 && a.wrong == nil && a.broken != nil {
		a.wrong = failed("nothing was changed: %s: %w; after --for nothing good would return, so leave that out", t.name, a.broken)
	}
	if c.lasts > 0 && a.wrong == nil {
		a.after = ", for " + short(c.lasts) + ", and then " + follows(a.returns())
	}
	return a, nil
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
		return t.docs.Put(ctx, c.region(t.name).next.bytes)
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
	limit := c.wait
	if c.lasts > 0 {
		limit = min(limit, c.lasts)
	}
	w := &awaiting{p: c.p, version: func(t *target) string { return c.region(t.name).runs() }, moved: func(t *target, v *regionView) bool {
		return v.Error == "" && (v.Pointer == nil || v.Pointer.Version != c.region(t.name).next.version())
	}}
	arrivals := w.run(ctx, targets, limit)
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
			c.deserted = true
			c.p.warn("%s: no edge is registered there, or this token may not see them; nothing to wait for", r.Region)
		}
	}
	if ctx.Err() != nil {
		return interrupted("interrupted while waiting; %s has %s, and %s shows who runs it", namesOf(have), runsAll(have), have[0].target.kind.look)
	}
	return w.verdict(arrivals, limit)
}

// only is the document of all regions, nil if there are several.
func (c *change) only() (doc *document) {
	for _, r := range c.regions {
		switch {
		case r.aim == nil:
		case r.ends, doc != nil && doc.version() != r.next.version():
			return nil
		default:
			doc = r.next
		}
	}
	return doc
}

// expires is when what was put in force ends by itself, nil if it does not.
func (c *change) expires() *time.Time {
	if c.lasts == 0 {
		return nil
	}
	at := c.at.Add(c.lasts)
	return &at
}

// report prints how it ended. A divided fleet matters more than edges that are late.
func (c *change) report(canary *canaryReport, outcome, waiting error) error {
	r := changeReport{
		AppliedAt: c.at, AppliedBy: c.by, Message: c.message, Regions: c.regions, Canary: canary,
		Converged: outcome == nil && waiting == nil && c.wait > 0 && !c.deserted,
	}
	if c.lasts > 0 && c.pointed {
		r.ExpiresAt = *c.expires()
	}
	if doc := c.only(); doc != nil {
		r.Version, r.SHA256 = doc.version(), doc.pointer("", time.Time{}).SHA256
	}
	err := c.p.show(r, func(b *bytes.Buffer, s style) { r.write(b, s) })
	return cmp.Or(outcome, waiting, err)
}

func (r *changeReport) write(b *bytes.Buffer, s style) {
	t := table{}
	t.row("REGION", "RESULT", "VERSION", "EDGES")
	for _, c := range r.Regions {
		version, edges := "-", "-"
		if c.aim != nil {
			version = orDash(c.version())
		}
		if c.Result == applied || c.Result == alreadyThere {
			version = c.runs()
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
		case untouched, unknown:
			result = s.yellow(c.Result)
		}
		t.row(c.Region, result, version, edges)
	}
	t.write(b)
}
