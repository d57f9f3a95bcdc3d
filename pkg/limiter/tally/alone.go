package tally

import "github.com/weir-edge/weir/pkg/limiter"

// isAlone reports whether on_partition applies to one of the checks, given how long the
// region has heard from no other.
func isAlone(checks []limiter.Check, alone int64) bool {
	for i := range checks {
		if applies(checks[i].Limit, alone) {
			return true
		}
	}
	return false
}

func applies(l *limiter.Limit, alone int64) bool {
	g := l.Global
	// Whether a part in escrow is held does not depend on hearing from other regions.
	return g != nil && !g.Escrow && alone > int64(g.PartitionAfter) && g.OnPartition != limiter.PartitionOpen
}

// shares returns what decides as on_partition says: the checks, each with this region's share
// of its limit, or the first that must be refused with 503, otherwise -1. A share is measured
// against the same state as the whole limit, so it includes what others are known to have
// admitted, and what passed here before.
func (s *Store) shares(checks []limiter.Check, alone int64) (shares []limiter.Check, closed int) {
	regions := int(s.regions.Load())
	shares = make([]limiter.Check, len(checks))
	copy(shares, checks)
	for i := range shares {
		c := &shares[i]
		if !applies(c.Limit, alone) {
			continue
		}
		if c.Limit.Global.OnPartition == limiter.PartitionClosed {
			if !c.Limit.Shadow {
				return nil, i
			}
			continue
		}
		c.Limit = c.Limit.Share(regions)
		c.Cost = min(c.Cost, c.Limit.MaxCost()) // otherwise it could never fit a small share
	}
	return shares, -1
}
