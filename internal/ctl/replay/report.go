package replay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Report is what a replay found. Percentages and texts are left to the presentation.
type Report struct {
	Lines    int64  `json:"lines"`    // that are not blank
	Requests int64  `json:"requests"` // that could be read, and were decided
	Skipped  int64  `json:"skipped"`
	Skips    []Skip `json:"skips,omitempty"` // the first ones

	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	OutOfOrder int64     `json:"out_of_order"` // requests older than one before them

	Candidate *Outcome `json:"candidate"`
	Running   *Outcome `json:"running,omitempty"`
	Changes   *Changes `json:"changes,omitempty"`
	// Notes say which figures cannot be trusted, and why.
	Notes []string `json:"notes,omitempty"`
}

// Skip is a line that could not be read.
type Skip struct {
	Line   int64  `json:"line"`
	Reason string `json:"reason"`
}

// Outcome is what one document did. Each request passed, was limited (429), or was a bad
// request (400), because it repeated a value that a rule reads.
type Outcome struct {
	Version         string        `json:"version"`
	Passed          int64         `json:"passed"`
	Limited         int64         `json:"limited"`
	BadRequests     int64         `json:"bad_requests"`
	FirstBadRequest *Example      `json:"first_bad_request,omitempty"`
	Rules           []RuleOutcome `json:"rules"` // in the order of the document
}

// RuleOutcome is what one rule did. A request that several rules refused counts for each of
// them.
type RuleOutcome struct {
	Rule          string `json:"rule"`
	Mode          string `json:"mode"`
	Checks        int64  `json:"checks"` // requests that it counted or refused
	Limited       int64  `json:"limited"`
	ShadowLimited int64  `json:"shadow_limited"`
	// Clients is how many different ones it limited; an IPv6 client is a /64.
	Clients int64         `json:"clients"`
	Top     []ClientCount `json:"top"`
	// Keys are the counters that refused most, for a rule that does not count by client
	// alone.
	Keys  []KeyCount `json:"keys,omitempty"`
	First *Example   `json:"first,omitempty"`
}

// KeyCount is how many requests a counter refused. Its key has the store's form, in which
// possible secrets are hashed.
type KeyCount struct {
	Key      string `json:"key"`
	Requests int64  `json:"requests"`
}

// ClientCount is how many requests of a client were limited.
type ClientCount struct {
	Client   string `json:"client"`
	Requests int64  `json:"requests"`
}

// Example is one request of the log.
type Example struct {
	Line       int64     `json:"line"`
	Time       time.Time `json:"time"`
	Client     string    `json:"client"`
	Method     string    `json:"method"`
	Host       string    `json:"host,omitempty"`
	Path       string    `json:"path"`
	Rule       string    `json:"rule,omitempty"`
	Key        string    `json:"key,omitempty"` // of the counter, as the store names it
	Limit      int64     `json:"limit,omitempty"`
	Window     string    `json:"window,omitempty"` // absent for concurrency
	RetryAfter string    `json:"retry_after,omitempty"`
	Reason     string    `json:"reason,omitempty"` // of a bad request
}

// Changes compares the candidate with the running document.
type Changes struct {
	NewlyLimited    Group        `json:"newly_limited"`     // passes now, would be limited
	NoLongerLimited Group        `json:"no_longer_limited"` // is limited now, would pass
	Rules           []RuleChange `json:"rules"`             // by id
}

// Group is a set of requests.
type Group struct {
	Requests int64         `json:"requests"`
	Clients  int64         `json:"clients"`
	Top      []ClientCount `json:"top"`
	First    *Example      `json:"first,omitempty"`
}

// RuleChange counts the changed requests by the rules that refuse or refused them.
type RuleChange struct {
	Rule            string `json:"rule"`
	NewlyLimited    int64  `json:"newly_limited"`
	NoLongerLimited int64  `json:"no_longer_limited"`
}

func newExample(e *entry) *Example {
	const longest = 200
	path := e.path
	if len(path) > longest {
		path = path[:longest]
	}
	return &Example{
		Line: e.line, Time: moment(e.time), Client: e.client.String(),
		Method: string(e.method), Host: string(e.host), Path: string(path),
	}
}

func moment(microseconds int64) time.Time { return time.UnixMicro(microseconds).UTC() }

// finish makes the report.
func (p *playback) finish() (*Report, error) {
	r := &p.report
	if r.Requests = p.clock.requests; r.Requests == 0 {
		return nil, p.nothing()
	}
	r.From, r.To, r.OutOfOrder = moment(p.clock.first), moment(p.clock.now), p.clock.outOf
	r.Candidate = p.candidate.finish(p.config.Top)
	if p.running != nil {
		r.Running = p.running.finish(p.config.Top)
		r.Changes = &Changes{
			NewlyLimited: p.limited.group(p.config.Top), NoLongerLimited: p.freed.group(p.config.Top),
			Rules: []RuleChange{},
		}
		for _, id := range slices.Sorted(maps.Keys(p.ruleChanges)) {
			r.Changes.Rules = append(r.Changes.Rules, *p.ruleChanges[id])
		}
	}
	r.Notes = p.notes()
	return r, nil
}

func (p *playback) nothing() error {
	if len(p.report.Skips) == 0 {
		return errors.New("the log is empty; it needs a request a line")
	}
	const json = `JSON lines such as {"time":"2026-11-20T10:00:00Z","client":"203.0.113.7","method":"GET","path":"/"}`
	const combined = `Combined Log Format such as 203.0.113.7 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 12`
	wanted := json + ", or " + combined
	switch p.config.Format {
	case JSONLines:
		wanted = json
	case Combined:
		wanted = combined
	}
	first := p.report.Skips[0]
	return fmt.Errorf("none of the %d lines can be read as a request: line %d: %s; write the log as %s",
		p.report.Lines, first.Line, first.Reason, wanted)
}

func (d *document) finish(top int) *Outcome {
	o := &d.outcome
	o.Version, o.Rules = d.set.Version(), []RuleOutcome{}
	for _, c := range d.set.Rules() {
		t := &d.tallies[c.Index]
		g := t.clients.group(top)
		o.Rules = append(o.Rules, RuleOutcome{
			Rule: c.ID, Mode: c.Mode.String(), Checks: t.checks, Limited: t.limited, ShadowLimited: t.shadow,
			Clients: g.Clients, Top: g.Top, Keys: t.clients.topKeys(top), First: g.First,
		})
	}
	return o
}

// compared is a rule in both documents.
type compared struct {
	id            string
	after, before *RuleOutcome
}

// effect returns how many requests the rule refused, or would have.
func (c *compared) effect() int64 {
	n := int64(0)
	for _, o := range [...]*RuleOutcome{c.after, c.before} {
		if o != nil {
			n += o.Limited + o.ShadowLimited
		}
	}
	return n
}

// compare returns the rules of both documents, those with most effect first.
func (r *Report) compare() []*compared {
	var list []*compared
	byID := map[string]*compared{}
	at := func(id string) *compared {
		c := byID[id]
		if c == nil {
			c = &compared{id: id}
			byID[id] = c
			list = append(list, c)
		}
		return c
	}
	for i := range r.Candidate.Rules {
		o := &r.Candidate.Rules[i]
		at(o.Rule).after = o
	}
	if r.Running != nil {
		for i := range r.Running.Rules {
			o := &r.Running.Rules[i]
			at(o.Rule).before = o
		}
	}
	slices.SortStableFunc(list, func(a, b *compared) int { return cmp.Compare(b.effect(), a.effect()) })
	return list
}
