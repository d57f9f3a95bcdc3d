package dns

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
)

// Load is what a PoP receives, and to whom it gives its clients.
type Load struct {
	PoP string `json:"pop"`
	// Own is how many requests per second its own clients send, wherever they are sent. Demand is
	// what arrives, Capacity what it can serve. What is unknown is null.
	Own       *float64 `json:"own"`
	Demand    *float64 `json:"demand"`
	Capacity  *float64 `json:"capacity"`
	Estimated bool     `json:"capacity_estimated,omitempty"`
	// Gives are the shares of its clients that routers send elsewhere, the largest first.
	Gives []Given `json:"gives"`
}

// Given is the share, 0 to 1, of a PoP's clients that another PoP gets.
type Given struct {
	To    string  `json:"to"`
	Share float64 `json:"share"`
}

// loads returns the loads of all PoPs, in the order of the topology.
func loads(v *region.View) []Load {
	list := []Load{}
	for i := range v.Topology.Regions {
		for _, p := range v.Topology.Regions[i].PoPs {
			l := Load{PoP: p.Name, Gives: []Given{}}
			if s := v.PoPs[p.Name]; s.Capacity > 0 && !s.Stale {
				l.Demand, l.Capacity, l.Estimated = &s.Demand, &s.Capacity, s.CapacityEstimated
			}
			if g, known := v.Spill.Gifts[p.Name]; known {
				l.Own = &g.Own
				for to, part := range g.Parts {
					if share := part.Given(); share > 0 {
						l.Gives = append(l.Gives, Given{to, share})
					}
				}
			}
			slices.SortFunc(l.Gives, func(a, b Given) int { return cmp.Or(cmp.Compare(b.Share, a.Share), strings.Compare(a.To, b.To)) })
			list = append(list, l)
		}
	}
	return list
}

func writeLoads(b *bytes.Buffer, list []Load) {
	rate := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.0f", *v)
	}
	t := term.Table{}
	t.Row("POP", "OWN/S", "DEMAND/S", "CAPACITY/S", "GIVES")
	for _, l := range list {
		gives := fleet.Map(l.Gives, func(g Given) string { return fmt.Sprintf("%s to %s", term.Percent(g.Share), term.Printable(g.To)) })
		capacity := rate(l.Capacity)
		if l.Estimated {
			capacity += " (estimated)"
		}
		t.Row(term.Printable(l.PoP), rate(l.Own), rate(l.Demand), capacity, term.OrDashes(gives))
	}
	t.Print(b)
}
