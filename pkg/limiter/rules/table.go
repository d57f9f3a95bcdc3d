package rules

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
)

// A table maps patterns of one kind to values. at returns a pattern's value, made on
// first use, with the zero pattern for "any"; each calls f with the value of every
// pattern that matches.

func setOf[K any, T interface{ at(K) *struct{} }](t T, patterns []K) T {
	for _, p := range patterns {
		t.at(p)
	}
	return t
}

// made returns m[k], creating it on first use.
func made[K comparable, V any](m *map[K]*V, k K) *V {
	if *m == nil {
		*m = make(map[K]*V)
	}
	v := (*m)[k]
	if v == nil {
		v = new(V)
		(*m)[k] = v
	}
	return v
}

func orNew[V any](v **V) *V {
	if *v == nil {
		*v = new(V)
	}
	return *v
}

// clientTable holds networks: one lookup per prefix length in use.
type clientTable[V any] struct {
	any      *V
	networks map[netip.Prefix]*V
	v4, v6   []int // the prefix lengths in use
}

func (t *clientTable[V]) at(p netip.Prefix) *V {
	if !p.IsValid() {
		return orNew(&t.any)
	}
	lengths := &t.v6
	if p.Addr().Is4() {
		lengths = &t.v4
	}
	if !slices.Contains(*lengths, p.Bits()) {
		*lengths = append(*lengths, p.Bits())
	}
	return made(&t.networks, p)
}

func (t *clientTable[V]) each(a netip.Addr, f func(*V)) {
	if t.any != nil {
		f(t.any)
	}
	lengths := t.v6
	if a.Is4() {
		lengths = t.v4
	}
	for _, bits := range lengths {
		if p, err := a.Prefix(bits); err == nil { // an error if there is no address
			if v := t.networks[p]; v != nil {
				f(v)
			}
		}
	}
}

func (t *clientTable[V]) has(a netip.Addr) bool {
	found := false
	t.each(a, func(*V) { found = true })
	return found
}

// hostTable holds host names, and domains that match any subdomain.
type hostTable[V any] struct {
	any     *V
	names   map[string]*V
	domains map[string]*V
	longest int // longest domain in bytes: a hostile host must not cost more lookups
}

func (t *hostTable[V]) at(pattern string) *V {
	if pattern == "" {
		return orNew(&t.any)
	}
	if domain, ok := strings.CutPrefix(pattern, "*."); ok {
		t.longest = max(t.longest, len(domain))
		return made(&t.domains, domain)
	}
	return made(&t.names, pattern)
}

// named reports whether any pattern depends on the host.
func (t *hostTable[V]) named() bool { return len(t.names)+len(t.domains) > 0 }

func (t *hostTable[V]) each(host []byte, f func(*V)) {
	if t.any != nil {
		f(t.any)
	}
	if v := t.names[string(host)]; v != nil {
		f(v)
	}
	// i > 0: the wildcard stands for at least one character
	for i := len(host) - 1; i > 0 && len(host)-i-1 <= t.longest; i-- {
		if host[i] == '.' {
			if v := t.domains[string(host[i+1:])]; v != nil {
				f(v)
			}
		}
	}
}

func (t *hostTable[V]) has(host []byte) bool {
	found := false
	t.each(host, func(*V) { found = true })
	return found
}

// methodTable holds methods.
type methodTable[V any] struct {
	any   *V
	names map[string]*V
}

func (t *methodTable[V]) at(method string) *V {
	if method == "" {
		return orNew(&t.any)
	}
	return made(&t.names, method)
}

func (t *methodTable[V]) each(method []byte, f func(*V)) {
	if t.any != nil {
		f(t.any)
	}
	if v := t.names[string(method)]; v != nil {
		f(v)
	}
}

func (t *methodTable[V]) has(method []byte) bool {
	return t.any != nil || t.names[string(method)] != nil
}

// pathTable holds paths, and prefixes in a radix tree: one walk along a path finds all of
// its prefixes, however many there are.
type pathTable[V any] struct {
	any      *V
	exact    map[string]*V
	prefixes *radix[V]
}

func (t *pathTable[V]) at(pattern string) *V {
	if pattern == "" {
		return orNew(&t.any)
	}
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return orNew(&orNew(&t.prefixes).at(prefix).value)
	}
	return made(&t.exact, pattern)
}

func (t *pathTable[V]) each(path []byte, f func(*V)) {
	if t.any != nil {
		f(t.any)
	}
	if v := t.exact[string(path)]; v != nil {
		f(v)
	}
	for n := t.prefixes; n != nil; n = n.child(path[0]) {
		if !bytes.HasPrefix(path, n.text) {
			return
		}
		if path = path[len(n.text):]; n.value != nil {
			f(n.value)
		}
		if len(path) == 0 {
			return
		}
	}
}

func (t *pathTable[V]) has(path []byte) bool {
	found := false
	t.each(path, func(*V) { found = true })
	return found
}

// radix is a node of a tree of prefixes; the root's text is empty.
type radix[V any] struct {
	text     []byte
	value    *V // nil at a pure branching point
	children []*radix[V]
	first    []byte // the first byte of each child's text, in order
}

func (n *radix[V]) child(c byte) *radix[V] {
	if i := bytes.IndexByte(n.first, c); i >= 0 {
		return n.children[i]
	}
	return nil
}

// at returns the node of a prefix, splitting and adding nodes as needed.
func (n *radix[V]) at(prefix string) *radix[V] {
	if prefix == "" {
		return n
	}
	i := bytes.IndexByte(n.first, prefix[0])
	if i < 0 {
		leaf := &radix[V]{text: []byte(prefix)}
		n.first = append(n.first, prefix[0])
		n.children = append(n.children, leaf)
		return leaf
	}
	child, common := n.children[i], 0
	for common < len(prefix) && common < len(child.text) && prefix[common] == child.text[common] {
		common++
	}
	if common < len(child.text) {
		branch := &radix[V]{text: child.text[:common], first: []byte{child.text[common]}, children: []*radix[V]{child}}
		child.text = child.text[common:]
		n.children[i] = branch
		child = branch
	}
	return child.at(prefix[common:])
}
