package report

import (
	"fmt"
	"strings"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// Behind says in a line what keeps a node behind.
func Behind(n *fleet.NodeView) string {
	text := fmt.Sprintf("%s runs %s", term.Printable(n.ID), term.OrDash(n.Version))
	if n.Canary {
		text += ", a canary"
	}
	if n.Source == adminapi.SourceAdmin {
		text += ", set on the node itself"
	}
	switch {
	case n.Refuses():
		text = fmt.Sprintf("%s refuses %s", term.Printable(n.ID), term.Printable(n.Refused.Version))
	case !n.Passing:
		text += ", and does not pass its check"
	}
	return text
}

// Refusal says why a node refused a document, one reason per line.
func Refusal(n *fleet.NodeView) string {
	if n.Refused == nil {
		return ""
	}
	list := n.Refused.Errors
	const most = 10
	lines := fleet.Map(list[:min(len(list), most)], term.Printable)
	if more := len(list) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}
