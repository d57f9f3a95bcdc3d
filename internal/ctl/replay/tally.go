package replay

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// budget bounds how many clients all tallies together distinguish.
type budget struct {
	left int
	over bool
}

// mostKeys bounds how many keys the rules of a document distinguish: later ones are rarely
// among those refused most.
const mostKeys = 100_000

// tally counts requests by client.
type tally struct {
	requests int64
	clients  map[netip.Addr]int64
	keys     map[string]int64 // for a rule that counts by something else
	first    *Example
}

// add counts a request. first describes it, if it is the first.
func (t *tally) add(b *budget, e *entry, first func() *Example) {
	if t.requests++; t.requests == 1 {
		t.first, t.clients = first(), map[netip.Addr]int64{}
	}
	client := subscriber(e.client)
	if n, known := t.clients[client]; known {
		t.clients[client] = n + 1
	} else if b.left > 0 {
		b.left--
		t.clients[client] = 1
	} else {
		b.over = true
	}
}

// addKey counts a request by the key of its counter.
func (t *tally) addKey(b *budget, key []byte) {
	if n, known := t.keys[string(key)]; known {
		t.keys[string(key)] = n + 1
		return
	}
	if b.left == 0 {
		return
	}
	if t.keys == nil {
		t.keys = map[string]int64{}
	}
	b.left--
	t.keys[string(key)] = 1
}

func (t *tally) topKeys(n int) (top []KeyCount) {
	order := slices.SortedFunc(maps.Keys(t.keys), func(a, b string) int { return cmp.Or(cmp.Compare(t.keys[b], t.keys[a]), cmp.Compare(a, b)) })
	for _, key := range order[:min(n, len(order))] {
		top = append(top, KeyCount{Key: key, Requests: t.keys[key]})
	}
	return top
}

// subscriber returns the client as rules and nodes count it by default: an IPv6 address by its /64.
func subscriber(a netip.Addr) netip.Addr {
	if a.Is4() {
		return a
	}
	p, _ := a.Prefix(64)
	return p.Addr()
}

// clientName names a subscriber.
func clientName(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	return netip.PrefixFrom(a, 64).String()
}

// group returns the tally with the n clients that have most requests.
func (t *tally) group(n int) Group {
	g := Group{Requests: t.requests, Clients: int64(len(t.clients)), First: t.first, Top: []ClientCount{}}
	order := slices.SortedFunc(maps.Keys(t.clients), func(a, b netip.Addr) int {
		return cmp.Or(cmp.Compare(t.clients[b], t.clients[a]), a.Compare(b))
	})
	for _, a := range order[:min(n, len(order))] {
		g.Top = append(g.Top, ClientCount{Client: clientName(a), Requests: t.clients[a]})
	}
	return g
}
