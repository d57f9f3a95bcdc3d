package nginx

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Translation is the result of translating a configuration.
type Translation struct {
	Document *rules.Document
	Report   []string // a line for each setting that cannot be translated
	Model    *Model   // of what nginx does
}

// Translate reads a configuration and returns the rules that decide as it does.
func Translate(name string, source Source) (*Translation, error) {
	c := &config{zones: map[string]*zone{}, conns: map[string]*zone{}, variables: map[string]*variable{}}
	p := &parser{source: source, budget: MaxBytes, skipped: c.lost}
	list, err := p.file(name, 0)
	if err != nil {
		return nil, err
	}
	if err := c.http(list); err != nil {
		return nil, err
	}
	t := &translator{config: c, doc: &rules.Document{Rules: []rules.Rule{}}, ids: map[string]bool{}, used: map[*zone]int{}}
	t.servers()
	if _, err := rules.Compile(t.doc); err != nil {
		return nil, fmt.Errorf("these rules would be refused: %w", err)
	}
	return &Translation{t.doc, c.report, newModel(c)}, nil
}

type translator struct {
	*config
	doc  *rules.Document
	ids  map[string]bool
	used map[*zone]int // rules of a zone
}

// area is where a limit applies within a server.
type area struct{ paths, not []string }

func (a area) equal(o area) bool { return slices.Equal(a.paths, o.paths) && slices.Equal(a.not, o.not) }

// servers makes rules of all limits. Where all servers have the same limit, one rule counts
// for all of them.
func (t *translator) servers() {
	var all []limit
	areas := make([]map[int][]area, len(t.config.servers)) // by the index in all
	for i, s := range t.config.servers {
		areas[i] = map[int][]area{}
		nodes := t.flatten(&s.root)
		for _, n := range nodes {
			for _, l := range n.limits {
				at := slices.IndexFunc(all, l.same)
				if at < 0 {
					at = len(all)
					all = append(all, l)
				}
				if areas[i][at] == nil {
					areas[i][at] = where(nodes, l)
				}
			}
		}
	}
	for at, l := range all {
		first, everywhere := areas[0][at], true
		for i := range areas {
			everywhere = everywhere && slices.EqualFunc(areas[i][at], first, area.equal)
		}
		if everywhere {
			t.areas(l, nil, first, t.config.servers[0].at)
			continue
		}
		for i, s := range t.config.servers {
			if len(areas[i][at]) > 0 {
				t.areas(l, s, areas[i][at], s.at)
			}
		}
	}
	for _, zones := range []map[string]*zone{t.zones, t.conns} {
		for _, z := range zones {
			if n, seen := t.used[z]; n > 1 {
				t.lost(z.at, "zone %s: has %d rules, because its limits differ by place; each counts separately, where nginx has one count", z.name, n)
			} else if !seen {
				t.lost(z.at, "zone %s: it limits nothing", z.name)
			}
		}
	}
	slices.Sort(t.report)
	t.report = slices.Compact(t.report)
}

// node is a location as rules can match it: everything that begins with its path, or
// exactly the path.
type node struct {
	path   string
	exact  bool
	limits []limit
}

func (n node) pattern() string {
	if n.exact {
		return n.path
	}
	return n.path + "*"
}

// holds reports whether every path of o is one of n's.
func (n node) holds(o node) bool {
	if n.exact {
		return o.exact && o.path == n.path
	}
	return strings.HasPrefix(o.path, n.path)
}

var (
	plainPrefix = regexp.MustCompile(`^\^(/(?:[A-Za-z0-9/_~-]|\\[.])*)(\$?)$`)
	unescape    = strings.NewReplacer(`\.`, ".")
)

// flatten returns the locations of a server that rules can match, the server first.
func (t *translator) flatten(l *location) (list []node) {
	n := node{path: l.path, exact: l.kind == "=", limits: l.limits}
	if l.regexp != nil {
		m := plainPrefix.FindStringSubmatch(l.path)
		if m == nil || l.kind == "~*" {
			if len(l.limits) > 0 {
				t.lost(l.at, "location %s: rules cannot match by this regular expression; its requests count as those of the location around it", l.path)
			}
			return nil
		}
		n.path, n.exact = unescape.Replace(m[1]), m[2] == "$"
	}
	list = append(list, n)
	for _, inner := range l.inner {
		list = append(list, t.flatten(inner)...)
	}
	return list
}

// where returns the places of a limit, each of which needs its own rule.
func where(nodes []node, l limit) (areas []area) {
	has := func(n node) bool { return slices.ContainsFunc(n.limits, l.same) }
	// The nearest location around each one; a later one of the same path replaces it.
	var last []node
	for i, n := range nodes {
		if !slices.ContainsFunc(nodes[i+1:], func(o node) bool { return o.path == n.path && o.exact == n.exact }) {
			last = append(last, n)
		}
	}
	around := func(n node) (found *node) {
		for i := range last {
			o := &last[i]
			if (o.path != n.path || o.exact != n.exact) && o.holds(n) && (found == nil || len(o.path) > len(found.path)) {
				found = o
			}
		}
		return found
	}
	// depth counts how often the limit begins and ends on the way down to a location.
	var depth func(n node) int
	depth = func(n node) int {
		up := around(n)
		if up == nil {
			if has(n) {
				return 1
			}
			return 0
		}
		d := depth(*up)
		if has(n) != has(*up) {
			d++
		}
		return d
	}
	for _, n := range last {
		up := around(n)
		begins, ends := has(n) && (up == nil || !has(*up)), !has(n) && up != nil && has(*up)
		if !begins && !ends {
			continue
		}
		at := (depth(n) - 1) / 2
		for len(areas) <= at {
			areas = append(areas, area{})
		}
		if begins {
			areas[at].paths = append(areas[at].paths, n.pattern())
		} else {
			areas[at].not = append(areas[at].not, n.pattern())
		}
	}
	for i := range areas {
		slices.Sort(areas[i].paths)
		slices.Sort(areas[i].not)
	}
	return areas
}

