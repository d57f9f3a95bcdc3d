package fleet

import (
	"fmt"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// Unasked collects why edges could not be asked.
type Unasked struct {
	reasons []string
	edges   map[string][]string // by reason
}

// Add adds an edge and why it could not be asked.
func (u *Unasked) Add(edge, reason string) {
	if u.edges == nil {
		u.edges = map[string][]string{}
	}
	if u.edges[reason] == nil {
		u.reasons = append(u.reasons, reason)
	}
	u.edges[reason] = append(u.edges[reason], edge)
}

// Lines are one for each reason.
func (u *Unasked) Lines() (list []string) {
	const most = 3
	for _, reason := range u.reasons {
		edges := u.edges[reason]
		who := term.Printable(strings.Join(edges[:min(most, len(edges))], ", "))
		if more := len(edges) - most; more > 0 {
			who += fmt.Sprintf(" and %d more", more)
		}
		list = append(list, fmt.Sprintf("could not ask %s: %s", who, term.Clip(term.Printable(reason), 300)))
	}
	return list
}
