package nginx

import (
	"bytes"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/replay"
	"github.com/weir-edge/weir/pkg/paths"
)

// Model decides as nginx does: it finds the server and the location, evaluates the keys, and
// counts by nginx's own arithmetic, in milliseconds and thousandths of a request.
type Model struct {
	config *config
	rates  map[countKey]*excess
	active replay.Active[countKey]
	path   []byte
}

// countKey names a count.
type countKey struct {
	zone *zone
	key  string
}

// excess is how far a key is ahead of its rate, as in ngx_http_limit_req_module.
type excess struct{ value, last int64 }

func newModel(c *config) *Model {
	return &Model{config: c, rates: map[countKey]*excess{}}
}

var doubled = []byte("//")

// Refuses reports whether nginx would have refused a request.
func (m *Model) Refuses(r *replay.Request) bool {
	now := r.Decided() / 1000
	m.active.Advance(r.Decided())
	s := m.server(r)
	if s == nil {
		return false
	}
	var err error
	if m.path, err = paths.AppendNormal(m.path[:0], r.Path()); err != nil {
		return false
	}
	for bytes.Contains(m.path, doubled) { // merge_slashes
		m.path = bytes.ReplaceAll(m.path, doubled, doubled[:1])
	}
	limits := s.root.find(string(m.path)).limits
	return m.refusesRate(limits, r, s, now) || m.refusesConns(limits, r, s)
}

// refusesRate checks all zones before it charges any.
func (m *Model) refusesRate(limits []limit, r *replay.Request, s *server, now int64) bool {
	type charge struct {
		key   countKey
		value int64
	}
	var charges []charge
	for _, l := range limits {
		key := m.eval(l.zone.key, r, s)
		if l.conns || key == "" || len(key) > 65535 {
			continue
		}
		k, value := countKey{l.zone, key}, int64(0)
		if e := m.rates[k]; e != nil {
			value = max(0, e.value-l.zone.milli()*max(0, now-e.last)/1000+1000)
		}
		if value > l.n*1000 {
			if l.dry {
				return false // a dry run stops here
			}
			return true
		}
		charges = append(charges, charge{k, value})
	}
	for _, c := range charges {
		m.rates[c.key] = &excess{c.value, now}
	}
	return false
}

func (m *Model) refusesConns(limits []limit, r *replay.Request, s *server) bool {
	var held []countKey
	for _, l := range limits {
		key := m.eval(l.zone.key, r, s)
		if !l.conns || key == "" {
			continue
		}
		k := countKey{l.zone, key}
		if m.active.Count(k) >= l.n {
			if l.dry {
				continue
			}
			return true
		}
		held = append(held, k)
	}
	for _, k := range held {
		m.active.Begin(k, r.Decided()+max(0, r.Duration()))
	}
	return false
}

// server finds the server of a request by its host: exact names, then wildcards, then expressions.
func (m *Model) server(r *replay.Request) *server {
	host := hostOf(r)
	var found, standard *server
	best := 0
	for _, s := range m.config.servers {
		if standard == nil || s.standard && !standard.standard {
			standard = s
		}
		for _, n := range s.names {
			n = strings.ToLower(n)
			rank := 0
			switch {
			case n == host && host != "":
				rank = 1 << 20
			case strings.HasPrefix(n, ".") && (host == n[1:] || strings.HasSuffix(host, n)), strings.HasPrefix(n, "*.") && strings.HasSuffix(host, n[1:]):
				rank = 1<<10 + len(n)
			case strings.HasSuffix(n, ".*") && strings.HasPrefix(host, n[:len(n)-1]):
				rank = len(n)
			}
			if rank > best {
				found, best = s, rank
			}
		}
	}
	if found != nil {
		return found
	}
	return standard
}

func hostOf(r *replay.Request) string {
	host := strings.ToLower(string(r.Host()))
	if i := strings.LastIndexByte(host, ':'); i > strings.IndexByte(host, ']') {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}

// find returns the location of a path, as nginx documents it: an exact one, else the longest
// beginning, unless an expression fits that is not shut out by ^~.
func (l *location) find(path string) *location {
	longest := l
	var best *location
	for _, o := range l.inner {
		switch o.kind {
		case "=":
			if o.path == path {
				return o
			}
		case "", "^~":
			if strings.HasPrefix(path, o.path) && (best == nil || len(o.path) > len(best.path)) {
				best = o
			}
		}
	}
	if best != nil {
		if longest = best.find(path); best.kind == "^~" || longest.regexp != nil || longest.kind == "=" {
			return longest
		}
	}
	for _, o := range l.inner {
		if o.regexp != nil && o.regexp.MatchString(path) {
			return o.find(path)
		}
	}
	return longest
}

// eval returns the value of an expression for a request.
func (m *Model) eval(e expression, r *replay.Request, s *server) string { return m.join(e, r, s, 0) }

func (m *Model) value(name string, r *replay.Request, s *server, depth int) string {
	const deepest = 8
	if v := m.config.variables[name]; v != nil && depth < deepest {
		return m.join(v.of(m.join(v.source, r, s, depth+1)), r, s, depth+1)
	}
	switch name {
	case "remote_addr":
		return r.Client().String()
	case "binary_remote_addr":
		return string(r.Client().AsSlice())
	case "host":
		return hostOf(r)
	case "http_host":
		return string(r.Host())
	case "server_name":
		return slices.Concat(s.names, []string{""})[0]
	case "request_method":
		return string(r.Method())
	case "uri", "document_uri":
		return string(m.path)
	case "request_uri":
		return string(bytes.Join([][]byte{r.Path(), r.Query()}, []byte("?")))
	}
	if rest, ok := strings.CutPrefix(name, "http_"); ok {
		value, _ := r.Header(strings.ReplaceAll(rest, "_", "-"))
		return string(value)
	}
	if rest, ok := strings.CutPrefix(name, "cookie_"); ok {
		value, _ := r.Cookie(rest)
		return string(value)
	}
	if rest, ok := strings.CutPrefix(name, "arg_"); ok {
		for pair := range bytes.SplitSeq(r.Query(), []byte("&")) { // not decoded
			if k, v, _ := bytes.Cut(pair, []byte("=")); strings.EqualFold(string(k), rest) {
				return string(v)
			}
		}
		return ""
	}
	return "$" + name // the same for all requests
}

func (m *Model) join(e expression, r *replay.Request, s *server, depth int) string {
	var b strings.Builder
	for _, part := range e {
		if part.variable {
			b.WriteString(m.value(part.text, r, s, depth))
		} else {
			b.WriteString(part.text)
		}
	}
	return b.String()
}