// areas makes the rules of a limit in a server; nil: in all of them.
func (t *translator) areas(l limit, s *server, areas []area, at string) {
	for _, a := range areas {
		var names, others []string
		if s != nil {
			names, others = t.hosts(s)
			switch {
			case len(names)+len(others) == 0:
				t.omit(l.zone, at, "the server has no name that rules can match")
				continue
			case len(others) > 0 && len(a.not) == 0:
				names = nil
			case len(others) > 0 && len(names) == 0:
				t.omit(l.zone, at, "rules cannot exempt other servers and locations at once; give the server's names")
				continue
			case len(others) > 0:
				t.lost(at, "zone %s: only requests for %s are counted, not those for names that no server has", l.zone.name, strings.Join(names, ", "))
				others = nil
			}
		}
		t.rule(l, names, others, a, at)
	}
}

// omit reports a limit that yields no rule.
func (t *translator) omit(z *zone, at, format string, args ...any) {
	t.used[z] += 0
	t.lost(at, "zone %s: its limit is left out: %s", z.name, fmt.Sprintf(format, args...))
}

// hosts returns the names of a server and, if it is the default server, the names of the
// rest.
func (t *translator) hosts(s *server) (names, others []string) {
	names = t.names(s)
	if s.standard || !slices.ContainsFunc(t.config.servers, func(o *server) bool { return o.standard }) && t.config.servers[0] == s {
		for _, o := range t.config.servers {
			if o != s {
				others = append(others, t.names(o)...)
			}
		}
		slices.Sort(others)
	}
	return names, slices.Compact(others)
}

func (t *translator) names(s *server) (list []string) {
	for _, n := range s.names {
		switch {
		case n == "" || n == "_":
		case strings.HasPrefix(n, "."):
			list = append(list, n[1:], "*"+n)
		case strings.HasPrefix(n, "~") || strings.HasSuffix(n, ".*"):
			t.lost(s.at, "server_name %s: rules cannot match by it; it is left out", n)
		default:
			list = append(list, strings.ToLower(n))
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// slotTime is how long a slot lasts if its edge dies without returning it.
const slotTime = "10m"

// rule makes one rule.
func (t *translator) rule(l limit, hosts, others []string, a area, at string) {
	z := l.zone
	count, err := t.count(z)
	if err != nil {
		t.omit(z, z.at, "%v", err)
		return
	}
	for _, d := range count.differs {
		t.lost(z.at, "zone %s: %s", z.name, d)
	}
	if (len(others)+len(a.not) > 0) && !count.not.Empty() && !count.turn() {
		t.omit(z, at, "rules cannot exempt requests by the key and by the place at once")
		return
	}
	r := rules.Rule{Description: "nginx: zone " + z.name, Key: count.key, Missing: count.missing}
	r.Match.Conditions = count.match
	if !slices.Equal(a.paths, []string{"/*"}) {
		r.Match.Paths = a.paths
	}
	if hosts != nil {
		r.Match.Hosts = hosts
	}
	not := count.not
	if len(others) > 0 {
		not.Hosts = others
	}
	if len(a.not) > 0 {
		not.Paths = a.not
	}
	if !not.Empty() {
		r.Match.Not = &not
	}
	if l.conns {
		r.Algorithm, r.Limit, r.Window = limiter.Concurrency.String(), l.n, slotTime
		t.lost(z.at, "zone %s: requests are counted, not connections; a slot that a dead edge holds is free after %s", z.name, slotTime)
	} else {
		r.Algorithm, r.Limit, r.Window = limiter.LeakyBucket.String(), z.rate, map[int64]string{1: "1s", 60: "1m"}[z.per]
		if l.n > 0 {
			r.Burst = &l.n
		}
		if z.rate*1000%z.per != 0 {
			t.lost(z.at, "zone %s: nginx rounds %dr/m down to %d.%03d in a second; the rule does not", z.name, z.rate, z.milli()/1000, z.milli()%1000)
		}
	}
	if l.dry {
		r.Mode = rules.Shadow.String()
	}
	r.ID = t.id(z.name)
	t.used[z]++
	t.doc.Rules = append(t.doc.Rules, r)
}

// id makes an id of a zone's name, with a number if another rule has it.
func (t *translator) id(name string) string {
	const longest = 56
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	if clean = strings.Trim(clean[:min(len(clean), longest)], "-"); clean == "" {
		clean = "zone"
	}
	id := clean
	for n := 2; t.ids[id]; n++ {
		id = fmt.Sprintf("%s-%d", clean, n)
	}
	t.ids[id] = true
	return id
}
