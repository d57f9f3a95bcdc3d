package rules

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Request is what matching reads from a request. The slices must stay valid until the
// last use of the Match (Matcher.FindAgain), that of Query only until the next Query.
type Request interface {
	Client() netip.Addr
	Host() []byte   // as sent: any case, perhaps with a port
	Path() []byte   // one of its readings (pkg/paths)
	Method() []byte // as sent
	// Header, Cookie and Query return the first value and how often the name occurs.
	// Header names are in canonical form.
	Header(name string) (value []byte, n int)
	Cookie(name string) (value []byte, n int)
	Query(name string) (value []byte, n int)
	Tier() []byte
	// Risk returns the client's tier under the behavior policy; "" for the mildest, and
	// without a policy.
	Risk() string
	// Trusted reports whether the request came through a trusted proxy, which may state
	// its cost.
	Trusted() bool
}

// Hashed is a Request for which an operator may provide the hash of a secret value instead
// of the value. Received requests are never Hashed.
type Hashed interface {
	// Hash returns the hash of a header, cookie or query parameter that the request does
	// not contain, as in keys but without ~; nil if none was provided.
	Hash(part *KeyPart) []byte
}

// Match holds the checks of one request. Reuse it: its buffers grow to what requests
// need, and then matching allocates nothing.
type Match struct {
	// Checks are in document order. Their keys stay valid until the next Reset or
	// Set.Match.
	Checks []limiter.Check
	// Rules holds the rule of each check.
	Rules []*Compiled
	// Uses says which checks each descriptor of a call must pass, in the order of the
	// descriptors. Descriptors that count under one key share a check.
	Uses []Use
	// InExperiments says which checks are part of an experiment.
	InExperiments []ExperimentCheck

	request   request
	host      []byte
	method    []byte
	path      []byte
	found     []int32
	keys      []byte
	ends      []int
	positions positions // of the keys of a call
	dup       *DuplicateError
}

// request caches the parts of a Request in the form that rules compare.
type request struct {
	Request
	client       netip.Addr
	path, method []byte
	host         *[]byte // buffer for plainHost, which is read only if a rule needs it
	hostRead     bool
	pathKey      *[]byte // buffer for the path part of a key
	tier         []byte
	risk         string
	pairs        []Pair // of the descriptor
}

// Reset empties m and releases the request, but keeps the buffers.
func (m *Match) Reset() {
	clear(m.Checks)
	clear(m.Rules)
	m.Checks, m.Rules, m.Uses, m.InExperiments = m.Checks[:0], m.Rules[:0], m.Uses[:0], m.InExperiments[:0]
	m.found, m.keys, m.ends = m.found[:0], m.keys[:0], m.ends[:0]
	m.request, m.dup = request{}, nil
	m.positions.reset()
}

// Match fills m with the checks that r must pass, in document order. Each gets the slot.
// The error is a *DuplicateError, which leaves m empty.
func (s *Set) Match(r Request, slot uint64, m *Match) error {
	m.Reset()
	m.read(r)
	s.find(m)
	if m.dup == nil {
		s.checks(slot, m)
	}
	if dup := m.dup; dup != nil {
		m.Reset()
		return dup
	}
	return nil
}

// SameChecks reports whether two matches from one document hold the same checks.
func (m *Match) SameChecks(o *Match) bool {
	return slices.EqualFunc(m.Checks, o.Checks, func(a, b limiter.Check) bool {
		return a.Limit == b.Limit && a.Cost == b.Cost && bytes.Equal(a.Key, b.Key)
	})
}

// read copies what may be compared repeatedly.
func (m *Match) read(r Request) {
	m.method = append(m.method[:0], r.Method()...)
	for i, c := range m.method {
		// Upstreams differ on whether get is GET; a rule on GET counts both.
		if c >= 'a' && c <= 'z' {
			m.method[i] = c - 'a' + 'A'
		}
	}
	m.request = request{
		Request: r, client: r.Client().Unmap().WithZone(""),
		host: &m.host, path: r.Path(), pathKey: &m.path, method: m.method, tier: r.Tier(), risk: cmp.Or(r.Risk(), MildestRisk),
	}
}

// Header is Request's, without white space around the value: some origins strip more than spaces and
// tabs, and a client must not get a second count by adding it.
func (q *request) Header(name string) ([]byte, int) {
	value, n := q.Request.Header(name)
	return trimBlanks(value), n
}

// plainHost returns the host as rules compare it; a call has none.
func (q *request) plainHost() []byte {
	if q.host == nil {
		return nil
	}
	if !q.hostRead {
		*q.host, q.hostRead = appendHost((*q.host)[:0], q.Host()), true
	}
	return *q.host
}

