package shedding

import (
	"fmt"
	"net/textproto"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Matcher determines the class of a request. It is immutable.
type Matcher struct {
	conditions *rules.Matcher
	leads      []lead // by condition, in evaluation order
	lowering   []lowering
	otherwise  int
}

// lowering is a header that may lower a request below the default class.
type lowering struct {
	header string
	class  int
}

// lead is what a condition that holds decides.
type lead struct {
	class   int
	trusted bool // it requires a trusted proxy
	at      string
}

// Matcher compiles the classes' conditions.
//
// Classes below the default are tried first: a request may lower itself. Only a trusted proxy's
// header raises a request, because any client can write one. A client cannot raise itself by
// repeating a header with which a proxy lowered it.
func (d *Document) Matcher() (*Matcher, error) {
	m := &Matcher{otherwise: d.class(d.DefaultClass)}
	var list []rules.Conditions
	take := func(class int, above bool) {
		for i, c := range d.Classes[class].Match {
			list = append(list, c)
			m.leads = append(m.leads, lead{class, above && len(c.Headers) > 0, fmt.Sprintf("classes[%d].match[%d]", class, i)})
		}
	}
	for i := len(d.Classes) - 1; i > m.otherwise; i-- {
		take(i, false)
		for _, c := range d.Classes[i].Match {
			for name := range c.Headers {
				m.lowering = append(m.lowering, lowering{textproto.CanonicalMIMEHeaderKey(name), i})
			}
		}
	}
	for i := range max(m.otherwise, 0) {
		take(i, true)
	}
	var err error
	m.conditions, err = rules.NewMatcher(list)
	return m, err
}

// ReadsHeader reports whether a class depends on a header, given in lower case.
func (m *Matcher) ReadsHeader(header string) bool { return m.conditions.ReadsHeader(header) }

// Class returns the index of a request's class. match is the request's match with the rules.
func (m *Matcher) Class(r rules.Request, match *rules.Match) int {
	for _, l := range m.lowering {
		if _, n := r.Header(l.header); n > 1 {
			return l.class
		}
	}
	for _, i := range m.conditions.FindAgain(match) {
		if l := m.leads[i]; !l.trusted || r.Trusted() {
			return l.class
		}
	}
	return m.otherwise
}
