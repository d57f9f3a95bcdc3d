package rules

import (
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/paths"
)

// Matcher finds which of several conditions hold for a request, using the same index as
// rules. It is immutable and safe for concurrent use.
//
// It only classifies and never refuses: a repeated header, which programs may read
// differently, meets no condition.
type Matcher struct{ set Set }

// NewMatcher compiles conditions. A condition without any part holds for every request. The
// error is field.Errors; each names its field by position, as in [2].paths[0].
func NewMatcher(conditions []Conditions) (*Matcher, error) {
	p := &problems{}
	if len(conditions) > MaxRules {
		p.add("", "has more than %d conditions (got %d); merge those with the same outcome", MaxRules, len(conditions))
		return nil, p.list
	}
	m := &Matcher{Set{headers: map[string]bool{}}}
	names := map[string]bool{}
	for i := range conditions {
		v := &reader{p: p, index: i}
		c := &Compiled{Index: i, Mode: Shadow, match: v.conditions("", &conditions[i])}
		for _, h := range c.match.headers {
			names[h.name] = true
		}
		m.set.rules = append(m.set.rules, c)
		m.set.consult(c)
	}
	if len(names) > maxHeaderNames {
		p.add("", "uses more than %d different headers; each is looked up for every request (got %d)", maxHeaderNames, len(names))
	}
	if p.list != nil {
		return nil, p.list
	}
	m.set.index.build(m.set.rules)
	return m, nil
}

// Check returns the faults of c.
func (c *Conditions) Check() field.Errors {
	v := &reader{p: &problems{}, index: -1}
	v.conditions("", c)
	return v.p.list
}

// conditions reads the conditions at a path within a rule.
func (v *reader) conditions(at string, c *Conditions) conditions {
	defer func(before string) { v.under = before }(v.under)
	v.under = field.Join(v.under, at)
	return conditions{
		hosts: v.hosts(c.Hosts), paths: v.paths(c.Paths), methods: v.methods(c.Methods),
		clients: v.clients(c.Clients), headers: v.headers(c.Headers),
	}
}

// exemption reads match.not, which is not indexed: only rules that otherwise apply use
// it.
func (v *reader) exemption(c *Conditions) *residue {
	if c == nil {
		return nil
	}
	if c.Empty() {
		v.bad("match.not", "is empty and would exempt every request; name at least one part, or remove it")
	}
	m := v.conditions("match.not", c)
	r := &residue{headers: m.headers}
	if len(m.clients) > 0 {
		r.clients = setOf(&clientTable[struct{}]{}, m.clients)
	}
	if len(m.hosts) > 0 {
		r.hosts = setOf(&hostTable[struct{}]{}, m.hosts)
	}
	if len(m.paths) > 0 {
		r.paths = setOf(&pathTable[struct{}]{}, m.paths)
	}
	if len(m.methods) > 0 {
		r.methods = setOf(&methodTable[struct{}]{}, m.methods)
	}
	return r
}

// Find returns the indexes of the conditions that hold for r, in order. It allocates
// nothing once m has grown; the result is valid until m is used again.
func (x *Matcher) Find(r Request, m *Match) []int32 {
	m.Reset()
	if len(x.set.rules) > 0 {
		m.read(r)
	}
	return x.FindAgain(m)
}

// FindAgain is Find for the request for which Set.Match has filled m: it does not read it again,
// and leaves the checks. The result is valid until m is used again.
func (x *Matcher) FindAgain(m *Match) []int32 {
	m.found = m.found[:0]
	if len(x.set.rules) > 0 {
		x.set.find(m)
	}
	return m.found
}

// ParseKey parses a list of key parts, as in a rule's key. The error is field.Errors;
// each names its field by position, as in [2].
func ParseKey(list []string) ([]KeyPart, error) {
	p := &problems{}
	v := &reader{p: p, index: -1}
	parts := v.keyParts("", append([]string{}, list...))
	if p.list != nil {
		return nil, p.list
	}
	return parts, nil
}

// AppendKey appends the values that r counts under, as in the key of a rule with these
// parts. It returns false if r lacks one of them or repeats it. m is any Match not in use;
// once it has grown, AppendKey allocates nothing.
func AppendKey(dst []byte, parts []KeyPart, r Request, m *Match) (key []byte, ok bool) {
	m.Reset()
	m.read(r)
	defer func() { m.request = request{} }()
	for i := range parts {
		if i > 0 {
			dst = append(dst, ':')
		}
		before := len(dst)
		var dup *DuplicateError
		if dst, dup = m.request.appendPart(dst, &parts[i], i == 0); dup != nil {
			return dst, false
		}
		if len(dst) == before {
			if parts[i].optional() {
				return dst, false
			}
			dst = append(dst, noValue...)
		}
	}
	return dst, true
}

// Append appends the request's value for this part, unescaped; a network is an address with
// a prefix length. It appends nothing if the value is missing or repeated, because the
// client could choose which one counts.
func (k KeyPart) Append(dst []byte, r Request) []byte {
	var value []byte
	switch k.Kind {
	case ByClient, ByNet:
		return k.appendClient(dst, r.Client().Unmap().WithZone(""))
	case ByHost:
		return appendHost(dst, r.Host())
	case ByPath:
		return paths.AppendKey(dst, r.Path())
	case ByMethod:
		value = r.Method()
	case ByTier:
		value = r.Tier()
	default:
		var n int
		if value, n = (&request{Request: r}).named(&k); n != 1 {
			return dst
		}
		return k.appendCanonical(dst, value)
	}
	return append(dst, value...)
}
