package rules

import (
	"cmp"
	"slices"
)

// index finds the rules that may apply to a request: one table per kind of condition, each
// leading to the next, with an "any" branch for rules without that condition. It never
// touches rules that do not apply.
type index struct {
	clientTable[hostTable[pathTable[methodTable[leaf]]]]
}

// maxProduct bounds how many combinations of its conditions one rule occupies in the index.
// Beyond that, the rule's shorter lists are verified on the candidate instead, so that a
// small document cannot grow into a huge index.
const maxProduct = 128

// residue is what remains to be verified after the index lookup; a nil table holds for any
// request.
type residue struct {
	clients *clientTable[struct{}]
	hosts   *hostTable[struct{}]
	paths   *pathTable[struct{}]
	methods *methodTable[struct{}]
	headers []header
}

func (x *index) build(rules []*Compiled) {
	frequency := make(map[header]int)
	for _, c := range rules {
		for _, h := range c.match.headers {
			frequency[h]++
		}
	}
	for _, c := range rules {
		if c.Mode != Off && c.Domain == "" {
			x.add(c, frequency)
		}
	}
}

func (x *index) add(c *Compiled, frequency map[header]int) {
	indexed := c.split()
	// The rarest header is indexed; the others are verified.
	headers := slices.Clone(c.match.headers)
	slices.SortStableFunc(headers, func(a, b header) int { return cmp.Compare(frequency[a], frequency[b]) })
	if len(headers) > 0 {
		c.residue.headers = headers[1:]
	}
	for _, client := range orAny(indexed.clients) {
		hosts := x.at(client)
		for _, host := range orAny(indexed.hosts) {
			paths := hosts.at(host)
			for _, path := range orAny(indexed.paths) {
				methods := paths.at(path)
				for _, method := range orAny(indexed.methods) {
					methods.at(method).add(c, headers)
				}
			}
		}
	}
}

// orAny returns the values, or a single zero value that means any.
func orAny[V any](values []V) []V {
	if len(values) == 0 {
		return make([]V, 1)
	}
	return values
}

// split returns the conditions to index, and leaves the others in the residue. It always
// indexes the longest list.
func (c *Compiled) split() conditions {
	m := c.match
	lists := []struct {
		n     int
		leave func()
	}{
		{len(m.clients), func() { c.residue.clients = setOf(&clientTable[struct{}]{}, m.clients); m.clients = nil }},
		{len(m.hosts), func() { c.residue.hosts = setOf(&hostTable[struct{}]{}, m.hosts); m.hosts = nil }},
		{len(m.paths), func() { c.residue.paths = setOf(&pathTable[struct{}]{}, m.paths); m.paths = nil }},
		{len(m.methods), func() { c.residue.methods = setOf(&methodTable[struct{}]{}, m.methods); m.methods = nil }},
	}
	product := 1
	for _, l := range lists {
		product *= max(l.n, 1)
		product = min(product, 1<<30) // four long lists must not overflow
	}
	slices.SortStableFunc(lists, func(a, b struct {
		n     int
		leave func()
	}) int {
		return cmp.Compare(a.n, b.n)
	})
	for _, l := range lists[:len(lists)-1] {
		if product > maxProduct && l.n > 1 {
			l.leave()
			product /= l.n
		}
	}
	return m
}

// leaf holds the rules whose client, host, path and method match.
type leaf struct {
	always  []int32 // no condition on headers; indexes into Set.rules
	headers []headerBranch
}

// headerBranch holds a leaf's conditions on one header.
type headerBranch struct {
	name string
	// candidates holds the rules indexed by the header, by its value.
	candidates map[string][]int32
	// consulting holds the enforced rules that read the header at all: if one applies, a
	// repeated header is an error.
	consulting []int32
	// strict is set if one of them has neither residue nor exemption, so it certainly
	// applies.
	strict bool
}

// add enters a rule. headers are its header conditions, the one to index first.
func (l *leaf) add(c *Compiled, headers []header) {
	if len(headers) == 0 {
		l.always = append(l.always, int32(c.Index))
		return
	}
	for i, h := range headers {
		b := l.branch(h.name)
		if i == 0 {
			b.candidates[h.value] = append(b.candidates[h.value], int32(c.Index))
		}
		if c.enforces() {
			b.consulting = append(b.consulting, int32(c.Index))
			b.strict = b.strict || c.residue.empty() && c.not == nil
		}
	}
}

func (l *leaf) branch(name string) *headerBranch {
	for i := range l.headers {
		if l.headers[i].name == name {
			return &l.headers[i]
		}
	}
	l.headers = append(l.headers, headerBranch{name: name, candidates: make(map[string][]int32)})
	return &l.headers[len(l.headers)-1]
}

// empty reports whether nothing but headers is left to verify.
func (r *residue) empty() bool {
	return r.clients == nil && r.hosts == nil && r.paths == nil && r.methods == nil
}

// meets reports whether the request meets all of the residue.
func (r *residue) meets(q *request) bool {
	for i := range r.headers {
		h := &r.headers[i]
		if value, n := q.Header(h.name); n != 1 || string(value) != h.value {
			return false
		}
	}
	return r.holds(q)
}

// holds reports whether the request meets all of the residue except the headers.
func (r *residue) holds(q *request) bool {
	return (r.clients == nil || r.clients.has(q.client)) &&
		(r.hosts == nil || r.hosts.has(q.plainHost())) &&
		(r.paths == nil || r.paths.has(q.path)) &&
		(r.methods == nil || r.methods.has(q.method))
}
