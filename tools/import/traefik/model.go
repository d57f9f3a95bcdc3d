package traefik

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/replay"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Model decides as Traefik does: it finds the router, and counts by the arithmetic of its
// middlewares, which lets a request that comes a little early wait.
type Model struct {
	routes  []route
	limits  map[string][]*counter // by router
	buckets map[sourceKey]*bucket
	active  replay.Active[sourceKey]
}

// counter is one middleware of a router.
type counter struct {
	key           string
	rate          float64 // a second; 0: slots
	burst         float64
	wait, forgets float64 // seconds
	slots         int64
}

type sourceKey struct {
	*counter
	source string
}

type bucket struct{ tokens, last, seen float64 } // times in seconds

func newModel() *Model {
	return &Model{limits: map[string][]*counter{}, buckets: map[sourceKey]*bucket{}}
}

// patience is how long Traefik lets a request wait: half the time between two of them.
func patience(average int64, period time.Duration) time.Duration {
	rate := float64(average) / period.Seconds()
	if rate < 1 {
		return 500 * time.Millisecond
	}
	return time.Second / (time.Duration(rate) * 2)
}

// forgets is how long Traefik keeps the bucket of a source.
func forgets(average int64, period time.Duration) time.Duration {
	rate := float64(average) / period.Seconds()
	if rate >= 1 {
		return 2 * time.Second
	}
	return time.Duration(1+int(1/rate)) * time.Second
}

func (m *Model) rate(router string, l *rateLimit, period time.Duration, key []string) {
	m.limits[router] = append(m.limits[router], &counter{
		key: key[0], rate: float64(l.Average) / period.Seconds(), burst: float64(l.burst()),
		wait: patience(l.Average, period).Seconds(), forgets: forgets(l.Average, period).Seconds(),
	})
}

func (m *Model) slots(router string, l *inFlightReq, key []string) {
	m.limits[router] = append(m.limits[router], &counter{key: key[0], slots: l.Amount})
}

// Refuses reports whether Traefik would have refused a request. Its middlewares decide one after
// the other: what one has counted stays counted if the next refuses.
func (m *Model) Refuses(r *replay.Request) bool {
	now := r.Decided()
	m.active.Advance(now)
	var held []sourceKey
	for i := range m.routes {
		if !slices.ContainsFunc(m.routes[i].when, func(c rules.Conditions) bool { return holds(&c, r) }) {
			continue
		}
		for _, c := range m.limits[m.routes[i].name] {
			k := sourceKey{c, sourceOf(c.key, r)}
			if c.rate > 0 && !m.reserve(k, float64(now)/1e6) || c.rate == 0 && m.active.Count(k) >= c.slots {
				return true
			}
			if c.rate == 0 {
				held = append(held, k)
			}
		}
		break
	}
	for _, k := range held {
		m.active.Begin(k, now+max(0, r.Duration()))
	}
	return false
}

func (m *Model) reserve(k sourceKey, now float64) bool {
	b := m.buckets[k]
	if b == nil || now-b.seen > k.forgets {
		b = &bucket{tokens: k.burst, last: now}
		m.buckets[k] = b
	}
	b.seen = now
	tokens := min(k.burst, b.tokens+(now-b.last)*k.rate) - 1
	if tokens < 0 && -tokens/k.rate > k.wait {
		return false
	}
	b.tokens, b.last = tokens, now
	return true
}

func sourceOf(key string, r *replay.Request) string {
	if name, ok := strings.CutPrefix(key, "header:"); ok {
		value, _ := r.Header(name)
		return string(value)
	}
	if key == "host" {
		return hostOf(r)
	}
	bits, _ := strconv.Atoi(strings.TrimPrefix(key, "client_ip/"))
	a := r.Client()
	if a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(bits)
	return p.String()
}

func hostOf(r *replay.Request) string {
	host := strings.ToLower(string(r.Host()))
	if i := strings.LastIndexByte(host, ':'); i > strings.IndexByte(host, ']') {
		host = host[:i]
	}
	return host
}

// holds reports whether a request meets conditions.
func holds(c *rules.Conditions, r *replay.Request) bool {
	in := func(list []string, value string, meets func(want, got string) bool) bool {
		return list == nil || slices.ContainsFunc(list, func(want string) bool { return meets(want, value) })
	}
	same := func(want, got string) bool { return want == got }
	for name, value := range c.Headers {
		if got, _ := r.Header(name); string(got) != value {
			return false
		}
	}
	return in(c.Hosts, hostOf(r), same) && in(c.Methods, strings.ToUpper(string(r.Method())), same) && in(c.Paths, string(r.Path()), begins) &&
		in(c.Clients, "", func(want, _ string) bool {
			if p, err := netip.ParsePrefix(want); err == nil {
				return p.Contains(r.Client())
			}
			a, err := netip.ParseAddr(want)
			return err == nil && a == r.Client()
		})
}
