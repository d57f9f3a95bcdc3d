package replay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/behavior"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/paths"
)

const (
	// subjectsAtOnce is how many clients are distinguished at a time.
	subjectsAtOnce = 1_000_000
	// maxRisen is how many subjects above the mildest tier are remembered.
	maxRisen = 100_000
)

// PolicyReport is what a behavior policy would have done with a log.
type PolicyReport struct {
	Version string    `json:"version"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to"`
	Lines   int64     `json:"lines"`
	Skipped int64     `json:"skipped"`
	Skips   []Skip    `json:"skips,omitempty"`

	Requests int64 `json:"requests"`
	// OutOfOrder counts requests older than one before them.
	OutOfOrder int64 `json:"out_of_order"`
	Exempt     int64 `json:"exempt"`
	Clients    int   `json:"clients"` // distinguished
	// Tiers are those above the mildest, by the requests of subjects in them.
	Tiers []TierTally `json:"tiers"`
	// Subjects are those that entered a severer tier: the severest first, then those with
	// the most requests in it.
	Subjects []RisenSubject `json:"subjects"`
	Notes    []string       `json:"notes,omitempty"`
}

type TierTally struct {
	Tier     string `json:"tier"`
	Clients  int    `json:"clients"` // whose severest tier it was
	Routes   int    `json:"routes,omitempty"`
	Requests int64  `json:"requests"` // while their client or route was in it
}

// RisenSubject is a client or a route above the mildest tier.
type RisenSubject struct {
	Kind     string                    `json:"kind"` // client or route
	Subject  string                    `json:"subject"`
	Tier     string                    `json:"tier"` // the severest
	At       time.Time                 `json:"at"`   // when it entered that
	Line     int64                     `json:"line"` // whose request caused it
	Score    float64                   `json:"score"`
	Signals  []adminapi.BehaviorSignal `json:"signals"`
	Requests int64                     `json:"requests"` // above the mildest tier

	tier int
}

// policyRun judges a log by a policy.
type policyRun struct {
	policy          *policy.Policy
	clients, routes *behavior.Table
	clock           clock
	request         request
	scratch         rules.Match
	readings        paths.Readings
	buf             []byte
	subject         []byte          // of the current entry, if the policy names one and the entry has it
	carried         map[string]bool // headers of the policy that some line had
	statuses, full  bool
	risen           map[uint64]*RisenSubject // clients
	risenRoutes     map[uint64]*RisenSubject
	report          PolicyReport
}

// RunPolicy judges the clients of the log r by a policy, as if it were enforced: requests
// that a tier refuses are not judged. Memory is bounded: subjects are kept as a node keeps
// them, and lines are read as in Run, of whose Config it uses Format, Host, Trusted, Top
// and Progress.
func RunPolicy(ctx context.Context, p *policy.Policy, c Config, r io.Reader) (*PolicyReport, error) {
	if p == nil {
		return nil, errors.New("no policy to test")
	}
	if c.Top <= 0 {
		c.Top = defaultTop
	}
	k := &policyRun{policy: p, carried: map[string]bool{}, risen: map[uint64]*RisenSubject{}, risenRoutes: map[uint64]*RisenSubject{}, request: request{present: map[rules.KeyPart]bool{}}}
	k.report.Version = p.Version
	for _, e := range p.Effects[1:] {
		k.report.Tiers = append(k.report.Tiers, TierTally{Tier: e.Name})
	}
	if err := each(ctx, &c, r, k.play); err != nil {
		return nil, err
	}
	return k.finish(c.Top)
}

func (k *policyRun) play(b *batch) {
	b.count(&k.report.Lines, &k.report.Skipped, &k.report.Skips)
	for i := range b.entries[:b.n] {
		k.judge(&b.entries[i])
	}
}

func (k *policyRun) judge(e *entry) {
	if k.clients == nil {
		from := moment(e.time)
		k.clients = behavior.NewTable(subjectsAtOnce, k.policy.Clients, from)
		routes := k.policy.Routes
		if routes == nil {
			routes = behavior.DefaultRoutes()
		}
		k.routes = behavior.NewTable(subjectsAtOnce/16, routes, from)
	}
	k.clock.tick(e)
	now := moment(e.decided)
	k.statuses = k.statuses || e.status > 0
	path := e.path
	if k.readings.Read(path) == nil {
		path = k.readings.At(0)
	}
	k.request.entry, k.request.path = e, path
	if k.policy.Exempts(&k.request, &k.scratch) {
		k.report.Exempt++
		return
	}
	k.buf = paths.AppendRoute(k.buf[:0], path)
	client, route := k.clientOf(e), nameOf(k.buf)
	if site, n := e.Header("Sec-Fetch-Site"); n == 1 && string(site) == "cross-site" {
		client = behavior.CrossSite(client)
	}
	st := k.clients.Status(client, now)
	tier := st.Tier
	if k.policy.Routes != nil {
		tier = max(tier, k.routes.Status(route, now).Tier)
	}
	if tier > 0 {
		k.report.Tiers[tier-1].Requests++
		if s := k.risen[client]; s != nil && st.Tier > 0 {
			s.Requests++
		}
	}
	if st.Refused > 0 {
		return
	}
	// 429 was a refusal, whatever sent it; the log does not say when to come back.
	event := behavior.Event{Route: route, Status: e.status, Refused: e.status == http.StatusTooManyRequests}
	if !event.Refused {
		event.Fingerprint, event.LacksHeaders = k.print(e, route), k.lacks(e)
	}
	after := k.clients.Observe(client, now, &event)
	if after.Rose {
		k.rose(k.risen, "client", client, k.clientName(e), e, after, k.clients.Reasons(client, now, nil))
	}
	if k.policy.Routes == nil || event.Refused {
		return
	}
	if after := k.routes.ObserveRoute(route, now, e.status, after); after.Rose {
		k.rose(k.risenRoutes, "route", route, string(path[:min(len(path), 200)]), e, after, k.routes.Reasons(route, now, nil))
	}
}

