package limiter

import (
	"context"
	"strconv"
	"time"
)

// Regions that share a limit each keep its state in their own store and charge there what
// other regions report to have admitted. So one store decides each request, as under any
// other limit. Beside the state, each region counts what it has admitted in a counter per
// key and window that only grows.

// OnPartition decides requests under a global limit while a region hears from no other.
type OnPartition uint8

// The partition policies.
const (
	PartitionShare  OnPartition = iota // the limit divided by the number of regions
	PartitionOpen                      // the whole limit, by what the region knows
	PartitionClosed                    // refuse with 503
)

// String returns the name used in rules.
func (o OnPartition) String() string {
	return [...]string{"local_share", "open", "closed"}[o]
}

// Global says how regions share a limit. It is immutable.
type Global struct {
	// Tier is the tier of the rule that the limit is for; "" for the rule's own limit.
	Tier string
	// Escrow divides the limit among the regions; see escrow.go.
	Escrow      bool
	OnPartition OnPartition
	// PartitionAfter is how long a region may hear from no other before OnPartition
	// applies.
	PartitionAfter time.Duration
}

// Tally is what one node has admitted under a global limit for one key in one window,
// counted from the window's start. Repeating or delaying a tally is harmless.
type Tally struct {
	Key   []byte // of the limit's state
	Start int64  // of the window, in Unix microseconds
	Width int64  // of the window, in microseconds
	Count int64

	// Err says why there is no answer.
	Err error
	// Known is what the store knew of this node before. It is less than the node reported
	// earlier if the store lost data.
	Known int64
	// Total is what all nodes of the region have admitted, as far as the store knows.
	Total int64
}

// Merge is what another region has admitted, by its counter for one key and window. The
// store charges the difference from what it merged before, beyond the limit if need be. So
// a merge that is repeated, late, or made by several nodes is harmless.
type Merge struct {
	Limit  *Limit
	Key    []byte
	Region string
	Start  int64
	Width  int64
	Count  int64

	// Err says why there is no answer.
	Err error
	// Known is what had been merged before.
	Known int64
	// Early is set if the window has not begun in this region; nothing was merged.
	Early bool
}

// Merger is a store of global limits. Both methods answer every element, each with its own
// error, and bound their own time.
type Merger interface {
	// Tally counts for a node. A restarted node must use a new name.
	Tally(ctx context.Context, node string, tallies []Tally)
	Merge(ctx context.Context, merges []Merge)
}

// AppendCounters appends the name of the counters of one window: the limit's key and the
// window's start, given in Unix microseconds.
func AppendCounters(name, key []byte, start int64) []byte {
	name = append(append(name, key...), ":g:"...)
	return strconv.AppendInt(name, start/1000, 10)
}

// CountersLast returns how long the counters of a window are kept: another region's clock
// may be MaxClockBack behind, and its last count as late.
func CountersLast(width int64) int64 { return width + 2*MaxClockBack.Microseconds() }
