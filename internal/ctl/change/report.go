package change

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Report is what apply, set and undo print with -o json.
type Report struct {
	Version   string    `json:"version"`
	SHA256    string    `json:"sha256"`
	AppliedAt time.Time `json:"applied_at,omitzero"`
	AppliedBy string    `json:"applied_by"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	Message   string    `json:"message,omitempty"`
	// BrokeLockOf is whose lock this change broke.
	BrokeLockOf string          `json:"broke_lock_of,omitempty"`
	Regions     []*regionReport `json:"regions"`
	Converged   *bool           `json:"converged,omitempty"` // missing where no edge runs such documents
	Canary      *canaryReport   `json:"canary,omitempty"`
}

type regionReport struct {
	report.RegionResult
	// Version is the version for this region, where it may differ. Then is what follows
	// when it expires. Active is what is active now, as far as known.
	Version string        `json:"version,omitempty"`
	Active  string        `json:"active,omitempty"`
	Then    *consul.Named `json:"then,omitempty"`
	// Before is what was active when the difference was shown; Now is what is active after
	// a conflict.
	Before *consul.Pointer `json:"before"`
	Now    *consul.Pointer `json:"now,omitempty"`
	// Edges is how many are registered; Running, how many of them run what they should.
	// Both are missing where nothing was waited for.
	Edges   *int             `json:"edges,omitempty"`
	Running *int             `json:"running,omitempty"`
	Behind  []fleet.NodeView `json:"behind,omitempty"`
}

func (c *Change) reportOn(r *regionChange) *regionReport {
	answered := r.step.Next != nil
	v := &regionReport{
		RegionResult: report.ResultOf(r.results()), Before: r.step.From.Pointer,
		Now: cmp.Or(r.moved, r.region.Now.Pointer), Active: r.step.From.Version(),
	}
	if answered && r.target.Kind.Temporary {
		v.Version = r.runs()
	}
	if answered && c.Lasts > 0 {
		v.Then = r.step.From.Returns()
	}
	if v.Result.Has() {
		v.Active = r.runs()
	}
	if v.Now != nil {
		v.Active = v.Now.Version
	}
	if r.await != nil {
		v.Behind = r.await.Behind()
		edges := len(r.await.Nodes)
		running := edges - len(v.Behind)
		v.Edges, v.Running = &edges, &running
	}
	return v
}

// only returns the document of all regions, or nil if there are several.
func (c *Change) only() (doc *fleet.Document) {
	for _, r := range c.regions {
		switch s := &r.step; {
		case s.Next == nil:
		case s.Ends, doc != nil && doc.Version() != s.Next.Version():
			return nil
		default:
			doc = s.Next
		}
	}
	return doc
}

// Report sets the result. A divided fleet matters more than late edges.
func (c *Change) Report(outcome, waiting error) error {
	r := &Report{
		AppliedAt: c.at, AppliedBy: c.By, Message: c.Message, Canary: c.canary, BrokeLockOf: strings.Join(c.Engine.Broke, ", "),
	}
	if c.regions[0].target.Kind.AtEdges() {
		r.Converged = new(outcome == nil && waiting == nil && c.Wait > 0 && !c.edgeless)
	}
	for _, here := range c.regions {
		r.Regions = append(r.Regions, c.reportOn(here))
	}
	if c.Lasts > 0 && c.Engine.Wrote {
		r.ExpiresAt = *c.expires()
	}
	if doc := c.only(); doc != nil {
		r.Version, r.SHA256 = doc.Version(), doc.Pointer("", time.Time{}).SHA256
	}
	c.Result = r
	return cmp.Or(outcome, waiting)
}

func (r *Report) Write(b *bytes.Buffer, s term.Style) {
	t := term.Table{}
	if t.Row("REGION", "RESULT", "VERSION", "EDGES"); r.Converged == nil {
		t = term.Table{}
		t.Row("REGION", "RESULT", "VERSION")
	}
	for _, c := range r.Regions {
		if r.Converged == nil {
			t.Row(c.Region, report.PaintOutcome(s, c.Result), term.OrDash(c.Active))
			continue
		}
		edges := "-"
		if c.Edges != nil {
			edges = fmt.Sprintf("%d of %d", *c.Running, *c.Edges)
		}
		t.Row(c.Region, report.PaintOutcome(s, c.Result), term.OrDash(c.Active), edges)
	}
	t.Print(b)
	if r.Converged == nil {
		b.WriteString("routers follow it on their own; their metrics and /readyz say if one cannot read it\n")
	}
}

// Follows says what is active after something temporary.
func Follows(then *consul.Named) string {
	if then == nil {
		return "the configuration of the edges"
	}
	return then.Version + " again"
}
