// Package adminapi defines an edge node's admin API, for the node that serves it and the
// programs that call it: paths, headers and JSON answers. pkg/region/consul has the format of
// registrations.
package adminapi

import (
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/behavior"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// The paths.
const (
	PathIndex   = "/v1"
	PathHealth  = "/healthz"
	PathReady   = "/readyz"
	PathMetrics = "/metrics"
	PathRules   = "/v1/rules"
	PathExplain = "/v1/explain"
	PathLimits  = "/v1/limits"
	PathShedder = "/v1/shedder"
	PathPolicy  = "/v1/policy"
	PathClients = "/v1/clients"

	PathExperiment = "/v1/experiment"
	PathRecent     = "/v1/recent"
	PathTop        = "/v1/top"
	PathGlobal     = "/v1/global"
)

// HeaderNode names the answering node in every answer: one address may lead to different nodes
// on different machines, as the default 127.0.0.1:8081 does.
const HeaderNode = "Weir-Node"

// NoVersion is the version, and the source, of rules that were never published.
const NoVersion = "none"

// RequestBounds are those of the buckets of weir_request_seconds, in seconds: the same in
// every release, so that the durations of several nodes add up.
var RequestBounds = [...]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// Where an active document came from.
const (
	SourceBuiltin   = "builtin"
	SourceConfig    = "config"
	SourceFile      = "file"
	SourceConsul    = "consul"
	SourceCache     = "cache"     // the copy on the node's disk
	SourceBootstrap = "bootstrap" // the copy at rules.bootstrap
	SourceAdmin     = "admin"     // PUT to this node alone
)

// OK, and what a caller without the token sees in place of an error.
const (
	OK   = "ok"
	Away = "away"
)

// Readiness is GET /readyz. An empty field is left out: there is nothing to say about
// it. The fields are in the order in which they travel, which is alphabetical.
type Readiness struct {
	Consul           string `json:"consul,omitempty"`            // with Consul: ok, or why it does not answer
	PolicyCache      string `json:"policy_cache,omitempty"`      // why policy.cache cannot be written
	PolicyRefused    string `json:"policy_refused,omitempty"`    // version and first error of the refused policy, until a good one replaces it
	PolicySignature  string `json:"policy_signature,omitempty"`  // like rules_signature
	Registration     string `json:"registration,omitempty"`      // with Consul: ok, or why the node is not registered
	Rules            string `json:"rules,omitempty"`             // that nothing is published in Consul
	RulesBootstrap   string `json:"rules_bootstrap,omitempty"`   // why rules.bootstrap cannot be used, while the node has no rules and needs it
	RulesCache       string `json:"rules_cache,omitempty"`       // why rules.cache cannot be written
	RulesRefused     string `json:"rules_refused,omitempty"`     // version and first error of the refused document, until a good one replaces it
	RulesSignature   string `json:"rules_signature,omitempty"`   // with documents.verify_keys: why the active or the newest published document has no valid signature
	RulesVersion     string `json:"rules_version"`               // the active version, or none
	ShedderCache     string `json:"shedder_cache,omitempty"`     // why shedder.cache cannot be written
	ShedderRefused   string `json:"shedder_refused,omitempty"`   // version and first error of the refused shedder settings, until good ones replace them
	ShedderSignature string `json:"shedder_signature,omitempty"` // like rules_signature
	Status           string `json:"status"`                      // ready, no rules or draining
	Store            string `json:"store,omitempty"`             // with Redis: ok, or the error of a ping
}

// Problem is every answer that refuses a request (RFC 9457).
type Problem struct {
	Detail string   `json:"detail"`
	Errors []string `json:"errors,omitempty"` // if there are several
	Status int      `json:"status"`
	Title  string   `json:"title"`
	Type   string   `json:"type"`
}

// Refusal is a document, or a pointer to one, that a node refused.
type Refusal struct {
	At      time.Time `json:"at,omitzero"`
	Version string    `json:"version"` // "" if unknown
	Canary  bool      `json:"canary,omitempty"`
	Errors  []string  `json:"errors,omitempty"` // at least one
}

// String returns one line, which the node registers; "" for nil.
func (r *Refusal) String() string {
	if r == nil {
		return ""
	}
	if r.Version == "" {
		return r.Errors[0]
	}
	return r.Version + ": " + r.Errors[0]
}

// ParseRefusal parses what String returned, which has only the first error.
func ParseRefusal(text string) *Refusal {
	version, reason, ok := strings.Cut(text, ": ")
	if !ok || len(version) != 12 || strings.Trim(version, "0123456789abcdef") != "" {
		version, reason = "", text
	}
	return &Refusal{Version: version, Errors: []string{reason}}
}

// Condition is the state of an operation that a node keeps retrying.
type Condition struct {
	OK    bool      `json:"ok"`
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since"`
}

// Rules is GET /v1/rules. ?brief omits the rules themselves.
type Rules struct {
	Node    string          `json:"node"`           // node.id
	Version string          `json:"version"`        // the active version
	Since   time.Time       `json:"since,omitzero"` // since when it is active
	Source  string          `json:"source"`         // file, consul, cache (from disk) or bootstrap (from rules.bootstrap), both not yet confirmed by Consul, builtin (-dev) or none
	Canary  bool            `json:"canary"`         // whether it is the canary of this PoP
	Stale   bool            `json:"stale"`          // the active rules are not the intended ones, or these are unknown
	Pointer *consul.Pointer `json:"pointer"`        // what Consul names: version, SHA-256, when and by whom; null without Consul
	Rules   []Rule          `json:"rules,omitzero"` // unless ?brief
	Refused *Refusal        `json:"refused"`        // the refused document, until a good one replaces it
	Consul  *Condition      `json:"consul"`         // whether Consul answers, and since when; null without it
	Cache   *Condition      `json:"cache"`          // whether rules.cache can be written, and since when; null without Consul
	// Registered is the meta of its service in Consul: names and addresses (admin, peer), newest
	// schema of documents, policies and client lists that it reads, IDs of keys of which one must
	// sign, active versions, version and first error of last refusals.
	Registered map[string]string `json:"registered,omitempty"`
	// Signature is set if the node verifies signatures.
	Signature *Condition `json:"signature,omitempty"`
}

// Rule is an active rule.
type Rule struct {
	ID          string   `json:"id"`
	Description string   `json:"description,omitempty"`
	Mode        string   `json:"mode"`
	Algorithm   string   `json:"algorithm"`
	Limit       int64    `json:"limit"`
	Window      string   `json:"window"`
	Burst       int64    `json:"burst,omitempty"`
	Key         []string `json:"key"`
	OnFailure   string   `json:"on_store_failure"`
	Consistency string   `json:"consistency,omitempty"` // unless strict
	// Experiment is the share of the rule's keys in the experiment.
	Experiment float64 `json:"experiment,omitempty"`
}

// Experiment is GET /v1/experiment?rule=ID: a node's counts for both variants of a rule
// from Since on, which may be ahead, by slice of the keys. The first Cut slices are in the experiment.
type Experiment struct {
	Node         string    `json:"node"`
	Rule         string    `json:"rule"`
	RulesVersion string    `json:"rules_version"`
	Version      string    `json:"version"` // of the rule with its experiment
	Since        time.Time `json:"since"`
	Cut          int       `json:"cut"`
	// MemoryError says why the memory of counters is unknown.
	MemoryError string              `json:"memory_error,omitempty"`
	Slices      []experiment.Counts `json:"slices"`
}

// Shedder is GET /v1/shedder. ?brief omits the document, which is a *shedding.Document for the
// writer. Readers get a map, so that they can decode a newer node's document.
type Shedder struct {
	Node      string          `json:"node"`                 // node.id
	Version   string          `json:"version"`              // the beginning of the document's SHA-256, built-in or config
	Source    string          `json:"source"`               // builtin (the defaults), config, consul, cache (from disk, not yet confirmed by Consul) or admin
	Since     time.Time       `json:"since"`                // since when it is active
	ExpiresAt *time.Time      `json:"expires_at,omitempty"` // until when, if the settings are temporary
	Then      string          `json:"then,omitempty"`       // the version that follows temporary settings
	Pointer   *consul.Pointer `json:"pointer,omitempty"`    // as of rules
	Refused   *Refusal        `json:"refused,omitempty"`    // as of rules
	Consul    *Condition      `json:"consul,omitempty"`     // as of rules
	Cache     *Condition      `json:"cache,omitempty"`      // whether shedder.cache can be written, and since when
	Signature *Condition      `json:"signature,omitempty"`  // set if the node verifies signatures

	Document any `json:"document,omitempty"` // the active settings, unless ?brief
	// Upstreams are each group's level, utilization and winning signal; demand and served requests
	// per second; signals with their knees, and why one does not count; classes with requests in
	// flight and shed; what candidates would shed; estimates of the origin.
	Upstreams  []shedding.UpstreamStatus `json:"upstreams"`
	ShadowBias string                    `json:"shadow_bias"` // how to read what candidates would have shed
}

// Policy is GET /v1/policy. A node without a policy has no version.
type Policy struct {
	Node    string          `json:"node"`
	Version string          `json:"version"`
	Mode    string          `json:"mode,omitempty"`
	Since   time.Time       `json:"since,omitzero"`
	Source  string          `json:"source"`
	Canary  bool            `json:"canary,omitempty"`
	Stale   bool            `json:"stale"` // the current version is unknown, or not active here
	Pointer *consul.Pointer `json:"pointer,omitempty"`
	Refused *Refusal        `json:"refused,omitempty"`
	Consul  *Condition      `json:"consul,omitempty"`
	Cache   *Condition      `json:"cache,omitempty"`
	// Signature is set if the node verifies signatures.
	Signature *Condition `json:"signature,omitempty"`
}

// Clients is GET /v1/clients: the client lists of a node.
type Clients struct {
	Node    string     `json:"node"`
	Version string     `json:"version"` // "" before anything was published
	Source  string     `json:"source"`
	Since   time.Time  `json:"since,omitzero"`
	Blocks  int        `json:"blocks"`
	Allows  int        `json:"allows"`
	Next    time.Time  `json:"next,omitzero"` // when the next one expires
	Consul  *Condition `json:"consul,omitempty"`
	Cache   *Condition `json:"cache,omitempty"`
}

// Running is the common part of GET /v1/rules, /v1/shedder, /v1/policy and /v1/clients.
type Running struct {
	Version, Source string
	Since           time.Time
	Canary          bool
	Refused         *Refusal
	Consul          *Condition
	Upstreams       []shedding.UpstreamStatus // of the shedder
	Off             bool                      // the shedder's kill switch
}

func (c *Clients) Running() Running {
	return Running{Version: c.Version, Source: c.Source, Since: c.Since, Consul: c.Consul}
}

func (r *Rules) Running() Running {
	return Running{Version: r.Version, Source: r.Source, Since: r.Since, Canary: r.Canary, Refused: r.Refused, Consul: r.Consul}
}

func (s *Shedder) Running() Running {
	document, _ := s.Document.(map[string]any)
	return Running{
		Version: s.Version, Source: s.Source, Since: s.Since, Refused: s.Refused, Consul: s.Consul,
		Upstreams: s.Upstreams, Off: document["enabled"] == false,
	}
}

func (p *Policy) Running() Running {
	return Running{Version: p.Version, Source: p.Source, Since: p.Since, Canary: p.Canary, Refused: p.Refused, Consul: p.Consul}
}

// Explanation is GET /v1/explain: which rules decide a request, and how.
type Explanation struct {
	Client       string         `json:"client"`
	RulesVersion string         `json:"rules_version"`
	Readings     []string       `json:"readings,omitempty"` // of the path, if ambiguous
	Upstream     string         `json:"upstream"`           // the group; empty, as is the class, if the client is blocked
	Class        string         `json:"class"`              // for the shedder
	Verdict      string         `json:"verdict"`
	RetryAfter   string         `json:"retry_after,omitempty"`
	Rules        []RuleDecision `json:"rules"`
	// OtherMethods are rules that would apply with another method.
	OtherMethods []RuleMethods `json:"other_methods,omitempty"`
	// Behavior is the client's standing with the behavior policy; nil without one.
	Behavior *Behavior `json:"behavior,omitempty"`
	// ListEntry is the operators' decision about the client's network; nil: none.
	ListEntry *clientlist.Entry `json:"listed,omitempty"`
}

// Behavior is a client's standing with one node's behavior policy.
type Behavior struct {
	PolicyVersion string           `json:"policy_version"`
	Mode          string           `json:"mode"`
	Exempt        bool             `json:"exempt,omitempty"`
	Tier          string           `json:"tier,omitempty"`
	Score         float64          `json:"score"`
	RefusedFor    string           `json:"refused_for,omitempty"`
	Signals       []BehaviorSignal `json:"signals,omitempty"`
	// Limits multiplies the limits of all rules, and Delay is the requests' wait: by the tier
	// of the client or of the route, whichever is severer.
	Limits float64 `json:"limits,omitempty"`
	Delay  string  `json:"delay,omitempty"`
	// Route is set if the route is above the mildest tier, which applies to all its clients.
	Route *RouteBehavior `json:"route,omitempty"`
}

// RouteBehavior is a route's standing with one node's behavior policy.
type RouteBehavior struct {
	Tier    string           `json:"tier"`
	Score   float64          `json:"score"`
	Signals []BehaviorSignal `json:"signals,omitempty"`
}

// BehaviorSignal is one signal's part of a score, with the count and threshold when it last
// rose.
type BehaviorSignal struct {
	Signal    string  `json:"signal"`
	Points    float64 `json:"points"`
	Value     float64 `json:"value"`
	Threshold float64 `json:"threshold"`
}

// BehaviorSignals describes the reasons of a score.
func BehaviorSignals(reasons []behavior.Reason) (list []BehaviorSignal) {
	for _, r := range reasons {
		list = append(list, BehaviorSignal{r.Signal.String(), r.Points, r.Value, r.Threshold})
	}
	return list
}

// RuleMethods are a rule's methods.
type RuleMethods struct {
	Rule    string   `json:"rule"`
	Methods []string `json:"methods"`
}

// RuleDecision is one rule's decision about the explained request. Durations have Go's format.
// Limit and Remaining apply to this request: they are lower than the rule's if a behavior tier
// lowers limits.
type RuleDecision struct {
	Rule       string `json:"rule"`
	Mode       string `json:"mode"`
	Algorithm  string `json:"algorithm"`
	Key        string `json:"key"`
	Cost       int64  `json:"cost"`
	Limit      int64  `json:"limit"`
	Window     string `json:"window"`
	Allowed    bool   `json:"allowed"`
	Remaining  int64  `json:"remaining"`
	RetryAfter string `json:"retry_after,omitempty"`
	ResetAfter string `json:"reset_after"`
	// Source is who decides: the store, or SourceBlocked or SourceBehavior, which refuse the
	// request before any rule. Then Allowed is false whatever is left of the rule.
	Source string `json:"source"`
	// Leased is set for a rule with consistency: leased. Held is what the answering node may
	// still spend without the store, within HeldFor; Remaining does not include it. regionctl
	// limits inspect sums a region's nodes and lists them as Holders, largest first.
	Leased  bool     `json:"leased,omitempty"`
	Held    int64    `json:"held,omitempty"`
	HeldFor string   `json:"held_for,omitempty"`
	Holders []Holder `json:"holders,omitempty"`
	// Delay is set for a rule with consistency: reported: how long nodes may admit more than
	// the limit. Overshoot is how much more, as a part of the limit, if clients ask for ten
	// times the limit.
	Delay     string  `json:"delay,omitempty"`
	Overshoot float64 `json:"overshoot,omitempty"`
	// Global is set for a rule with scope: global.
	Global *GlobalCounts `json:"global,omitempty"`
	// UnderLoad is set for a rule with under_load; Limit is then the lowered limit.
	UnderLoad *UnderLoad `json:"under_load,omitempty"`
	// Variant is set for a rule with an experiment: VariantBase or VariantExperiment.
	Variant string `json:"variant,omitempty"`
}

// Holder is a node that may spend units of a leased limit without the store.
type Holder struct {
	Node string `json:"node"`
	Held int64  `json:"held"`
	// HeldFor is for how long.
	HeldFor string `json:"held_for,omitempty"`
}

const (
	SourceBlocked  = "blocked"
	SourceBehavior = "behavior"
)

const (
	VariantBase       = "base"
	VariantExperiment = "experiment"
)

// UnderLoad says how far a limit is lowered, and why.
type UnderLoad struct {
	From        float64 `json:"from"`
	Share       float64 `json:"share"`
	Utilization float64 `json:"utilization"` // of the request's upstream group, as limits follow it
	Step        int     `json:"step"`        // of Steps; 0: the full limit
	Steps       int     `json:"steps"`
	Full        int64   `json:"full"`
	Lowest      int64   `json:"lowest"`
}

// Reset is DELETE /v1/limits: the keys of the removed counters.
type Reset struct {
	Reset []string `json:"reset"`
}
