package global

import (
	"math/bits"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-edge/weir/pkg/limiter"
)

const halfSecond = 500 * time.Millisecond

// PartOf returns a region's part of a limit in escrow, in each window. The units that cannot
// be divided go to other regions for other keys.
func PartOf[K string | []byte](l *limiter.Limit, key K, region, regions int) int64 {
	n := int64(regions)
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	part := l.Limit / n
	if (int64(region)+int64(h%uint64(n)))%n < l.Limit%n {
		part++
	}
	return part
}

// Demand is what a region is asked for under one limit in escrow.
type Demand struct {
	pace  pace
	start int64
	count int64
}

// Admitted notes what the region has let pass in a window in all.
func (d *Demand) Admitted(start, count int64, now time.Duration) {
	if start > d.start {
		d.start, d.count = start, 0
	}
	if start == d.start && count > d.count {
		d.add(count-d.count, now)
		d.count = count
	}
}

// Count returns what the region has let pass, as far as known, in the window that begins at
// start.
func (d *Demand) Count(start int64) int64 {
	if start != d.start {
		return 0
	}
	return d.count
}

// Refused notes units that were refused.
func (d *Demand) Refused(units int64, now time.Duration) { d.add(units, now) }

func (d *Demand) add(units int64, now time.Duration) {
	d.pace.every = halfSecond
	d.pace.add(min(units, limiter.MaxCount), now)
}

// Need returns what the region expects to be asked for in the rest of a window that lasts so
// long, at most the limit.
func (d *Demand) Need(l *limiter.Limit, rest, now time.Duration) int64 {
	d.pace.every = halfSecond
	n := d.pace.expected(now)
	need := float64(n) * float64(max(0, rest)) / float64(halfSecond)
	return min(l.MaxCost(), max(n, int64(need)))
}

// Kept returns how much a region keeps of what it has left when another asks for rights: what
// it needs itself, or its part by need if there is too little for both. Less than a fiftieth
// does not move, so that demand which only seems to change moves nothing.
func Kept(left, need, othersLeft, othersNeed int64) int64 {
	kept := min(left, need)
	if both := left + max(0, othersLeft); need > 0 && both < need+othersNeed {
		kept = min(kept, part64(both, need, need+othersNeed)+1)
	}
	if need > 0 && left-kept <= left/50 {
		return left
	}
	return kept
}

// part64 returns whole × of / all, rounded down; of is at most all.
func part64(whole, of, all int64) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(max(0, min(of, all))))
	q, _ := bits.Div64(hi, lo, uint64(all))
	return int64(q)
}

// Claim is what nodes tell each other of a key in escrow. Between nodes of a region: how many
// Units were refused, and what was Left. To another region: how many Units it is asked to
// have given in this window in all, what the asking region needs in the rest of it, and what
// it has left. The answer: how many Units it has given in all.
type Claim struct {
	Key, Tier         string
	Start             int64 // of the window, in Unix microseconds
	Units, Need, Left int64
}

const (
	fieldClaim protowire.Number = 1

	claimKey   protowire.Number = 1
	claimTier  protowire.Number = 2
	claimStart protowire.Number = 3 // milliseconds
	claimUnits protowire.Number = 4
	claimNeed  protowire.Number = 5
	claimLeft  protowire.Number = 6
)

// AppendClaims appends the encoded list to b.
func AppendClaims(b []byte, list []Claim) []byte {
	var part []byte
	for i := range list {
		c := &list[i]
		part = protowire.AppendString(protowire.AppendTag(part[:0], claimKey, protowire.BytesType), c.Key)
		if c.Tier != "" {
			part = protowire.AppendString(protowire.AppendTag(part, claimTier, protowire.BytesType), c.Tier)
		}
		part = appendVarint(part, claimStart, c.Start/1000)
		part = appendVarint(part, claimUnits, c.Units)
		part = appendVarint(part, claimNeed, c.Need)
		part = appendVarint(part, claimLeft, c.Left)
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldClaim, protowire.BytesType), part)
	}
	return b
}

// ParseClaims reads a list of at most MaxBatch claims. None has a number below 0 or beyond
// what sums stay exact with.
func ParseClaims(b []byte) (list []Claim, err error) {
	bad := error(nil)
	err = Fields(b, func(protowire.Number, uint64) {}, func(field protowire.Number, v []byte) {
		if field != fieldClaim || bad != nil {
			return
		}
		var c Claim
		bad = Fields(v, func(field protowire.Number, v uint64) {
			n := int64(min(v, maxCount))
			switch field {
			case claimStart:
				c.Start = n * 1000
			case claimUnits:
				c.Units = n
			case claimNeed:
				c.Need = min(n, limiter.MaxCount)
			case claimLeft:
				c.Left = min(n, limiter.MaxCount)
			}
		}, func(field protowire.Number, v []byte) {
			switch field {
			case claimKey:
				c.Key = string(v)
			case claimTier:
				c.Tier = string(v)
			}
		})
		if list = append(list, c); len(list) > MaxBatch {
			bad = errMessage
		}
	})
	if err == nil {
		err = bad
	}
	return list, err
}
