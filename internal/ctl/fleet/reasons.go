package fleet

import (
	"fmt"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// CouldNotAsk is the format of Reasons of edges that could not be asked.
const CouldNotAsk = "could not ask %s: %s"

// Reasons collects what is wrong with edges. Many often have the same fault.
type Reasons struct {
	reasons []string
	edges   map[string][]string // by reason
}

func (r *Reasons) Add(edge, reason string) {
	if r.edges == nil {
		r.edges = map[string][]string{}
	}
	if r.edges[reason] == nil {
		r.reasons = append(r.reasons, reason)
	}
	r.edges[reason] = append(r.edges[reason], edge)
}

// Lines are one for each reason. The format is for the edges and the reason.
func (r *Reasons) Lines(format string) (list []string) {
	const most = 3
	for _, reason := range r.reasons {
		edges := r.edges[reason]
		who := term.Printable(strings.Join(edges[:min(most, len(edges))], ", "))
		if more := len(edges) - most; more > 0 {
			who += fmt.Sprintf(" and %d more", more)
		}
		list = append(list, fmt.Sprintf(format, who, term.Clip(term.Printable(reason), 300)))
	}
	return list
}
