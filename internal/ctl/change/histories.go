package change

import (
	"context"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/versions"
)

// Means reports whether a version is one of those that may be taken back.
func (c *Change) Means(version string) bool {
	return len(c.Of) == 0 || slices.ContainsFunc(c.Of, func(v string) bool { return strings.HasPrefix(version, v) })
}

// Histories reads what regions have, and had before.
func (c *Change) Histories(ctx context.Context, targets []*fleet.Target) ([]fleet.Answer[versions.History], error) {
	answers := fleet.Ask(ctx, targets, versions.ReadBefore)
	c.begin(targets)
	for i, a := range answers {
		if r := c.regions[i].region; a.Err != nil {
			r.Outcome, r.Err = rollout.Unreachable, a.Err
		}
	}
	_, err := c.reached()
	return answers, err
}
