package limiter

import (
	"context"
	"strconv"
	"time"
)

// Regions that share a limit each keep its state in their own store, and charge there what
// they hear that the others have let pass. So a request is decided by one store, as under
// any other limit. What each has let pass is counted beside the state, by counters that
// only grow: one for each key and window.

// OnPartition decides under a global limit when a region hears of no other.
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
	// Tier is the tier of the rule that the limit is for; "" for the rule's own.
	Tier string
	// Escrow divides the limit among the regions; see escrow.go.
	Escrow      bool
	OnPartition OnPartition
	// PartitionAfter is for how long a region may hear of no other before OnPartition applies.
	PartitionAfter time.Duration
}

// Tally is what one node has let pass under a global limit of one key in one window, from
// its beginning. A tally that is repeated, or late, does no harm.
type Tally struct {
	Key   []byte // of the limit's state
	Start int64  // of the window, in Unix microseconds
	Width int64  // of the window, in microseconds
	Count int64

	// Err says why there is no answer.
	Err error
	// Known is what the store knew of this node before. Less than the node has told it, if
	// the store lost what it held.
	Known int64
	// Total is what all nodes of the region have let pass, as far as the store knows.
	Total int64
}

// Merge is what another region has let pass, by its counter of one key and window. The
// difference to what was merged before is charged, beyond the limit if need be; so a merge
// that is repeated, late, or made by several nodes does no harm.
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
	// Early is set if the window has not begun here: nothing was merged.
	Early bool
}

// Merger is a store of global limits. Both methods answer every element, each with its own
// error, within a bound of their own.
type Merger interface {
	// Tally counts for a node, whose name must be another after it has begun again.
	Tally(ctx context.Context, node string, tallies []Tally)
	Merge(ctx context.Context, merges []Merge)
}

// AppendCounters appends the name of the counters of one window: the limit's key and the
// window's start, given in Unix microseconds.
func AppendCounters(name, key []byte, start int64) []byte {
	name = append(append(name, key...), ":g:"...)
	return strconv.AppendInt(name, start/1000, 10)
}

// CountersLast is for how long after a window has ended its counters are kept: another
// region's clock may be that far behind, and its last count that late.
func CountersLast(width int64) int64 { return width + 2*MaxClockBack.Microseconds() }
