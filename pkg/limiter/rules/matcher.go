package rules

import (
	"net/netip"
	"strings"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Matcher finds which of several conditions hold for a request, by the index that
// rules are found by. It is immutable and safe for concurrent use.
//
// It classifies and refuses nothing: a header that occurs twice, of which each program
// may read another one, meets no condition.
type Matcher struct{ set Set }

// NewMatcher compiles conditions. One without any part holds for every request. The
// error is Errors; each names its field by its place, as in [2].paths[0].
func NewMatcher(conditions []Conditions) (*Matcher, error) {
	var p problems
	if len(conditions) > MaxRules {
		p.add(-1, "document", "has more than %d conditions (got %d); join those that lead to the same", MaxRules, len(conditions))
		return nil, p.errors()
	}
	m := &Matcher{}
	names := map[string]bool{}
	for i := range conditions {
		v := &reader{&p, i}
		c := &Compiled{Index: i, Mode: Shadow, match: v.conditions(&conditions[i])}
		for _, h := range c.match.headers {
			names[h.name] = true
		}
		m.set.rules = append(m.set.rules, c)
	}
	if len(names) > maxHeaderNames {
		p.add(-1, "document", "looks at more than %d different headers (got %d); each must be looked up in a request", maxHeaderNames, len(names))
	}
	if errs := p.errors(); errs != nil {
		return nil, placed(errs)
	}
	m.set.index.build(m.set.rules, noRest)
	return m, nil
}

func (v *reader) conditions(c *Conditions) conditions {
	return conditions{
		hosts: v.hosts(c.Hosts), paths: v.paths(c.Paths), methods: v.methods(c.Methods),
		clients: v.clients(c.Clients), headers: v.headers(c.Headers),
	}
}

// placed names the fields of conditions that are not part of a rule.
func placed(errs Errors) Errors {
	for i, err := range errs {
		if f, ok := err.(limiter.FieldError); ok {
			f.Field = strings.Replace(strings.TrimPrefix(f.Field, "rules"), "].match", "]", 1)
			errs[i] = f
		}
	}
	return errs
}

// Find returns the places of the conditions that hold for r, in order. It allocates
// nothing once m has grown; the result is m's, until m is used again.
func (x *Matcher) Find(r Request, m *Match) []int32 {
	m.Reset()
	if len(x.set.rules) == 0 {
		return nil
	}
	m.read(r)
	x.set.find(m)
	m.request = request{}
	return m.found
}

// ParseKey reads what something is counted by, as the key of a rule. The error is
// Errors; each names its field by its place, as in [2].
func ParseKey(list []string) ([]KeyPart, error) {
	var p problems
	v := &reader{&p, 0}
	parts := v.key(append([]string{}, list...))
	errs := p.errors()
	for i, err := range errs {
		if f, ok := err.(limiter.FieldError); ok {
			f.Field = strings.TrimPrefix(f.Field, "rules[0].key")
			errs[i] = f
		}
	}
	if errs != nil {
		return nil, errs
	}
	return parts, nil
}

// Append appends what a request has of this part, unescaped, and an IPv6 address as
// its /64. It appends nothing if the request lacks it, or has it twice: which of the
// values counts would be the client's choice.
func (k KeyPart) Append(dst []byte, r Request) []byte {
	var value []byte
	switch k.Kind {
	case ByClient:
		return appendClient(dst, plainAddress(r.Client()))
	case ByHost:
		return appendHost(dst, r.Host())
	case ByPath:
		value = r.Path()
	case ByMethod:
		value = r.Method()
	case ByTier:
		value = r.Tier()
	default:
		var n int
		if value, n = (&request{Request: r}).named(&k); n != 1 {
			return dst
		}
	}
	return append(dst, value...)
}

func plainAddress(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
