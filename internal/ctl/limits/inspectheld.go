package limits

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// addHeld adds to an explanation what the other edges of the region hold of its leased
// limits, and names all holders. It returns how many edges did not answer.
func addHeld(ctx context.Context, t *fleet.Target, nodes []consul.Node, answered consul.Node, e *adminapi.Explanation, q url.Values) (silent int) {
	if !slices.ContainsFunc(e.Rules, func(r adminapi.RuleDecision) bool { return r.Leased }) {
		return 0
	}
	others := fleet.Filter(nodes, func(n consul.Node) bool { return n.ID != answered.ID })
	answers, errs := fleet.AskNodes(others, func(n consul.Node) (*adminapi.Explanation, error) { return t.Admin.Explain(ctx, n, q) })
	for i := range e.Rules {
		addHolder(&e.Rules[i], answered.ID, &e.Rules[i])
	}
	for n, other := range answers {
		if errs[n] != nil {
			silent++
			continue
		}
		for i := range e.Rules {
			for k := range other.Rules {
				if r := &other.Rules[k]; r.Leased && r.Key == e.Rules[i].Key {
					e.Rules[i].Held += r.Held
					addHolder(&e.Rules[i], others[n].ID, r)
				}
			}
		}
	}
	for i := range e.Rules {
		slices.SortFunc(e.Rules[i].Holders, func(a, b adminapi.Holder) int {
			return cmp.Or(cmp.Compare(b.Held, a.Held), strings.Compare(a.Node, b.Node))
		})
	}
	return silent
}

// addHolder records how much a node reported to hold.
func addHolder(to *adminapi.RuleDecision, node string, answers *adminapi.RuleDecision) {
	if answers.Held > 0 {
		to.Holders = append(to.Holders, adminapi.Holder{Node: node, Held: answers.Held, HeldFor: answers.HeldFor})
	}
}

// heldBy lists holders as "ams1-1 80 for 700ms", the first few of many.
func heldBy(list []adminapi.Holder) string {
	const most = 8
	var parts []string
	for i, h := range list {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(list)-most))
			break
		}
		part := fmt.Sprintf("%s %d", term.Printable(h.Node), h.Held)
		if left, err := time.ParseDuration(h.HeldFor); err == nil {
			part += " for " + left.Round(10*time.Millisecond).String()
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
