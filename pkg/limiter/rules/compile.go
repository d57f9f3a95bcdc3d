package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"maps"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/overdraft"
)

// Mode is what a rule does.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota
	Shadow       // decides and reports but never refuses
	Off          // checked for errors but never applied
)

// String returns the name used in rules.
func (m Mode) String() string { return [...]string{"enforce", "shadow", "off"}[m] }

// Compiled is one rule, ready for use. It is immutable.
type Compiled struct {
	ID          string
	Description string
	// Index is the rule's place in the document.
	Index     int
	Mode      Mode
	Algorithm limiter.Algorithm
	Window    time.Duration
	// Key holds what the rule counts by; empty counts all requests together.
	Key []KeyPart
	// CountMissing counts all requests that lack a key part under one value, instead of
	// ignoring them.
	CountMissing bool
	// Limit applies to requests of a tier that is not in Tiers.
	Limit *limiter.Limit
	// Tiers holds the limits of tiers, and of risk tiers as risk:NAME; nil means unlimited.
	Tiers map[string]*limiter.Limit
	// Cost is the cost of a request, unless a trusted proxy states another in CostHeader.
	Cost       int64
	CostHeader string
	// Domain is the domain of the descriptors that the rule counts; "" if it counts
	// requests.
	Domain string
	// MaxOverride is the largest limit that a descriptor may state; 0 allows none.
	MaxOverride int64

	// UnderLoad says how the limits follow load; nil if they do not.
	UnderLoad *UnderLoad
	// Experiment is the rule's experiment; nil without one.
	Experiment *CompiledExperiment

	base     *Compiled                 // for an experiment's variant, the rule it belongs to
	risks    map[string]*limiter.Limit // the risk tiers among Tiers, by name
	match    conditions
	infix    string // between the subject and the rest of a key
	residue  residue
	not      *residue // the exempt requests; nil if none
	notPaths []string

	forms     []form // of descriptors
	overrides overrides
}

// LimitFor returns the limit of a tier, or nil if it is unlimited. A risk tier takes
// precedence if the rule names it.
func (c *Compiled) LimitFor(tier []byte, risk string) *limiter.Limit {
	if c.risks != nil {
		if l, ok := c.risks[risk]; ok {
			return l
		}
	}
	if l, ok := c.Tiers[string(tier)]; ok {
		return l
	}
	return c.Limit
}

// conditions are Conditions in canonical form.
type conditions struct {
	clients []netip.Prefix
	hosts   []string
	paths   []string
	methods []string
	headers []header
}

// Hosts returns the rule's host patterns; none means all hosts.
func (c *Compiled) Hosts() []string { return c.match.hosts }

// Methods returns the methods that the rule matches; none means all methods.
func (c *Compiled) Methods() []string { return c.match.methods }

type header struct{ name, value string }

// Set is a compiled document. It is immutable and safe for concurrent use.
type Set struct {
	version string
	rules   []*Compiled
	byID    map[string]*Compiled
	index   index
	domains map[string]*entryTable
	headers map[string]bool // headers that any rule reads, in lower case

	followsLoad bool
}

// Rules returns all rules, including those that are off, in document order. The slice
// belongs to the set.
func (s *Set) Rules() []*Compiled { return s.rules }

// Rule returns the rule with that id.
func (s *Set) Rule(id string) (*Compiled, bool) {
	c, ok := s.byID[id]
	return c, ok
}

// Holds reports whether a limit decides as one of these rules does.
func (s *Set) Holds(l *limiter.Limit) bool {
	if l.Whole != nil {
		l = l.Whole
	}
	c, ok := s.Rule(l.Rule)
	return ok && slices.ContainsFunc(c.variants(), func(c *Compiled) bool { return c.holds(l) })
}

// FollowsLoad reports whether any of these rules follows load.
func (s *Set) FollowsLoad() bool { return s.followsLoad }

// Version identifies the content: the first 12 hex digits of the SHA-256 of the
// bytes given to Load, or of the JSON form of the document given to Compile.
func (s *Set) Version() string { return s.version }

// Load reads and compiles a YAML or JSON document of at most MaxBytes. It is strict: it
// refuses unknown and duplicate fields, wrong types, multiple documents and empty ones.
// The error is field.Errors and holds every problem.
func Load(data []byte) (*Set, error) {
	set, _, err := LoadDocument(data)
	return set, err
}

// LoadDocument is Load that also returns the document as written.
func LoadDocument(data []byte) (*Set, *Document, error) {
	doc := &Document{}
	form := &field.Form{
		MaxBytes: MaxBytes, Shorten: "split the rules or shorten them",
		Empty: "write rules: [] for no rules",
	}
	root, unread := field.Load(data, doc, form)
	if doc.Rules == nil {
		return nil, nil, unread
	}
	set, errs := compile(doc, data)
	if errs = unread.With(errs); errs != nil {
		return nil, nil, root.Locate(errs).Bounded(field.MaxFaults)
	}
	return set, doc, nil
}

