package change

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// sign signs what a region is to have, for as long as it is to last. It may already be
// signed, by this key or by others. Nobody verifies drains and client lists.
func (c *Change) sign(ctx context.Context, r *regionChange) error {
	if c.Signer == nil || r.target.Kind.Back != nil {
		return nil
	}
	p := r.step.Next.Pointer("", time.Time{})
	subject := sign.Subject{Kind: r.target.Kind.Name, Region: r.target.Name, SHA256: p.SHA256}
	if err := r.target.Docs.Sign(ctx, p.Version, c.Signer.Sign(subject, c.expires())); err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	return nil
}

// untrusted says who would refuse the document, because no key that they require has signed it.
// Nodes and routers verify signatures themselves: this check only reports it early.
func (c *Change) untrusted(ctx context.Context, nodes []fleet.Answer[[]consul.Node]) (list []fleet.Objection) {
	for _, a := range nodes {
		t, r := a.Target, c.region(a.Target.Name)
		if t.Kind.Back != nil || r.region.Outcome != rollout.Untouched || r.step.Ends { // nobody verifies drains and client lists
			continue
		}
		objections, err := t.Unsigned(ctx, a.Value, r.step.From.Version(), r.step.Next.Version(), c.Signer)
		list = append(list, objections...)
		if err = errors.Join(a.Err, err); err != nil {
			c.Program.Warn("%s: whether its nodes accept the signature is unknown: %v", t.Name, err)
		}
	}
	return list
}

// unread says which nodes of affected regions cannot read the document: they would keep the one
// they have, and count apart from the others.
func (c *Change) unread(ctx context.Context) []fleet.Objection {
	news := fleet.Filter(c.With(rollout.Untouched), func(r *regionChange) bool { return !r.step.Ends })
	return versions.Unread(ctx, c.Program, TargetsOf(news))
}

// mostOverridden bounds what a record keeps of objections, in bytes. Beyond it, a resumed rollout
// needs --force again.
const mostOverridden = 64 << 10

// overcome refuses a change to which nodes object, unless it is forced, or continues one that was
// forced when they objected.
func (c *Change) overcome(objections []fleet.Objection) error {
	var lines, fresh []string
	if c.resumes != nil {
		c.overridden = slices.Clone(c.resumes.Forced)
	}
	for _, o := range objections {
		lines = append(lines, o.Line)
		if of := fleet.Filter(o.Of, func(part string) bool { return !slices.Contains(c.overridden, part) }); len(of) > 0 {
			fresh, c.overridden = append(fresh, o.Line), append(c.overridden, of...)
		}
	}
	lines, fresh = term.Distinct(lines), term.Distinct(fresh)
	if len(fresh) > 0 && !c.Force {
		hint := "--force changes it anyway"
		if c.resumes != nil && c.resumes.Forced != nil {
			hint += "; that of the rollout covers only what it showed"
		}
		return term.Failed("nothing was changed: %s\n%s", strings.Join(fresh, "\n"), hint)
	}
	for _, line := range lines {
		c.Program.Warn("%s (--force)", line)
	}
	c.forced = term.Clip(strings.Join(lines, "; "), 1024)
	if len(strings.Join(c.overridden, "")) > mostOverridden {
		c.overridden = nil
	}
	return nil
}
