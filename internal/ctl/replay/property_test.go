package replay

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// plainRequest is a request in plain values.
type plainRequest struct {
	time                     time.Time
	took                     time.Duration // < 0: not logged
	client                   netip.Addr
	host, path, method, tier string
	headers, cookies, query  map[string]string
	twice                    bool // the header X-Api-Key occurs twice
	trusted                  bool
}

func (a *plainRequest) Client() netip.Addr { return a.client }
func (a *plainRequest) Host() []byte       { return []byte(a.host) }
func (a *plainRequest) Path() []byte       { return []byte(a.path) }
func (a *plainRequest) Method() []byte     { return []byte(a.method) }
func (a *plainRequest) Tier() []byte       { return []byte(a.tier) }
func (a *plainRequest) Risk() string       { return "" }
func (a *plainRequest) Trusted() bool      { return a.trusted }

func (a *plainRequest) Header(name string) ([]byte, int) {
	value, n := first(a.headers, name)
	if name == "X-Api-Key" && a.twice && n == 1 {
		n = 2
	}
	return value, n
}
func (a *plainRequest) Cookie(name string) ([]byte, int) { return first(a.cookies, name) }
func (a *plainRequest) Query(name string) ([]byte, int)  { return first(a.query, name) }

func first(m map[string]string, name string) ([]byte, int) {
	value, ok := m[name]
	if !ok {
		return nil, 0
	}
	return []byte(value), 1
}

func drawRequest(t *rapid.T, at time.Time) *plainRequest {
	pick := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
	a := &plainRequest{
		time: at, took: time.Duration(rapid.IntRange(-1, 5000).Draw(t, "took")) * time.Millisecond,
		client: netip.MustParseAddr(pick("client", "203.0.113.7", "203.0.113.8", "2001:db8::1", "2001:db8::2", "2001:db8:1::1")),
		host:   pick("host", "a.example", "b.example"), path: pick("path", "/", "/api/x", "/api/y", "/login"), method: pick("method", "GET", "POST"),
		tier: pick("tier", "", "pro", "internal"), headers: map[string]string{}, cookies: map[string]string{}, query: map[string]string{},
		twice: rapid.IntRange(0, 9).Draw(t, "twice") == 0, trusted: rapid.Bool().Draw(t, "trusted"),
	}
	for _, m := range []struct {
		into   map[string]string
		name   string
		values []string
	}{{a.headers, "X-Api-Key", []string{"k1", "k2", ""}}, {a.headers, "X-Plan", []string{"free", "paid"}}, {a.headers, "X-Cost", []string{"2", "x", "99"}},
		{a.cookies, "session", []string{"s1", "s2"}}, {a.query, "q", []string{"1", "2"}}} {
		if rapid.Bool().Draw(t, "has "+m.name) {
			m.into[m.name] = pick(m.name, m.values...)
		}
	}
	return a
}

// line formats the request as in a log.
func (a *plainRequest) line(t require.TestingT) []byte {
	headers := map[string]any{}
	for name, value := range a.headers {
		headers[name] = value
		if name == "X-Api-Key" && a.twice {
			headers[name] = []string{value, value}
		}
	}
	if s, ok := a.cookies["session"]; ok {
		headers["cookie"] = "theme=dark; session=" + s
	}
	target := a.path
	if q, ok := a.query["q"]; ok {
		target += "?x=y&q=" + q
	}
	m := map[string]any{
		"time": a.time.Format(time.RFC3339Nano), "client": a.client.String(), "host": a.host, "uri": target, "method": a.method,
		"tier": a.tier, "trusted": a.trusted, "headers": headers,
	}
	if a.took >= 0 {
		m["duration"] = a.took.Seconds()
	}
	b, err := json.Marshal(m)
	require.NoError(t, err)
	return append(b, '\n')
}

func drawDocument(t *rapid.T, name string) *rules.Set {
	var doc rules.Document
	for i := range rapid.IntRange(0, 5).Draw(t, name+": rules") {
		pick := func(what string, values ...string) string {
			return rapid.SampledFrom(values).Draw(t, fmt.Sprintf("%s[%d].%s", name, i, what))
		}
		r := rules.Rule{
			ID: fmt.Sprintf("r%d", i), Limit: rapid.Int64Range(1, 5).Draw(t, "limit"), Window: pick("window", "100ms", "1s", "10s", "1m"),
			Mode: pick("mode", "enforce", "enforce", "shadow", "off"), Missing: "skip",
			Algorithm: pick("algorithm", "fixed_window", "sliding_window", "token_bucket", "leaky_bucket", "rolling_window", "concurrency"),
		}
		r.Key = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"client_ip", "header:X-Api-Key", "cookie:session", "query:q", "host", "path", "method", "tier"}), 0, 3,
			func(s string) string { return s }).Draw(t, "key")
		if slices.ContainsFunc(r.Key, func(s string) bool { return s == "tier" || s == "query:q" }) {
			r.Missing = pick("missing", "skip", "limit")
		}
		switch pick("match", "all", "all", "path", "header", "host", "client", "method") {
		case "path":
			r.Match.Paths = []string{"/api/*"}
		case "header":
			r.Match.Headers = map[string]string{"X-Plan": "free"}
		case "host":
			r.Match.Hosts = []string{"*.example"}
		case "client":
			r.Match.Clients = []string{"2001:db8::/32"}
		case "method":
			r.Match.Methods = []string{"POST"}
		}
		if r.Algorithm != "concurrency" {
			r.CountDenied = rapid.Bool().Draw(t, "count_denied")
			r.Cost = pick("cost", "", "1", "header:X-Cost")
		}
		// Not for buckets: a tier may share a key with a slower one, whose count outlasts the
		// store's promise to keep it.
		if !strings.HasSuffix(r.Algorithm, "_bucket") && rapid.Bool().Draw(t, "has tiers") {
			r.Tiers = map[string]string{"pro": "7", "internal": "unlimited"}
		}
		doc.Rules = append(doc.Rules, r)
	}
	set, err := rules.Compile(&doc)
	require.NoError(t, err)
	return set
}