// Compile validates a document and prepares it for use. The error is field.Errors and
// holds every problem.
func Compile(doc *Document) (*Set, error) {
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	set, errs := compile(doc, data)
	return set, errs.Bounded(field.MaxFaults).Err()
}

func compile(doc *Document, data []byte) (*Set, field.Errors) {
	p := &problems{}
	if len(doc.Rules) > MaxRules {
		p.add("rules", "has more than %d rules (got %d); join rules that differ only in what they match", MaxRules, len(doc.Rules))
		return nil, p.list
	}
	sum := sha256.Sum256(data)
	s := &Set{version: hex.EncodeToString(sum[:])[:12], byID: make(map[string]*Compiled, len(doc.Rules)), headers: map[string]bool{}}
	headerNames := make(map[string]bool)
	for i := range doc.Rules {
		c := compileRule(i, &doc.Rules[i], p)
		if first, twice := s.byID[c.ID]; twice && c.ID != "" {
			p.add(field.Index("rules", i)+".id", "%s is already the id of rules[%d]; give every rule its own", field.Shown(c.ID), first.Index)
		} else {
			s.byID[c.ID] = c
		}
		s.rules = append(s.rules, c)
		for _, variant := range c.variants() {
			s.followsLoad = s.followsLoad || variant.UnderLoad != nil && variant.Mode != Off
			s.consult(variant)
		}
		for _, h := range c.match.headers {
			headerNames[h.name] = true
		}
		if c.not != nil {
			for _, h := range c.not.headers {
				headerNames[h.name] = true
			}
		}
	}
	s.overdrafts(p)
	if p.following > maxFollowing {
		p.add("rules", "have more than %d limits that follow load, including tiers; each is stored at every step; remove under_load where it matters least (got %d)", maxFollowing, p.following)
	}
	if p.experiments > maxExperiments {
		p.add("rules", "have more than %d experiments; every node counts each one separately; end some (got %d)", maxExperiments, p.experiments)
	}
	if len(headerNames) > maxHeaderNames {
		p.add("rules", "match on more than %d different headers; each is looked up for every request (got %d)", maxHeaderNames, len(headerNames))
	}
	if p.list != nil {
		return nil, p.list
	}
	s.index.build(s.rules)
	s.buildDomains()
	return s, nil
}

func compileRule(i int, r *Rule, p *problems) *Compiled {
	v := &reader{p: p, list: "rules", index: i}
	before := len(p.list)
	v.id(r.ID)
	c := v.rule(r)
	if r.Experiment != nil {
		v.experiment(r, c, len(p.list) == before)
	}
	return c
}

// rule compiles a rule without its experiment.
func (v *reader) rule(r *Rule) *Compiled {
	if len(r.Description) > maxDescription {
		v.bad("description", "must be at most %d bytes (got %d)", maxDescription, len(r.Description))
	}
	c := &Compiled{
		ID: r.ID, Description: r.Description, Index: v.index,
		match:        v.conditions("match", &r.Match.Conditions),
		not:          v.exemption(r.Match.Not),
		Key:          v.key(r.Key),
		CountMissing: v.word("missing", r.Missing, "skip", "limit") == 1,
		Mode:         Mode(v.word("mode", r.Mode, "enforce", "shadow", "off")),
	}
	if c.CountMissing && !slices.ContainsFunc(c.Key, KeyPart.optional) {
		v.bad("missing", "only header:, cookie:, query: and tier can be missing, and the key has none of them; remove it")
	}
	if r.Match.Not != nil {
		c.notPaths = r.Match.Not.Paths
	}
	v.descriptors(r, c)
	c.Limit = v.limit(r, c.Mode)
	if c.Limit == nil {
		return c // cost and tiers are checked against the limit
	}
	v.calls(r, c)
	c.Algorithm, c.Window = c.Limit.Algorithm, c.Limit.Window
	c.infix = "}:" + c.ID + ":" + c.Limit.Tag()
	c.Cost, c.CostHeader = v.cost(r.Cost, c.Limit)
	c.Tiers = v.tiers(r.Tiers, c)
	c.risks = risksOf(c.Tiers)
	for _, l := range c.Tiers {
		c.Limit.Shared = c.Limit.Shared || l != nil && l.Limit != c.Limit.Limit
	}
	slowest := c.Limit.Limit
	for _, l := range c.Tiers {
		if l != nil {
			slowest = min(slowest, l.Limit)
		}
	}
	for _, l := range append(slices.Collect(maps.Values(c.Tiers)), c.Limit) {
		if l != nil && c.Limit.Shared {
			l.Shared, l.Slowest = true, slowest
		}
	}
	v.underLoad(r, c)
	return c
}

