package rules

import "strings"

// Header returns the request header that the part reads, in lower case; "" if none.
func (k KeyPart) Header() string {
	switch k.Kind {
	case ByHeader:
		return strings.ToLower(k.Name)
	case ByCookie:
		return "cookie"
	default:
		return ""
	}
}

// ReadsHeader reports whether any rule reads that header, given in lower case. A client's
// address and tier do not count: the caller decides where they come from.
func (s *Set) ReadsHeader(header string) bool { return s.headers[header] }

// ReadsHeader reports whether any condition reads that header, given in lower case.
func (x *Matcher) ReadsHeader(header string) bool { return x.set.ReadsHeader(header) }

// consult records the headers that a rule reads.
func (s *Set) consult(c *Compiled) {
	note := func(name string) {
		if name != "" {
			s.headers[strings.ToLower(name)] = true
		}
	}
	for _, h := range c.match.headers {
		note(h.name)
	}
	if c.not != nil {
		for _, h := range c.not.headers {
			note(h.name)
		}
	}
	for _, part := range c.Key {
		note(part.Header())
	}
	note(c.CostHeader)
}
