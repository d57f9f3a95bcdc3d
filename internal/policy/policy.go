package policy

import (
	"net/textproto"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/behavior"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// form describes valid documents.
var form = field.Form{MaxBytes: MaxBytes, Empty: "write {} for the defaults", Exponents: true}

// Policy is a compiled document. It is immutable.
type Policy struct {
	// Version is the first 12 hex digits of the document's SHA-256.
	Version string
	Shadow  bool
	Clients *behavior.Policy
	Routes  *behavior.Policy // nil if routes have no scores
	Effects []Effect         // by tier
	// Subject identifies clients; nil: their addresses do.
	Subject []rules.KeyPart
	// Presence and Fingerprint are canonical header names.
	Presence    []string
	Fingerprint []string
	TLS         string // the header of signals.presence.tls, or ""

	known   map[string]bool // fingerprints of TLS
	exempt  *rules.Matcher
	trusted []bool // by condition: it requires a trusted proxy
}

// Effect is a tier's effects beyond behavior.Tier.
type Effect struct {
	Name   string
	Limits float64 // multiplies limits; from 0.01 to 1
	Delay  time.Duration
	Header bool
}

// Parse reads a YAML or JSON document of at most MaxBytes. Absent fields are as in Defaults.
// The error is field.Errors: every fault, with the path of its field and a remedy.
func Parse(data []byte) (*Policy, error) {
	p, _, err := ParseDocument(data)
	return p, err
}

// ParseDocument also returns the document as written, with its defaults.
func ParseDocument(data []byte) (*Policy, *Document, error) {
	d := Defaults()
	root, err := field.Read(data, &form)
	if err != nil {
		return nil, nil, err
	}
	unread := root.Decode(d, &form)
	p, faults := d.compile()
	if faults = unread.With(faults); len(faults) > 0 {
		return nil, nil, root.Locate(faults)
	}
	p.Version = consul.NewPointer(data, "", time.Time{}).Version
	return p, d, nil
}

// Mode returns Shadow or Enforce.
func (p *Policy) Mode() string {
	if p.Shadow {
		return Shadow
	}
	return Enforce
}

// Exempts reports whether a request is not scored. scratch is any unused Match; once it has
// grown, Exempts does not allocate.
func (p *Policy) Exempts(r rules.Request, scratch *rules.Match) bool {
	for _, i := range p.exempt.Find(r, scratch) {
		if !p.trusted[i] || r.Trusted() {
			return true
		}
	}
	return false
}

// ReadsHeader reports whether the policy depends on a header, given in lower case.
func (p *Policy) ReadsHeader(header string) bool {
	for _, list := range [][]string{p.Presence, p.Fingerprint} {
		for _, name := range list {
			if strings.EqualFold(name, header) {
				return true
			}
		}
	}
	for i := range p.Subject {
		if strings.EqualFold(p.Subject[i].Header(), header) {
			return true
		}
	}
	return p.TLS != "" && strings.EqualFold(p.TLS, header) || p.exempt.ReadsHeader(header)
}

// Strange reports whether a trusted proxy's values of the header TLS are not a known client's
// fingerprint.
func (p *Policy) Strange(values ...[]byte) bool {
	for _, v := range values {
		if !p.known[string(v)] {
			return true
		}
	}
	return len(values) == 0
}

func (d *Document) compile() (*Policy, field.Errors) {
	var faults field.Errors
	if d.Mode != Shadow && d.Mode != Enforce {
		faults.Add("mode", "must be shadow or enforce%s (got %s)", field.Suggest(d.Mode, Shadow, Enforce), field.Shown(d.Mode))
	}
	p := &Policy{Shadow: d.Mode != Enforce, Clients: d.clients()}
	faults.Take("", p.Clients.Validate())
	for i := range d.Tiers {
		p.Effects = append(p.Effects, d.Tiers[i].effect(field.Index("tiers", i), i, &faults))
	}
	p.Subject = d.subject(&faults)
	p.Routes = d.routes(p.Clients.Tiers, &faults)
	p.Presence = headers("signals.presence.headers", d.Signals.Presence.Headers, &faults)
	p.Fingerprint = headers("fingerprint", d.Fingerprint, &faults)
	d.Signals.Presence.TLS.compile(p, &faults)
	if len(p.Presence) == 0 && p.TLS == "" && d.Signals.Presence.Weight > 0 {
		faults.Add("signals.presence.headers", "must name at least one header; or write weight: 0 to turn the signal off")
	}
	if n := len(d.Exempt); n > maxExempt {
		faults.Add("exempt", "has more than %d entries (got %d)", maxExempt, n)
		return nil, faults
	}
	for i, c := range d.Exempt {
		if c.Empty() {
			faults.Add(field.Index("exempt", i), "is empty and would exempt every request; name at least one part, or remove it")
		}
		p.trusted = append(p.trusted, len(c.Headers) > 0)
	}
	var err error
	p.exempt, err = rules.NewMatcher(d.Exempt)
	faults.Take("exempt", err)
	if faults != nil {
		return nil, faults
	}
	return p, nil
}

// subject returns the parts that identify clients; nil if addresses do.
func (d *Document) subject(faults *field.Errors) []rules.KeyPart {
	const path = "subject"
	if d.Subject == nil {
		return nil
	}
	parts, err := rules.ParseKey(d.Subject)
	faults.Take(path, err)
	if err == nil && len(parts) == 0 {
		faults.Add(path, "must name at least one key part, or all clients would be one; write [client_ip], or remove it")
	}
	for i, part := range parts {
		if part.Kind == rules.ByPath || part.Kind == rules.ByMethod {
			faults.Add(field.Index(path, i), "would count one client as several, each with a part of its requests; name a part that identifies clients, such as client_ip or header:NAME (got %s)", part)
		}
	}
	if len(parts) == 1 && parts[0].String() == "client_ip" {
		return nil
	}
	return parts
}

func (c Counted) threshold() behavior.Threshold {
	return behavior.Threshold{Weight: c.Weight, AtLeast: c.AtLeast}
}

func (s Shared) threshold() behavior.Threshold {
	t := s.Counted.threshold()
	t.Share = s.Share
	return t
}

func (d *Document) clients() *behavior.Policy {
	p := &behavior.Policy{HalfLife: d.HalfLife}
	s := &d.Signals
	p.Signals[behavior.Burst] = s.Burst.Counted.threshold()
	p.Signals[behavior.Burst].Times = s.Burst.Times
	p.Signals[behavior.Repetition] = s.Repetition.threshold()
	p.Signals[behavior.Scan] = s.Scan.threshold()
	p.Signals[behavior.Denials] = s.Denials.threshold()
	p.Signals[behavior.Failures] = s.Failures.threshold()
	p.Signals[behavior.Presence] = s.Presence.threshold()
	for _, t := range d.Tiers {
		tier := behavior.Tier{Name: t.Name, From: t.From, Until: t.Until}
		if t.Refuse != nil {
			tier.Refuse, tier.RefuseMax = t.Refuse.For, t.Refuse.Max
		}
		p.Tiers = append(p.Tiers, tier)
	}
	return p
}

// routes returns the policy for routes: all tiers except the one that refuses.
func (d *Document) routes(tiers []behavior.Tier, faults *field.Errors) *behavior.Policy {
	p := behavior.DefaultRoutes()
	p.HalfLife = d.HalfLife
	p.Signals[behavior.Failures] = d.Routes.Guessing.threshold()
	p.Tiers = nil
	for _, t := range tiers {
		if t.Refuse == 0 {
			p.Tiers = append(p.Tiers, t)
		}
	}
	for _, e := range field.All(p.Validate()) {
		if rest, ok := strings.CutPrefix(e.Path, "signals.failures"); ok {
			faults.Add("routes.guessing"+rest, "%s", e.Msg)
		}
	}
	if d.Routes.Guessing.Weight == 0 || len(p.Tiers) < 2 {
		return nil
	}
	return p
}

func (t *Tier) effect(path string, i int, faults *field.Errors) Effect {
	e := Effect{Name: t.Name, Limits: 1, Delay: t.Delay, Header: t.Header}
	if t.Limits != nil {
		if e.Limits = *t.Limits; !(e.Limits >= leastLimits && e.Limits <= 1) {
			faults.Add(field.Join(path, "limits"), "must be from %v to 1 (got %v); refuse shuts a client out", leastLimits, e.Limits)
		}
	}
	if t.Delay < 0 || t.Delay > longestDelay {
		faults.Add(field.Join(path, "delay"), "must be from 0s to %s (got %s)", longestDelay, t.Delay)
	}
	if i == 0 && (e.Limits != 1 || t.Delay != 0 || t.Header) {
		faults.Add(path, "is the tier of everyone whose score is low; remove limits, delay and header from it")
	}
	if t.Refuse != nil && (t.Limits != nil || t.Delay != 0 || t.Header) {
		faults.Add(path, "refuses, so that no request is limited, delayed or forwarded; remove limits, delay and header, or refuse")
	}
	return e
}

func (t *TLS) compile(p *Policy, faults *field.Errors) {
	const path = "signals.presence.tls"
	if t == nil {
		return
	}
	if t.Header != "" { // otherwise its absence is already a fault
		p.TLS = header(path+".header", t.Header, faults)
	}
	if n := len(t.Known); n == 0 || n > maxKnown {
		faults.Add(path+".known", "must list 1 to %d fingerprints of real clients (got %d)", maxKnown, n)
		return
	}
	p.known = make(map[string]bool, len(t.Known))
	for i, f := range t.Known {
		at := field.Index(path+".known", i)
		switch {
		case f == "" || len(f) > maxPrint || strings.ContainsFunc(f, func(r rune) bool { return r <= ' ' || r > '~' }):
			faults.Add(at, "must be a fingerprint of 1 to %d visible ASCII characters (got %s)", maxPrint, field.Shown(f))
		case p.known[f]:
			faults.Add(at, "is listed twice; keep one")
		}
		p.known[f] = true
	}
}

func headers(path string, list []string, faults *field.Errors) (names []string) {
	if len(list) > maxHeaders {
		faults.Add(path, "has more than %d names; each is looked up for every request (got %d)", maxHeaders, len(list))
		return nil
	}
	seen := map[string]bool{}
	for i, name := range list {
		at := field.Index(path, i)
		canonical := header(at, name, faults)
		if seen[canonical] {
			faults.Add(at, "names %s twice; keep one", canonical)
		}
		seen[canonical] = true
		names = append(names, canonical)
	}
	return names
}

// header returns the canonical form of a name.
func header(path, name string, faults *field.Errors) string {
	if _, err := rules.ParseKey([]string{"header:" + name}); err != nil {
		faults.Add(path, "must be a header name of at most 64 letters, digits and -_. (got %s)", field.Shown(name))
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}
