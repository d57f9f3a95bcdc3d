package limits

import (
	"maps"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// lookup is a request that a rule would count by the given keys.
type lookup struct {
	rule  string
	query url.Values
}

// unanswerable is a rule that counts by one of the keys, but also by something else, or
// that exempts this one.
type unanswerable struct {
	Rule    string `json:"rule"`
	Lacks   string `json:"lacks"`
	Exempts bool   `json:"exempts,omitempty"` // by match.not
}

const exempts = "match.not exempts it"

// lookups returns the requests to explain to learn about every rule that counts by these
// keys.
func (k keys) lookups(b *kinds.RuleBook) (list []lookup, lacking []unanswerable) {
	for _, c := range b.Set.Rules() {
		counts := false
		var lacks []string
		for _, part := range c.Key {
			name := part.String()
			if part.OfClient() {
				name = "client_ip"
			}
			if _, given := k[name]; given {
				counts = true
			} else {
				lacks = append(lacks, name)
			}
		}
		switch {
		case !counts || c.Mode == rules.Off:
			continue
		case len(lacks) > 0:
			lacking = append(lacking, unanswerable{Rule: c.ID, Lacks: strings.Join(lacks, ", ")})
			continue
		}
		if q, why := k.fit(b.Written[c.Index].Match); why == "" {
			list = append(list, lookup{c.ID, q})
		} else if why == exempts {
			lacking = append(lacking, unanswerable{Rule: c.ID, Exempts: true})
		}
	}
	return list, lacking
}

// madeUp are values for what a rule does not state, tried in order, because match.not
// exempts some.
var madeUp = map[string][]string{
	"client_ip": {"192.0.2.1", "198.51.100.1", "2001:db8::1"}, "host": {"", "any.invalid"}, "path": {"/", "/any"}, "method": {"GET", "POST", "HEAD", "PUT"},
}

// fit makes up a request that has the keys and meets the conditions; why says that there is
// none.
func (k keys) fit(match rules.Scope) (q url.Values, why string) {
	if q, why = k.ask(match.Conditions, nil); why != "" || match.Not == nil {
		return q, why
	}
	exempt, err := rules.NewMatcher([]rules.Conditions{*match.Not})
	if err != nil {
		return q, "" // the document was valid
	}
	var m rules.Match
	if len(exempt.Find(madeUpRequest{q}, &m)) == 0 {
		return q, ""
	}
	// All parts of not must hold, so another value for one of them is enough.
	for _, name := range slices.Sorted(maps.Keys(madeUp)) {
		for _, value := range append(valuesOf(name, match.Conditions), madeUp[name]...) {
			if q, why := k.ask(match.Conditions, map[string]string{name: value}); why == "" && len(exempt.Find(madeUpRequest{q}, &m)) == 0 {
				return q, ""
			}
		}
	}
	return nil, exempts
}

// valuesOf returns the values that match the conditions on a part; none means any.
func valuesOf(name string, match rules.Conditions) (values []string) {
	add := func(list []string, made func(string) string) {
		for _, v := range list {
			values = append(values, made(v))
		}
	}
	switch name {
	case "client_ip":
		add(match.Clients, func(c string) string {
			if prefix, err := netip.ParsePrefix(c); err == nil {
				return prefix.Addr().String()
			}
			return c
		})
	case "host":
		add(match.Hosts, func(h string) string { return strings.Replace(h, "*", "any", 1) })
	case "path":
		add(match.Paths, func(path string) string { return strings.TrimSuffix(path, "*") })
		add(match.Paths, func(path string) string { return strings.Replace(path, "*", "any", 1) })
	case "method":
		add(match.Methods, func(m string) string { return m })
	}
	return values
}

// ask makes up a request from the keys, from other values if there are any, and from the
// first values that match the conditions.
func (k keys) ask(match rules.Conditions, other map[string]string) (q url.Values, why string) {
	with := maps.Clone(k)
	for name, usual := range madeUp {
		if _, given := with[name]; given {
			if _, changed := other[name]; changed {
				return nil, "is given"
			}
			continue
		}
		values := append(valuesOf(name, match), usual...)
		if value, changed := other[name]; changed {
			if len(valuesOf(name, match)) > 0 && !slices.Contains(valuesOf(name, match), value) {
				return nil, "does not match"
			}
			values = []string{value}
		}
		if values[0] != "" {
			with[name] = values[0]
		}
	}

	path, query, _ := strings.Cut(with["path"], "?")
	args, _ := url.ParseQuery(query) // what can be read of it
	q = url.Values{}
	for name, value := range with {
		kind, sub, _ := strings.Cut(name, ":")
		switch kind {
		case "client_ip":
			q.Set("client", value)
		case "host", "method", "tier":
			q.Set(kind, value)
		case "header", "cookie", "query":
			switch {
			case rules.IsHash(value):
				q.Add("hash", name+":"+value[1:])
			case kind == "header":
				q.Add("header", sub+":"+value)
			case kind == "cookie":
				q.Add("cookie", sub+"="+value)
			default:
				args.Set(sub, value)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(match.Headers)) {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if given, ok := with["header:"+canonical]; ok {
			switch {
			case given == match.Headers[name]:
			case given == rules.HashOf("header:"+canonical, match.Headers[name]): // so its value is known
				q.Add("header", canonical+":"+match.Headers[name])
			default:
				return nil, "matches another value of header " + name
			}
			continue
		}
		q.Add("header", canonical+":"+match.Headers[name])
	}
	slices.Sort(q["hash"])
	slices.Sort(q["header"])
	slices.Sort(q["cookie"])
	if len(args) > 0 {
		path += "?" + args.Encode()
	}
	q.Set("path", path)
	return q, ""
}

// madeUpRequest is a question as conditions see it.
type madeUpRequest struct{ q url.Values }

func (r madeUpRequest) Client() netip.Addr { a, _ := netip.ParseAddr(r.q.Get("client")); return a }
func (r madeUpRequest) Host() []byte       { return []byte(r.q.Get("host")) }
func (r madeUpRequest) Method() []byte     { return []byte(r.q.Get("method")) }
func (r madeUpRequest) Tier() []byte       { return []byte(r.q.Get("tier")) }
func (r madeUpRequest) Risk() string       { return "" }
func (r madeUpRequest) Trusted() bool      { return false }

func (r madeUpRequest) Path() []byte {
	path, _, _ := strings.Cut(r.q.Get("path"), "?")
	return []byte(path)
}

func (r madeUpRequest) Header(name string) ([]byte, int) {
	for _, h := range r.q["header"] {
		if value, ok := strings.CutPrefix(h, name+":"); ok {
			return []byte(value), 1
		}
	}
	return nil, 0
}

// Conditions look at neither cookies nor the query.
func (r madeUpRequest) Cookie(string) ([]byte, int) { return nil, 0 }
func (r madeUpRequest) Query(string) ([]byte, int)  { return nil, 0 }
