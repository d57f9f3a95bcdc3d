package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/top"
	"github.com/weir-edge/weir/pkg/behavior"
)

// Suspect is a client above the mildest tier that sent requests lately.
type Suspect struct {
	top.Key
	behavior.Status
	Reasons []behavior.Reason
}

// Suspects returns the clients above the mildest tier that sent most lately, those with the
// highest tiers and scores first.
func (c *Behavior) Suspects(now time.Time) (list []Suspect) {
	for _, k := range c.suspects.Read(now).Keys {
		if st := c.Clients.Status(k.Hash, now); st.Tier > 0 { // it may have cooled down meanwhile
			list = append(list, Suspect{k, st, c.Clients.Reasons(k.Hash, now, nil)})
		}
	}
	slices.SortStableFunc(list, func(a, b Suspect) int { return cmp.Or(cmp.Compare(b.Tier, a.Tier), cmp.Compare(b.Score, a.Score)) })
	return list
}
