package weir

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/common"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/netext/httpext"
	"go.k6.io/k6/metrics"
	"golang.org/x/net/http/httpguts"

	"github.com/weir-edge/weir/loadtest/xk6-weir/oracle"
	"github.com/weir-edge/weir/loadtest/xk6-weir/ratelimit"
)

// limit tells the oracle under which key a rule counts a request.
type limit struct {
	rule string
	key  string
	cost *int64 // nil: the rule's
}

// UnmarshalJSON reads the key alone, or {key, cost}.
func (l *limit) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, &l.key)
	}
	var o struct {
		Key  *string `json:"key"`
		Cost *int64  `json:"cost"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return fmt.Errorf("must be the key, or {key, cost}: %w", err)
	}
	if o.Key == nil || (o.Cost != nil && *o.Cost < 0) {
		return fmt.Errorf("must be the key, or {key, cost} with a cost that is not negative (got %s)", b)
	}
	l.key, l.cost = *o.Key, o.Cost
	return nil
}

type params struct {
	Headers  map[string]string `json:"headers"`
	Tags     map[string]string `json:"tags"`
	Timeout  duration          `json:"timeout"`
	Limits   map[string]limit  `json:"limits"`
	Expected []int             `json:"expected"`

	header http.Header
	limits []limit
}

func (c *Client) prepare(state *lib.State, method, address string, body, options sobek.Value) (*request, error) {
	r := &request{c: c, state: state, method: method}
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return nil, fmt.Errorf("request: %q is not an http or https URL", address)
	}
	r.url = u
	if !common.IsNullish(body) {
		r.body = body.String()
	}
	if err := decode(options, "request", &r.params); err != nil {
		return nil, err
	}
	r.params.header = http.Header{}
	for name, value := range r.params.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("request: headers: %q: %q cannot be sent", name, value)
		}
		r.params.header.Set(name, value)
	}
	if _, err := http.NewRequest(method, address, nil); err != nil { // the rest has been checked
		return nil, fmt.Errorf("request: method: %w", err)
	}
	for id, l := range r.params.Limits {
		if _, ok := c.m.root.judge().Rule(id); !ok {
			return nil, fmt.Errorf("request: limits.%s: no such rule; declare it with oracle().rule()", id)
		}
		if l.rule = id; l.cost == nil {
			l.cost = new(c.m.root.cost(id))
		}
		var counts bool
		if l.key, counts, err = c.m.root.counted(id, l.key, r); err != nil {
			return nil, fmt.Errorf("request: limits.%s: %w", id, err)
		}
		if counts {
			r.params.limits = append(r.params.limits, l)
		}
	}
	sort.Slice(r.params.limits, func(i, j int) bool { return r.params.limits[i].rule < r.params.limits[j].rule })
	return r, nil
}

// Response is an answer as a script sees it.
type Response struct {
	Status    int               `js:"status"` // 0: none
	Headers   map[string]string `js:"headers"`
	Body      string            `js:"body"`
	Error     string            `js:"error"`
	Region    string            `js:"region"`  // of the PoP that answered
	Pop       string            `js:"pop"`     // that answered
	Address   string            `js:"address"` // of the PoP
	Proto     string            `js:"proto"`   // such as HTTP/2.0; "" without an answer
	Duration  float64           `js:"duration"`
	Limited   bool              `js:"limited"` // refused by a rule
	Shed      bool              `js:"shed"`    // refused by the load shedder, or because no count was available
	Violated  []string          `js:"violated"`
	RateLimit []RateLimit       `js:"rateLimit"`
	// RateLimitError says what is wrong with the header fields.
	RateLimitError string `js:"rateLimitError"`
	// RetryAfter in seconds, -1: not stated.
	RetryAfter int64 `js:"retryAfter"`
}

// RateLimit is what a response states about one rule; -1: not stated.
type RateLimit struct {
	Rule      string `js:"rule"`
	Limit     int64  `js:"limit"`
	Window    int64  `js:"window"`
	Remaining int64  `js:"remaining"`
	Reset     int64  `js:"reset"`
}

func (r *request) answered(trail *httpext.Trail, at site, address string, answer *http.Response, body []byte) *Response {
	p := &Response{
		Status: answer.StatusCode, Body: string(body), Proto: answer.Proto, Region: at.Region, Pop: at.Pop, Address: address,
		Duration: metrics.D(trail.Duration), Headers: map[string]string{}, Violated: []string{},
		RetryAfter: ratelimit.RetryAfter(answer.Header.Get("Retry-After"), time.Now()),
	}
	for name, values := range answer.Header {
		for i, v := range values {
			if i > 0 {
				v = p.Headers[name] + ", " + v
			}
			p.Headers[name] = v
		}
	}
	p.readRateLimit(answer.Header)
	if p.Status == http.StatusTooManyRequests {
		var problem struct {
			Violated []string `json:"violated-policies"`
		}
		if json.Unmarshal(body, &problem) == nil && len(problem.Violated) > 0 {
			p.Violated, p.Limited = problem.Violated, true
		}
	}
	p.Shed = p.Status == http.StatusServiceUnavailable
	r.judge(p)
	r.samples(trail, p)
	return p
}

func (p *Response) readRateLimit(h http.Header) {
	p.RateLimit = []RateLimit{}
	policies, err := ratelimit.ParsePolicies(h.Values("RateLimit-Policy"))
	if err != nil {
		p.RateLimitError = err.Error()
	}
	states, err := ratelimit.ParseStates(h.Values("RateLimit"))
	if err != nil {
		p.RateLimitError = err.Error()
	}
	for _, policy := range policies {
		p.RateLimit = append(p.RateLimit, RateLimit{policy.Name, policy.Quota, policy.Window, -1, -1})
	}
	for _, s := range states {
		i := slices.IndexFunc(p.RateLimit, func(l RateLimit) bool { return l.Rule == s.Name })
		if i < 0 { // a rule whose policy is not stated
			i = len(p.RateLimit)
			p.RateLimit = append(p.RateLimit, RateLimit{s.Name, -1, -1, -1, -1})
		}
		p.RateLimit[i].Remaining, p.RateLimit[i].Reset = s.Remaining, s.Reset
	}
}

func (r *request) failed(trail *httpext.Trail, at site, address string, err error) *Response {
	p := &Response{
		Error: err.Error(), Region: at.Region, Pop: at.Pop, Address: address, RetryAfter: -1,
		Headers: map[string]string{}, Violated: []string{}, RateLimit: []RateLimit{},
	}
	r.judge(p)
	if trail == nil {
		trail = (&httpext.Tracer{}).Done()
	}
	r.samples(trail, p)
	r.state.Logger.WithField("error", err).Warn("Request Failed")
	return p
}

// judge tells the oracle how the request affected each rule's count. Each time that a
// request was written to a connection it may have been charged.
func (r *request) judge(p *Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.c.m
	m.root.mu.Lock()
	phase := m.root.phase
	m.root.mu.Unlock()
	for i, tickets := range r.tickets {
		for _, t := range tickets {
			a := oracle.Answer{Outcome: oracle.Unknown, RetryAfter: -1, Phase: phase}
			if i == len(r.tickets)-1 {
				// A refusal without a time invites an immediate retry.
				a.Outcome, a.RetryAfter, a.Only = r.outcome(p, t.rule), max(0, p.RetryAfter), len(p.Violated) == 1
			}
			m.show(m.root.judge().Place(p.Region, t.rule), t.rule)
			m.verdicts(t.End(a))
		}
	}
}

// outcome returns what a response says about a rule's count. Only answers that the edge
// gives before it counts, or possibly either way, leave it unknown.
func (r *request) outcome(p *Response, rule string) oracle.Outcome {
	switch p.Status {
	case http.StatusTooManyRequests:
		if slices.Contains(p.Violated, r.c.m.root.named(rule)) {
			return oracle.Refused
		}
		own, _ := r.c.m.root.judge().Rule(rule)
		for _, id := range p.Violated {
			if other, ok := r.c.m.root.judge().Rule(id); !ok || own.Subject == "" || other.Subject != own.Subject {
				return oracle.Unknown
			}
		}
		if p.Limited {
			return oracle.RefusedElsewhere
		}
		return oracle.Unknown
	case 0, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge,
		http.StatusNotImplemented, http.StatusServiceUnavailable:
		return oracle.Unknown
	}
	return oracle.Admitted
}

// samples emits k6's own metrics of a request.
func (r *request) samples(trail *httpext.Trail, p *Response) {
	enabled, ctm := r.state.Options.SystemTags, r.state.Tags.GetCurrentValues()
	name := r.url.Scheme + "://" + r.url.Host + r.url.Path // a query may contain anything
	if n, ok := r.params.Tags["name"]; ok {
		name = n
	}
	set := func(tag metrics.SystemTag, v string) { ctm.SetSystemTagOrMetaIfEnabled(enabled, tag, v) }
	set(metrics.TagName, name)
	set(metrics.TagURL, name)
	set(metrics.TagMethod, r.method)
	set(metrics.TagStatus, strconv.Itoa(p.Status))
	set(metrics.TagProto, cmp.Or(p.Proto, "HTTP/1.1"))
	for tag, v := range map[string]string{"region": r.c.options.Region, "pop": p.Pop} {
		if v != "" {
			ctm.SetTag(tag, v)
		}
	}
	if len(p.Violated) > 0 {
		ctm.SetTag("rule", p.Violated[0])
	}
	for tag, v := range r.params.Tags {
		if tag != "name" {
			ctm.SetTag(tag, v)
		}
	}
	expected := (p.Status >= 200 && p.Status < 400) || p.Status == http.StatusTooManyRequests
	if r.params.Expected != nil {
		expected = slices.Contains(r.params.Expected, p.Status)
	}
	set(metrics.TagExpectedResponse, strconv.FormatBool(expected))
	trail.SaveSamples(r.state.BuiltinMetrics, &ctm)
	trail.Samples = append(trail.Samples, metrics.Sample{
		TimeSeries: metrics.TimeSeries{Metric: r.state.BuiltinMetrics.HTTPReqFailed, Tags: ctm.Tags},
		Time:       trail.EndTime, Metadata: ctm.Metadata, Value: map[bool]float64{true: 0, false: 1}[expected],
	})
	metrics.PushIfNotDone(r.c.m.vu.Context(), r.state.Samples, trail)
}