// appendHost appends a host in lower case, without port and trailing dot.
func appendHost(dst, host []byte) []byte {
	if bytes.HasPrefix(host, []byte("[")) {
		if i := bytes.IndexByte(host, ']'); i >= 0 {
			host = host[:i+1]
		}
	} else if i := bytes.IndexByte(host, ':'); i >= 0 {
		host = host[:i]
	}
	host = bytes.TrimSuffix(host, []byte("."))
	for _, c := range host {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// find puts the rules that apply in m.found, in document order.
func (s *Set) find(m *Match) {
	q := &m.request
	s.index.each(q.client, func(hosts *hostTable[pathTable[methodTable[leaf]]]) {
		var host []byte
		if hosts.named() {
			host = q.plainHost()
		}
		hosts.each(host, func(paths *pathTable[methodTable[leaf]]) {
			paths.each(q.path, func(methods *methodTable[leaf]) {
				methods.each(q.method, func(l *leaf) { s.candidates(l, m) })
			})
		})
	})
	if len(m.found) > 1 { // a rule is found once for each of its values that match
		slices.Sort(m.found)
		m.found = slices.Compact(m.found)
	}
	m.found = slices.DeleteFunc(m.found, func(i int32) bool { return !s.rules[i].applies(q) })
}

func (s *Set) candidates(l *leaf, m *Match) {
	m.found = append(m.found, l.always...)
	for i := range l.headers {
		b := &l.headers[i]
		value, n := m.request.Header(b.name)
		switch {
		case n == 1:
			m.found = append(m.found, b.candidates[string(value)]...)
		case n > 1 && m.dup == nil && (b.strict || s.anyConsults(b, &m.request)):
			m.dup = &DuplicateError{"header", b.name}
		}
	}
}

func (s *Set) anyConsults(b *headerBranch, q *request) bool {
	for _, i := range b.consulting {
		if c := s.rules[i]; c.residue.holds(q) && !c.exempts(q) {
			return true
		}
	}
	return false
}

// applies verifies what the index did not.
func (c *Compiled) applies(q *request) bool { return c.residue.meets(q) && !c.exempts(q) }

// exempts reports whether match.not excludes the request. A repeated header exempts
// nothing.
func (c *Compiled) exempts(q *request) bool { return c.not != nil && c.not.meets(q) }

// checks turns the rules that apply into checks.
func (s *Set) checks(slot uint64, m *Match) {
	for _, i := range m.found {
		if m.dup = m.add(s.rules[i], slot); m.dup != nil {
			return
		}
	}
	m.slice()
}

// slice gives each check its key, after all appends, because appending may move the buffer.
func (m *Match) slice() {
	start := 0
	for i, end := range m.ends {
		m.Checks[i].Key = m.keys[start:end:end]
		start = end
	}
}

// add appends the check of a rule, if the rule counts this request.
func (m *Match) add(c *Compiled, slot uint64) *DuplicateError {
	q := &m.request
	if c.Experiment != nil {
		return m.addExperiment(c, slot)
	}
	limit := c.LimitFor(q.tier, q.risk)
	if limit == nil {
		return nil
	}
	keys, counted, dup := c.appendKey(m.keys, q)
	m.keys = keys[:len(m.keys)] // keep a larger buffer even without the key
	switch {
	case dup != nil && c.Mode == Enforce:
		return dup
	case dup != nil || !counted: // a shadow rule never refuses: ignore it
		return nil
	}
	return m.check(c, limit, keys, slot)
}

// check appends the check of a rule whose key is at the end of keys.
func (m *Match) check(c *Compiled, limit *limiter.Limit, keys []byte, slot uint64) *DuplicateError {
	cost := c.Cost
	if c.CostHeader != "" && m.request.Trusted() {
		var dup *DuplicateError
		if cost, dup = c.statedCost(&m.request, limit); dup != nil {
			if c.Base().enforces() {
				return dup
			}
			return nil
		}
	}
	m.keys = keys
	m.ends = append(m.ends, len(keys))
	m.Rules = append(m.Rules, c)
	m.Checks = append(m.Checks, limiter.Check{Limit: limit, Cost: cost, Slot: slot})
	return nil
}

// statedCost reads the cost from a trusted request, capped at what can pass.
func (c *Compiled) statedCost(q *request, limit *limiter.Limit) (int64, *DuplicateError) {
	value, n := q.Header(c.CostHeader)
	if n > 1 {
		return 1, &DuplicateError{"header", c.CostHeader}
	}
	cost, most := int64(0), limit.MaxCost()
	for _, d := range value {
		if d < '0' || d > '9' {
			return 1, nil
		}
		// The cap is far below where multiplying by ten would overflow.
		cost = min(cost*10+int64(d-'0'), most)
	}
	return max(cost, 1), nil
}
