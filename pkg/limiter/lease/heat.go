package lease

import (
	"sync/atomic"
	"time"
)

// heat estimates how often a key without a lease is used, in a fixed amount of memory. Two
// keys that hash to the same slot evict each other, and updates race: a key may become hot
// a little late or early, which costs a call, never a wrong answer.
type heat struct{ slots [heatSlots]atomic.Uint64 }

const heatSlots = 1 << 16

// add counts a request in the lease time with the given number, and returns the requests
// counted in it. A slot holds 32 bits of the key's hash, 16 of the number and 16 of the
// count.
func (h *heat) add(hash uint64, number time.Duration) int64 {
	slot := &h.slots[hash>>8%heatSlots]
	head := hash&^0xffffffff | uint64(uint16(number))<<16
	v := slot.Load()
	if v&^0xffff != head {
		v = head
	}
	if v&0xffff < 0xffff {
		v++
	}
	slot.Store(v)
	return int64(v & 0xffff)
}
