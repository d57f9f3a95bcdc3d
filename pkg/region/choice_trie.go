package region

import (
	"net/netip"
	"slices"
)

// clientMap finds the PoPs whose networks contain a client. It is a binary trie, which
// also yields how much of the address the answer depends on.
type clientMap struct {
	nodes []clientNode // [0] and [1] are the roots of IPv4 and IPv6
}

type clientNode struct {
	next [2]int32 // 0: none
	pops []int    // of the network that ends here
}

// owned is a network that contains a client, and the PoPs that list it.
type owned struct {
	network netip.Prefix
	pops    []int
}

func newClientMap(pops []*PoP) *clientMap {
	m := &clientMap{nodes: make([]clientNode, 2)}
	for i, p := range pops {
		for _, n := range p.Clients {
			m.add(n, i)
		}
	}
	return m
}

func root(a netip.Addr) int32 {
	if a.Is4() {
		return 0
	}
	return 1
}

// bit returns bit i of an address, counted from the left.
func bit(bytes *[16]byte, offset, i int) byte {
	i += offset
	return bytes[i/8] >> (7 - i%8) & 1
}

// address returns the bits of an address and where they begin.
func address(a netip.Addr) (bytes [16]byte, offset int) {
	bytes = a.As16()
	if a.Is4() {
		offset = 96
	}
	return bytes, offset
}

func (m *clientMap) add(n netip.Prefix, pop int) {
	bytes, offset := address(n.Addr())
	at := root(n.Addr())
	for i := range n.Bits() {
		b := bit(&bytes, offset, i)
		if m.nodes[at].next[b] == 0 {
			m.nodes = append(m.nodes, clientNode{})
			m.nodes[at].next[b] = int32(len(m.nodes) - 1)
		}
		at = m.nodes[at].next[b]
	}
	if !slices.Contains(m.nodes[at].pops, pop) {
		m.nodes[at].pops = append(m.nodes[at].pops, pop)
	}
}

// find appends to found the networks that contain all of client, the longest last. It
// also returns scope: all addresses that share that many bits with client get the same
// answer. Scope is longer than client if part of client belongs to another network.
func (m *clientMap) find(client netip.Prefix, found []owned) (_ []owned, scope int) {
	bytes, offset := address(client.Addr())
	at := root(client.Addr())
	for i := 0; ; i++ {
		node := &m.nodes[at]
		if node.pops != nil {
			found = append(found, owned{netip.PrefixFrom(client.Addr(), i).Masked(), node.pops})
		}
		if node.next == [2]int32{} {
			return found, i
		}
		if i == client.Bits() {
			return found, min(i+1, client.Addr().BitLen())
		}
		if at = node.next[bit(&bytes, offset, i)]; at == 0 {
			return found, i + 1
		}
	}
}
