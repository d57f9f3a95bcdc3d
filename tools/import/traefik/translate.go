package traefik

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Translation is the result of translating a file.
type Translation struct {
	Document *rules.Document
	Report   []string // a line for each setting that cannot be translated
	Model    *Model   // of what Traefik does
}

// route is a router whose rule can be matched.
type route struct {
	name     string
	priority int
	when     []rules.Conditions
	limits   []string // middlewares
}

type translator struct {
	*document
	file   string
	doc    *rules.Document
	report []string
	ids    map[string]bool
	model  *Model
}

func (t *translator) lost(at, format string, args ...any) {
	t.report = append(t.report, fmt.Sprintf("%s: %s: %s", t.file, at, fmt.Sprintf(format, args...)))
}

// Translate reads a dynamic configuration and returns the rules that limit as it does. Each
// router has its own counts.
func Translate(name string, text []byte) (*Translation, error) {
	d, err := read(name, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	t := &translator{document: d, file: name, doc: &rules.Document{Rules: []rules.Rule{}}, ids: map[string]bool{}, model: newModel()}
	routes := t.routes()
	for i, r := range routes {
		for _, m := range r.limits {
			if err := t.middleware(routes[:i], &r, m); err != nil {
				return nil, fmt.Errorf("%s: http.middlewares.%s.%w", name, m, err)
			}
		}
	}
	used := map[string]bool{}
	for _, r := range d.HTTP.Routers {
		for _, m := range d.limits(r.Middlewares, 0, func(string) {}) {
			used[m] = true
		}
	}
	for _, m := range slices.Sorted(maps.Keys(d.HTTP.Middlewares)) {
		if v := d.HTTP.Middlewares[m]; (v.RateLimit != nil || v.InFlightReq != nil) && !used[m] {
			t.lost("http.middlewares."+m, "no router here uses it; it makes no rule")
		}
	}
	if _, err := rules.Compile(t.doc); err != nil {
		return nil, fmt.Errorf("these rules would be refused: %w", err)
	}
	slices.Sort(t.report)
	return &Translation{t.doc, slices.Compact(t.report), t.model}, nil
}

// routes returns the routers in the order in which Traefik asks them.
func (t *translator) routes() (list []route) {
	for _, name := range slices.Sorted(maps.Keys(t.HTTP.Routers)) {
		r, at := t.HTTP.Routers[name], "http.routers."+name
		limits := t.limits(r.Middlewares, 0, func(m string) {
			t.lost(at+".middlewares", "%s is not in this file; if it limits, its limits are left out", m)
		})
		when, err := parse(r.Rule)
		if err != nil {
			if len(limits) > 0 {
				t.lost(at+".rule", "%v; its limits are left out", err)
			} else {
				t.lost(at+".rule", "%v; requests to it also count in other routers", err)
			}
			continue
		}
		priority := r.Priority
		if priority == 0 {
			priority = len(r.Rule)
		}
		list = append(list, route{name, priority, when, limits})
	}
	slices.SortStableFunc(list, func(a, b route) int { return cmp.Compare(b.priority, a.priority) })
	t.model.routes = list
	return list
}

// middleware makes the rule of one middleware in one router.
func (t *translator) middleware(before []route, r *route, name string) error {
	at := "http.routers." + r.name
	if len(r.when) != 1 {
		t.lost(at+".rule", "one rule cannot match these alternatives; the limits of %s are left out", name)
		return nil
	}
	m := t.HTTP.Middlewares[name]
	rule := rules.Rule{Description: "Traefik: " + name + " of router " + r.name, Match: rules.Scope{Conditions: r.when[0]}}
	if slices.Equal(rule.Match.Paths, []string{"/*"}) {
		rule.Match.Paths = nil
	}
	rule.Match.Not = t.others(before, r, at)
	if l := m.RateLimit; l != nil {
		if err := t.rate(&rule, l, r, name); err != nil {
			return err
		}
	}
	if l := m.InFlightReq; l != nil {
		if l.Amount < 1 {
			return fmt.Errorf("inFlightReq.amount: must be at least 1 (got %d)", l.Amount)
		}
		rule.Algorithm, rule.Limit, rule.Window = limiter.Concurrency.String(), l.Amount, "10m"
		t.source(&rule, l.SourceCriterion, "http.middlewares."+name+".inFlightReq", "host")
		t.lost("http.middlewares."+name+".inFlightReq", "a slot that a dead edge holds is free after 10m")
		t.model.slots(r.name, l, rule.Key)
	}
	if rule.Limit == 0 {
		return nil
	}
	rule.ID = t.id(r.name + "-" + name)
	t.doc.Rules = append(t.doc.Rules, rule)
	return nil
}

// others exempts the requests that go to routers which Traefik asks first.
func (t *translator) others(before []route, r *route, at string) *rules.Conditions {
	var not *rules.Conditions
	for _, o := range before {
		for _, c := range o.when {
			if disjoint(&c, &r.when[0]) {
				continue
			}
			if slices.Equal(c.Hosts, r.when[0].Hosts) {
				c.Hosts = nil
			}
			switch {
			case c.Empty():
				t.lost(at, "router %s takes all of its requests", o.name)
			case not == nil:
				not = &c
			case differ(not, &c) >= 0:
				joined := join([]rules.Conditions{*not, c})
				not = &joined[0]
			default:
				t.lost(at, "requests to router %s, which Traefik asks first, also count here", o.name)
			}
		}
	}
	return not
}

// rate fills in a token bucket.
func (t *translator) rate(rule *rules.Rule, l *rateLimit, r *route, name string) error {
	at := "http.middlewares." + name + ".rateLimit"
	period, err := l.period()
	switch {
	case err != nil:
		return fmt.Errorf("rateLimit.%w", err)
	case l.Average < 0:
		return fmt.Errorf("rateLimit.average: must be at least 0 (got %d)", l.Average)
	case l.Average == 0:
		t.lost(at+".average", "0 means no limit; it makes no rule")
		return nil
	case period > limiter.MaxWindow:
		t.lost(at+".period", "is longer than %s; it makes no rule", limiter.MaxWindow)
		return nil
	}
	burst := l.burst()
	rule.Algorithm, rule.Limit, rule.Window, rule.Burst = limiter.TokenBucket.String(), l.Average, period.String(), &burst
	t.source(rule, l.SourceCriterion, at, "client")
	t.lost(at, "Traefik lets a request wait for up to %s that comes early; the rule refuses it", patience(l.Average, period))
	if full := time.Duration(float64(burst) / float64(l.Average) * float64(period)); full > forgets(l.Average, period) {
		t.lost(at+".burst", "Traefik forgets a source that sends nothing for %s, which then has the whole burst again; the rule takes %s to refill it",
			forgets(l.Average, period), full.Round(time.Millisecond))
	}
	t.model.rate(r.name, l, period, rule.Key)
	return nil
}

// source fills in the key.
func (t *translator) source(rule *rules.Rule, c *criterion, at, standard string) {
	client := "client_ip/128" // each address of an IPv6 network counts separately
	switch {
	case c == nil && standard == "host", c != nil && c.RequestHost:
		rule.Key = []string{"host"}
		return
	case c != nil && c.RequestHeaderName != "":
		rule.Key, rule.Missing = []string{"header:" + http.CanonicalHeaderKey(c.RequestHeaderName)}, "limit"
		return
	case c != nil && c.IPStrategy != nil:
		if s := c.IPStrategy; s.Depth > 0 || len(s.ExcludedIPs) > 0 {
			t.lost(at+".sourceCriterion.ipStrategy", "set trusted_proxies of the edges to the proxies in front of them: they find the client by it")
		}
		if n := c.IPStrategy.IPv6Subnet; n != nil && *n >= 32 && *n <= 128 {
			client = fmt.Sprintf("client_ip/%d", *n)
		}
	}
	rule.Key = []string{client}
}

// id makes an id of a name, with a number if another rule has it.
func (t *translator) id(name string) string {
	const longest = 60
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	clean = cmp.Or(strings.Trim(clean[:min(len(clean), longest)], "-"), "router")
	id := clean
	for n := 2; t.ids[id]; n++ {
		id = fmt.Sprintf("%s-%d", clean, n)
	}
	t.ids[id] = true
	return id
}
