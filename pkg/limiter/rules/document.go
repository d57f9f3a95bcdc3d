// Package rules turns a rule document into the checks of a request.
//
// A document is parsed strictly, validated as a whole and compiled into an immutable Set.
// Set.Match then finds the rules that apply to a request and writes the key that each
// counts by. Matching walks an index (client, host, path, method, header), so it costs
// the same with ten rules that do not apply as with ten thousand.
package rules

// Bounds of a document. They keep compiling fast and the index small, whatever the document
// contains.
const (
	MaxBytes = 2 << 20 // 10,000 rules of 200 bytes
	MaxRules = 10_000

	maxMethods     = 32
	maxHeaders     = 8
	maxHeaderNames = 32 // in the whole document, since each is looked up for every request
	maxKeyParts    = 8
	maxTiers       = 64
	maxPath        = 512
	maxHost        = 253 // RFC 1035
	maxName        = 64
	maxValue       = 256
	maxDescription = 1024

	maxDomain  = 255
	maxEntries = 6   // of a descriptor
	maxForms   = 128 // of descriptors that a rule counts

	maxFollowing = 2000 // limits of rules and tiers that follow load; each is stored at every step, 8 kB
)

// Document is a rule document as written.
type Document struct {
	Rules []Rule `yaml:"rules" json:"rules" required:"write rules: [] for no rules"`
}

// Rule is one rule as written: absent fields are zero, and words and durations are still
// text. Compile reports its faults.
type Rule struct {
	ID          string `yaml:"id" json:"id"`
	Description string `yaml:"description,omitempty" json:"description,omitempty"`
	Match       Scope  `yaml:"match,omitempty" json:"match,omitzero"`
	// Domain and Descriptors make this a rule for calls to Envoy's rate limit service: it
	// counts descriptors of that domain and no other requests.
	Domain      string  `yaml:"domain,omitempty" json:"domain,omitempty"`
	Descriptors []Entry `yaml:"descriptors,omitempty" json:"descriptors,omitempty"`
	// MaxOverride is the largest limit that a descriptor may state; 0 allows none.
	MaxOverride int64 `yaml:"max_override,omitempty" json:"max_override,omitempty"`
	// Overdraft charges every call whole, even beyond the limit, and lets calls give back.
	Overdraft bool `yaml:"overdraft,omitempty" json:"overdraft,omitempty"`
	// Key must be present; an empty, non-nil Key counts all requests together.
	Key         []string `yaml:"key" json:"key"`
	Algorithm   string   `yaml:"algorithm,omitempty" json:"algorithm,omitempty"`
	Storage     string   `yaml:"storage,omitempty" json:"storage,omitempty"`
	Limit       int64    `yaml:"limit" json:"limit" required:"write how many requests may pass in a window"`
	Window      string   `yaml:"window" json:"window" as:"duration"`
	Burst       *int64   `yaml:"burst,omitempty" json:"burst,omitempty"`
	MinInterval string   `yaml:"min_interval,omitempty" json:"min_interval,omitempty" as:"duration"`
	// Cost is a decimal number or header:NAME.
	Cost        string `yaml:"cost,omitempty" json:"cost,omitempty" as:"number"`
	CountDenied bool   `yaml:"count_denied,omitempty" json:"count_denied,omitempty"`
	// Tiers maps a tier to a decimal limit or to "unlimited".
	Tiers          map[string]string `yaml:"tiers,omitempty" json:"tiers,omitempty" as:"number"`
	Missing        string            `yaml:"missing,omitempty" json:"missing,omitempty"`
	Mode           string            `yaml:"mode,omitempty" json:"mode,omitempty"`
	OnStoreFailure string            `yaml:"on_store_failure,omitempty" json:"on_store_failure,omitempty"`
	Consistency    string            `yaml:"consistency,omitempty" json:"consistency,omitempty"`
	// Scope is region, or global for a limit that regions share as Global describes.
	Scope  string  `yaml:"scope,omitempty" json:"scope,omitempty"`
	Global *Global `yaml:"global,omitempty" json:"global,omitempty"`
	// UnderLoad lowers the limit while the upstreams are busy.
	UnderLoad *UnderLoad `yaml:"under_load,omitempty" json:"under_load,omitempty"`
	// Experiment puts a share of the keys under other values.
	Experiment *Experiment `yaml:"experiment,omitempty" json:"experiment,omitempty"`
}

// Scope selects the requests that a rule applies to: those that meet the conditions,
// except those that meet all of Not, which has at least one part.
type Scope struct {
	Conditions `yaml:",inline"`
	Not        *Conditions `yaml:"not,omitempty" json:"not,omitempty"`
}

// Conditions select requests: every given part must match, and within a list any value. A
// nil part matches every request.
type Conditions struct {
	Hosts   []string          `yaml:"hosts,omitempty" json:"hosts,omitempty"`     // names; *. stands for one or more labels
	Paths   []string          `yaml:"paths,omitempty" json:"paths,omitempty"`     // exact, or prefixes with * at the end
	Methods []string          `yaml:"methods,omitempty" json:"methods,omitempty"` // in upper case
	Clients []string          `yaml:"clients,omitempty" json:"clients,omitempty"` // networks or addresses
	Headers map[string]string `yaml:"headers,omitempty" json:"headers,omitempty"` // names with exact values
}

// Entry is the condition on one entry of a descriptor. The next entry must match one of
// Descriptors; without any, this entry must be the last.
type Entry struct {
	Key string `yaml:"key" json:"key"`
	// Value is exact, or a prefix followed by *. Without it, any value matches.
	Value string `yaml:"value,omitempty" json:"value,omitempty"`
	// Not lists values, in the same notation, that do not match.
	Not         []string `yaml:"not,omitempty" json:"not,omitempty"`
	Descriptors []Entry  `yaml:"descriptors,omitempty" json:"descriptors,omitempty"`
}

// Empty reports whether c has no part and thus holds for every request.
func (c *Conditions) Empty() bool {
	return c.Hosts == nil && c.Paths == nil && c.Methods == nil && c.Clients == nil && c.Headers == nil
}