// limit returns nil after a problem.
func (v *reader) limit(r *Rule, mode Mode) *limiter.Limit {
	before := len(v.p.list)
	l := &limiter.Limit{
		Rule: r.ID, Algorithm: v.algorithm(r.Algorithm), Limit: r.Limit,
		Storage:     limiter.Storage(v.word("storage", r.Storage, limiter.Ring.String(), limiter.SortedSet.String())),
		CountDenied: r.CountDenied, Overdraft: r.Overdraft, Shadow: mode == Shadow,
		OnFailure: limiter.OnFailure(v.word("on_store_failure", r.OnStoreFailure,
			limiter.Local.String(), limiter.Open.String(), limiter.Closed.String())),
	}
	switch v.word("consistency", r.Consistency, "strict", "leased", "reported") {
	case 1:
		l.Leased = true
	case 2:
		l.Reported = true
	}
	if r.Window == "" {
		v.bad("window", "is required, for example 1m")
	} else {
		l.Window, _ = v.duration("window", r.Window)
	}
	bucket := l.Algorithm.IsBucket()
	switch {
	case r.Burst != nil:
		l.Burst = *r.Burst
		if l.Burst == 0 && !bucket {
			v.bad("burst", "only token_bucket and leaky_bucket have a burst; remove it")
		}
	case l.Algorithm == limiter.TokenBucket:
		l.Burst = l.Limit
	}
	if r.MinInterval != "" {
		var ok bool
		if l.MinInterval, ok = v.duration("min_interval", r.MinInterval); ok && l.MinInterval == 0 {
			v.bad("min_interval", "must be at least 1ms (got 0s); remove it for no interval")
		}
	}
	if r.Storage == limiter.Ring.String() && l.Algorithm != limiter.RollingWindow {
		v.bad("storage", "only rolling_window has a storage; remove it")
	}
	l.Global = v.global(r, l)
	// Validating a word or duration that could not be read would only repeat the problem,
	// in terms that the author never wrote.
	if len(v.p.list) > before {
		if l.Limit < 1 {
			v.bad("limit", "must be between 1 and %d (got %d)", limiter.MaxCount, l.Limit)
		}
		return nil
	}
	for _, e := range l.Validate() {
		v.bad(e.Path, "%s", e.Msg)
	}
	if l.Validate() != nil {
		return nil
	}
	if why := overdraft.Fault(l); l.Overdraft && why != "" {
		v.bad("overdraft", "%s", why)
		return nil
	}
	return l
}

// A sorted set stores one entry per unit of cost, which blocks Redis meanwhile.
const (
	sortedSetCost = "must be at most %d with storage sorted_set"
	otherStorage  = "use storage ring, sliding_window or token_bucket"
)

func (v *reader) cost(text string, l *limiter.Limit) (cost int64, header string) {
	if text == "" {
		return 1, ""
	}
	entries := l.Storage == limiter.SortedSet && l.Limit > limiter.MaxEntries
	if name, ok := strings.CutPrefix(text, "header:"); ok {
		switch {
		case entries:
			v.bad("cost", sortedSetCost+"; with a limit of %d a header may state more; %s", limiter.MaxEntries, l.Limit, otherStorage)
		case !isToken(name):
			v.bad("cost", "header: must be followed by a header name, as in header:X-Cost (got %s)", field.Shown(text))
		case l.Algorithm == limiter.Concurrency:
			v.bad("cost", "must be 1 for concurrency, where a request takes one slot; remove it")
		}
		return 1, textproto.CanonicalMIMEHeaderKey(name)
	}
	cost, ok := v.number("cost", text, "header:NAME")
	switch {
	case !ok:
	case cost < 0:
		v.bad("cost", "must be at least 0 (got %d)", cost)
	case l.Algorithm == limiter.Concurrency && cost > 1:
		v.bad("cost", "must be 1 for concurrency, where a request takes one slot (got %d); remove it", cost)
	case entries && cost > limiter.MaxEntries:
		v.bad("cost", sortedSetCost+" (got %d); %s", limiter.MaxEntries, cost, otherStorage)
	case cost > l.MaxCost():
		v.bad("cost", "can never pass: at most %d fits (got %d); lower the cost or raise the limit or burst", l.MaxCost(), cost)
	}
	return cost, ""
}

// sorted iterates over a map in the order of its names, so that problems and conditions
// always come in the same order.
func sorted(m map[string]string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}
