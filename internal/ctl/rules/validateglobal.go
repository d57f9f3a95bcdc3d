package rules

import (
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// apartness is how many regions, and how far apart, the bounds of global rules are printed
// for.
type apartness struct {
	regions int
	delay   time.Duration
}

var usualApartness = apartness{3, global.UsualDelay}

func (a *apartness) flags(c *cobra.Command) {
	c.Flags().IntVar(&a.regions, "regions", usualApartness.regions, "print the bounds of global rules for this many regions, which learn of each other's counts within --delay")
	c.Flags().DurationVar(&a.delay, "delay", usualApartness.delay, "how long regions take to learn of each other's counts, for the bounds of global rules")
}

func (a *apartness) check() error {
	switch {
	case a.regions < 1 || a.regions > 1000:
		return term.Misused("--regions must be between 1 and 1000 (got %d)", a.regions)
	case a.delay <= 0 || a.delay > time.Hour:
		return term.Misused("--delay must be between 1ns and 1h (got %s)", a.delay)
	}
	return nil
}

// globalBounds are how many units beyond the limit of a global rule may pass: at ten times
// the limit, and if a client sends to all regions in the same instant.
type globalBounds struct {
	Rule    string  `json:"rule"`
	Regions int     `json:"regions"`
	Delay   string  `json:"delay"`
	Demand  float64 `json:"demand"`
	Worst   float64 `json:"worst"`
	// Escrow is set if the limit is divided: then both are 0.
	Escrow bool `json:"escrow,omitempty"`
	// Part, for a limit in escrow, is a region's minimum share when it hears from no other.
	Part int64 `json:"part,omitempty"`
}

func bounds(b *kinds.RuleBook, a apartness) (list []globalBounds) {
	for _, c := range b.Set.Rules() {
		switch {
		case c.Limit.Global == nil:
		case c.Limit.Global.Escrow:
			list = append(list, globalBounds{Rule: c.ID, Regions: a.regions, Delay: a.delay.String(), Escrow: true, Part: c.Limit.Limit / int64(a.regions)})
		default:
			over := global.OvershootBounds(c.Limit, a.regions, limiter.BoundDemand, a.delay+c.Limit.LeaseTime())
			list = append(list, globalBounds{Rule: c.ID, Regions: a.regions, Delay: a.delay.String(), Demand: math.Ceil(over.Demand), Worst: math.Ceil(over.Worst)})
		}
	}
	return list
}

func (g *globalBounds) note() string {
	if g.Escrow {
		return fmt.Sprintf("rule %s is global in escrow: %s never pass more than its limit in a window, and a disconnected one passes %d, or what it holds by then, in windows that begin within %.0fs",
			term.Printable(g.Rule), term.Plural(g.Regions, "region"), g.Part, limiter.TermLasts.Seconds())
	}
	return fmt.Sprintf("rule %s is global: in %s that learn of each other within %s, up to %.0f more may pass at ten times its limit, and up to %.0f if a client sends to all regions in the same instant",
		term.Printable(g.Rule), term.Plural(g.Regions, "region"), term.Brief(g.Delay), g.Demand, g.Worst)
}
