package change

import (
	"context"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
)

// readable refuses a document that a node of an affected region cannot read:
// that node would keep the document it has, and count apart from the others.
func (c *Change) readable(ctx context.Context) error {
	news := fleet.Filter(c.With(rollout.Untouched), func(r *regionChange) bool { return !r.step.Ends })
	lines := versions.Unread(ctx, c.Program, TargetsOf(news))
	if lines == nil {
		return nil
	}
	return term.Failed("nothing was changed: %s", strings.Join(lines, "\n"))
}
