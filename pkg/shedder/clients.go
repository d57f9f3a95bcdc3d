package shedder

import "sync"

// clients counts the requests in flight of each client, in parts that do not wait for each other.
// Only clients with such requests have an entry.
type clients [clientParts]struct {
	mu   sync.Mutex
	held map[uint64]int64
	_    [48]byte // a part has a cache line
}

const clientParts = 16

// clientShare is the part of what a cap leaves free that one client may have in flight, as a divisor.
const clientShare = 3

// clientLeast is what every client may have in flight while a cap leaves room: as many as a browser
// has connections to one host.
const clientLeast = 6

// enter counts one more unless the client has most already. It returns how many it had.
func (c *clients) enter(client uint64, most int64) (before int64, entered bool) {
	part := &c[client%clientParts]
	part.mu.Lock()
	defer part.mu.Unlock()
	if before = part.held[client]; before >= most {
		return before, false
	}
	if part.held == nil {
		part.held = map[uint64]int64{}
	}
	part.held[client] = before + 1
	return before, true
}

func (c *clients) leave(client uint64) {
	part := &c[client%clientParts]
	part.mu.Lock()
	defer part.mu.Unlock()
	if part.held[client]--; part.held[client] == 0 {
		delete(part.held, client)
	}
}

// AwaitClient records whether the node waits for the client to send more of the body. That
// time does not show how busy the origin is, unlike the time in which the origin reads.
func (p *Permit) AwaitClient(awaits bool) {
	switch {
	case awaits && p.stage == sent:
		p.stage = paused
		p.shedder.waiting.Add(-1)
	case !awaits && p.stage == paused:
		p.stage = sent
		p.shedder.waiting.Add(1)
	}
}