// direct is a memory store that decides request by request.
type direct struct {
	set    *rules.Set
	store  *memory.Store
	now    int64
	slots  []taken
	counts Outcome
}

type taken struct {
	until    int64
	check    limiter.Check
	decision limiter.Decision
}

func newDirect(set *rules.Set) *direct {
	d := &direct{set: set, counts: Outcome{Version: set.Version(), Rules: []RuleOutcome{}}}
	d.store = memory.New(memory.Config{Clock: func() int64 { return d.now }})
	for _, c := range set.Rules() {
		d.counts.Rules = append(d.counts.Rules, RuleOutcome{Rule: c.ID, Mode: c.Mode.String(), Top: []ClientCount{}})
	}
	return d
}

// decide returns the verdict as one word.
func (d *direct) decide(t require.TestingT, a *plainRequest, now int64, lease uint64) string {
	// Slots of ended requests return in the order in which the requests end.
	slices.SortStableFunc(d.slots, func(x, y taken) int { return cmp.Compare(x.until, y.until) })
	for len(d.slots) > 0 && d.slots[0].until <= now {
		d.now = d.slots[0].until
		require.NoError(t, d.store.Return(context.Background(), []limiter.Check{d.slots[0].check}, &d.slots[0].decision))
		d.slots = d.slots[1:]
	}
	d.now = now
	var m rules.Match
	if err := d.set.Match(a, lease, &m); err != nil {
		var twice *rules.DuplicateError
		require.True(t, errors.As(err, &twice))
		d.counts.BadRequests++
		return "bad"
	}
	var answer limiter.Decision
	require.NoError(t, d.store.Take(context.Background(), m.Checks, &answer))
	for i := range m.Checks {
		at := slices.IndexFunc(d.counts.Rules, func(o RuleOutcome) bool { return o.Rule == m.Rules[i].ID })
		o := &d.counts.Rules[at]
		o.Checks++
		if answer.Results[i].Allowed {
			if answer.Allowed && m.Checks[i].Limit.Algorithm == limiter.Concurrency {
				d.slots = append(d.slots, taken{now + max(0, a.took.Microseconds()), m.Checks[i], limiter.Decision{Results: answer.Results[i : i+1]}})
			}
			continue
		}
		if m.Rules[i].Mode == rules.Shadow {
			o.ShadowLimited++
		} else {
			o.Limited++
		}
		name := a.client.String()
		if a.client.Is6() {
			name = netip.PrefixFrom(a.client, 64).Masked().String()
		}
		if at := slices.IndexFunc(o.Top, func(c ClientCount) bool { return c.Client == name }); at >= 0 {
			o.Top[at].Requests++
		} else {
			o.Top = append(o.Top, ClientCount{name, 1})
			o.Clients++
		}
	}
	if !answer.Allowed {
		d.counts.Limited++
		return "limited"
	}
	d.counts.Passed++
	return "passed"
}

// A replay counts like a store that decides request by request.
func TestReplayIsTheStoreRequestByRequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		candidate, running := drawDocument(t, "candidate"), drawDocument(t, "running")
		after, before := newDirect(candidate), newDirect(running)
		var log bytes.Buffer
		at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
		clock, newly, noLonger, late := int64(0), int64(0), int64(0), int64(0)
		n := rapid.IntRange(1, 60).Draw(t, "requests")
		for i := range n {
			at = at.Add(time.Duration(rapid.IntRange(-20, 400).Draw(t, "step")) * 5 * time.Millisecond)
			a := drawRequest(t, at)
			log.Write(a.line(t))
			if at.UnixMicro() < clock {
				late++
			}
			clock = max(clock, at.UnixMicro())
			now, was := after.decide(t, a, clock, uint64(i)), before.decide(t, a, clock, uint64(i))
			if now == "limited" && was == "passed" {
				newly++
			} else if now == "passed" && was == "limited" {
				noLonger++
			}
		}
		r, err := Run(context.Background(), Config{Candidate: candidate, Running: running}, &log)
		require.NoError(t, err)
		require.EqualValues(t, n, r.Requests)
		require.Equal(t, late, r.OutOfOrder)
		require.Equal(t, after.sorted(), bare(r.Candidate))
		require.Equal(t, before.sorted(), bare(r.Running))
		require.Equal(t, newly, r.Changes.NewlyLimited.Requests)
		require.Equal(t, noLonger, r.Changes.NoLongerLimited.Requests)
	})
}

// sorted orders clients, since the report may order them differently.
func (d *direct) sorted() *Outcome { return bare(&d.counts) }

func bare(o *Outcome) *Outcome {
	c := *o
	c.FirstBadRequest = nil
	c.Rules = slices.Clone(c.Rules)
	for i := range c.Rules {
		c.Rules[i].First, c.Rules[i].Keys = nil, nil
		c.Rules[i].Top = slices.Clone(c.Rules[i].Top)
		slices.SortFunc(c.Rules[i].Top, func(a, b ClientCount) int { return cmp.Compare(a.Client, b.Client) })
	}
	return &c
}