func (k *policyRun) rose(risen map[uint64]*RisenSubject, kind string, key uint64, name string, e *entry, st behavior.Status, reasons []behavior.Reason) {
	s := risen[key]
	if s == nil {
		if len(risen) >= maxRisen {
			k.full = true
			return
		}
		s = &RisenSubject{Kind: kind, Subject: name}
		risen[key] = s
	}
	if st.Tier <= s.tier {
		return
	}
	s.tier, s.Tier, s.At, s.Line, s.Score, s.Signals = st.Tier, k.policy.Effects[st.Tier].Name, moment(e.decided), e.line, st.Score, adminapi.BehaviorSignals(reasons)
}

// nameOf hashes a name identically in each run, so that reports can be compared. It is
// FNV-1a, mixed so that all bits depend on the name.
func nameOf(text []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range text {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// clientOf identifies clients as a node does, by the headers that the log has.
func (k *policyRun) clientOf(e *entry) uint64 {
	k.subject = k.subject[:0]
	if k.policy.Subject != nil {
		key, ok := rules.AppendKey(k.subject, k.policy.Subject, &k.request, &k.scratch)
		if k.subject = key; ok {
			return nameOf(key)
		}
		k.subject = key[:0]
	}
	b := subscriber(e.client).As16()
	return nameOf(b[:])
}

// clientName names the client that clientOf has just found.
func (k *policyRun) clientName(e *entry) string {
	if len(k.subject) > 0 {
		return string(k.subject)
	}
	return clientName(subscriber(e.client))
}

// print is the fingerprint that a node computes, from the headers that the log has.
func (k *policyRun) print(e *entry, route uint64) uint64 {
	b := fmt.Appendf(append(append(k.buf[:0], e.method...), ' '), "%x", route)
	for pair := range bytes.SplitSeq(e.query, []byte("&")) {
		name, _, _ := bytes.Cut(pair, []byte("="))
		b = append(append(b, '&'), name...)
	}
	for _, header := range k.policy.Fingerprint {
		if value, n := e.Header(header); n > 0 {
			b = append(append(b, '\n'), value...)
		}
	}
	k.buf = b
	return nameOf(b)
}

// lacks reports whether a header that real clients always send is absent. A header that no
// line has had so far is not logged.
func (k *policyRun) lacks(e *entry) (lacks bool) {
	for _, header := range k.policy.Presence {
		if _, n := e.Header(header); n > 0 {
			k.carried[header] = true
		} else if k.carried[header] {
			lacks = true
		}
	}
	if header := k.policy.TLS; header != "" {
		value, n := e.Header(header)
		k.carried[header] = k.carried[header] || n > 0
		lacks = lacks || k.carried[header] && k.policy.Strange([][]byte{value}[:min(n, 1)]...)
	}
	return lacks
}

func (k *policyRun) finish(top int) (*PolicyReport, error) {
	r := &k.report
	if r.Requests = k.clock.requests; r.Requests == 0 {
		if r.Lines > 0 {
			return nil, fmt.Errorf("no line can be read; the first: line %d %s", r.Skips[0].Line, r.Skips[0].Reason)
		}
		return nil, errors.New("is empty")
	}
	r.From, r.To, r.OutOfOrder = moment(k.clock.first), moment(k.clock.now), k.clock.outOf
	r.Clients = k.clients.Counts().Subjects
	for _, s := range k.risen {
		r.Tiers[s.tier-1].Clients++
		r.Subjects = append(r.Subjects, *s)
	}
	for _, s := range k.risenRoutes {
		r.Tiers[s.tier-1].Routes++
		r.Subjects = append(r.Subjects, *s)
	}
	slices.SortFunc(r.Subjects, func(a, b RisenSubject) int {
		return cmp.Or(cmp.Compare(b.tier, a.tier), cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Kind+a.Subject, b.Kind+b.Subject))
	})
	r.Subjects = r.Subjects[:min(len(r.Subjects), top)]
	if note := k.clock.note(); note != "" {
		r.Notes = append(r.Notes, note)
	}
	if !k.statuses {
		r.Notes = append(r.Notes, "no line has a status, so failures and missing routes were not seen; log it")
	}
	for _, header := range slices.Concat(k.policy.Presence, []string{k.policy.TLS}) {
		if header != "" && !k.carried[header] {
			r.Notes = append(r.Notes, "no line has the header "+header+", so presence was evaluated without it; log it")
		}
	}
	for _, part := range k.policy.Subject {
		if carried, known := k.request.present[rules.KeyPart{Kind: part.Kind, Name: part.Name}]; known && !carried {
			r.Notes = append(r.Notes, "no line has "+part.String()+", so clients were told apart by their addresses; log it")
		}
	}
	r.Notes = append(r.Notes, "a log does not contain Retry-After, so denials were not evaluated")
	if k.full {
		r.Notes = append(r.Notes, fmt.Sprintf("more than %d subjects rose; the others are not listed", maxRisen))
	}
	return r, nil
}
