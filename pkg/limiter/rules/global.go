package rules

import (
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// Global says how regions share a rule's limit, as written.
type Global struct {
	Mode           string `yaml:"mode,omitempty" json:"mode,omitempty"`                                     // eventual (if absent) or escrow
	OnPartition    string `yaml:"on_partition,omitempty" json:"on_partition,omitempty"`                     // what a region that reaches no other does: local_share (if absent), open or closed
	PartitionAfter string `yaml:"partition_after,omitempty" json:"partition_after,omitempty" as:"duration"` // how long it waits before that, 5s to 1h; absent: 30s
}

// How long a region may hear from no other before on_partition applies.
const (
	usualPartitionAfter    = 30 * time.Second
	shortestPartitionAfter = 5 * time.Second
	longestPartitionAfter  = time.Hour
)

// global reads scope and global. It returns nil for a rule of one region.
func (v *reader) global(r *Rule, l *limiter.Limit) *limiter.Global {
	if v.word("scope", r.Scope, "region", "global") == 0 {
		if r.Global != nil {
			v.bad("global", "is only for rules with scope: global; add that, or remove global")
		}
		return nil
	}
	valid := l.Validate() == nil // otherwise there are enough problems to report
	written := r.Global
	if written == nil {
		written = &Global{}
	}
	escrow := v.word("global.mode", written.Mode, "eventual", "escrow") == 1
	g := &limiter.Global{
		Escrow: escrow,
		OnPartition: limiter.OnPartition(v.word("global.on_partition", written.OnPartition,
			limiter.PartitionShare.String(), limiter.PartitionOpen.String(), limiter.PartitionClosed.String())),
		PartitionAfter: usualPartitionAfter,
	}
	if escrow && g.OnPartition == limiter.PartitionShare {
		g.OnPartition = limiter.PartitionClosed
	}
	if written.PartitionAfter != "" {
		var ok bool
		g.PartitionAfter, ok = v.duration("global.partition_after", written.PartitionAfter)
		if ok && (g.PartitionAfter < shortestPartitionAfter || g.PartitionAfter > longestPartitionAfter) {
			v.bad("global.partition_after", "must be between %s and %s (got %s)", shortestPartitionAfter, longestPartitionAfter, g.PartitionAfter)
		}
	}
	switch {
	case escrow && valid:
		if v.escrow(l, g, written); r.UnderLoad != nil {
			v.bad("under_load", "the parts of a limit in escrow do not follow load; remove it, or use mode: eventual")
		}
	case valid && global.CountsFault(l) != "":
		v.bad("scope", "%s", global.CountsFault(l))
	}
	if r.MaxOverride != 0 {
		v.bad("max_override", "does not work across regions, which know only a rule's own limits; remove one of them")
	}
	return g
}

// escrow refuses settings that would admit more than the limit, or have no effect: a region
// spends what a majority has promised it and nothing after that, whatever the rule says.
func (v *reader) escrow(l *limiter.Limit, g *limiter.Global, written *Global) {
	if why := global.EscrowFault(l); why != "" {
		v.bad("global.mode", "%s", why)
	}
	if g.OnPartition == limiter.PartitionOpen {
		v.bad("global.on_partition", "open lets a region pass more than its part; remove it, or use mode: eventual")
	}
	if written.OnPartition == limiter.PartitionShare.String() {
		v.bad("global.on_partition", "must be closed with mode: escrow: a disconnected region spends only what was reserved for it, because others may take over the rest; remove it (got %s)", written.OnPartition)
	}
	if written.PartitionAfter != "" {
		v.bad("global.partition_after", "has no effect with mode: escrow: a disconnected region spends windows that begin within %.0fs; remove it", limiter.TermLasts.Seconds())
	}
	if l.OnFailure != limiter.Closed {
		v.bad("on_store_failure", "must be closed with mode: escrow, because a node that decides without its store would pass more than its region's part (got %s)", l.OnFailure)
	}
}

// forTier returns g for a tier.
func forTier(g *limiter.Global, tier string) *limiter.Global {
	if g == nil {
		return nil
	}
	of := *g
	of.Tier = tier
	return &of
}
