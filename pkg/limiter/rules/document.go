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
	Rules []Rule `yaml:"rules" json:"rules" required:"write rules: [] for no rules"` // at most 10,000
}

// Rule is one rule as written: absent fields are zero, and words and durations are still
// text. Compile reports its faults.
type Rule struct {
	ID          string `yaml:"id" json:"id"`                                       // 1 to 64 of a-z, 0-9 and -; unique: part of the key in the store, and a metric label
	Description string `yaml:"description,omitempty" json:"description,omitempty"` // free text of at most 1024 bytes
	Match       Scope  `yaml:"match,omitempty" json:"match,omitzero"`              // which requests count; absent: all
	Domain      string `yaml:"domain,omitempty" json:"domain,omitempty"`           // that of Envoy's filter, at most 255 bytes; required with descriptors
	// Descriptors are counted instead of requests: those of calls to Envoy's rate limit service.
	// Entries of one list are alternatives, at most 6 deep and 128 forms.
	Descriptors []Entry `yaml:"descriptors,omitempty" json:"descriptors,omitempty"`
	MaxOverride int64   `yaml:"max_override,omitempty" json:"max_override,omitempty"` // the largest limit that a descriptor may state instead
	Overdraft   bool    `yaml:"overdraft,omitempty" json:"overdraft,omitempty"`       // whether to charge calls whole, even beyond the limit, and let calls give hits back
	// Key must be present: at most 8 parts that requests are counted by; an empty list counts all
	// requests together.
	Key         []string `yaml:"key" json:"key"`
	Algorithm   string   `yaml:"algorithm,omitempty" json:"algorithm,omitempty"`                             // rolling_window (if absent), sliding_window, fixed_window, token_bucket, leaky_bucket or concurrency
	Storage     string   `yaml:"storage,omitempty" json:"storage,omitempty"`                                 // ring (if absent) or sorted_set; rolling_window only
	Limit       int64    `yaml:"limit" json:"limit" required:"write how many requests may pass in a window"` // 1 to 1,000,000,000; less for some algorithms
	Window      string   `yaml:"window" json:"window" as:"duration"`                                         // required: 1ms to 744h (31 days), in whole milliseconds
	Burst       *int64   `yaml:"burst,omitempty" json:"burst,omitempty"`                                     // up to 1,000,000,000; token_bucket (from 1; absent: the limit) and leaky_bucket (absent: 0) only
	MinInterval string   `yaml:"min_interval,omitempty" json:"min_interval,omitempty" as:"duration"`         // 1ms to the window; rolling_window only
	Cost        string   `yaml:"cost,omitempty" json:"cost,omitempty" as:"number"`                           // what a request counts as: an integer or header:NAME; absent: 1
	// CountDenied also charges refused requests, up to the limit, so that a client that keeps retrying
	// stays refused; not for concurrency.
	CountDenied    bool              `yaml:"count_denied,omitempty" json:"count_denied,omitempty"`
	Tiers          map[string]string `yaml:"tiers,omitempty" json:"tiers,omitempty" as:"number"`           // limits by tier, at most 64: an integer or unlimited
	Missing        string            `yaml:"missing,omitempty" json:"missing,omitempty"`                   // requests that lack a key part: skip (if absent) or limit
	Mode           string            `yaml:"mode,omitempty" json:"mode,omitempty"`                         // enforce (if absent), shadow or off
	OnStoreFailure string            `yaml:"on_store_failure,omitempty" json:"on_store_failure,omitempty"` // local (if absent), open or closed
	Consistency    string            `yaml:"consistency,omitempty" json:"consistency,omitempty"`           // strict (if absent), leased or reported
	Scope          string            `yaml:"scope,omitempty" json:"scope,omitempty"`                       // region (if absent), or global: a limit that regions share
	Global         *Global           `yaml:"global,omitempty" json:"global,omitempty"`                     // how regions share the limit
	UnderLoad      *UnderLoad        `yaml:"under_load,omitempty" json:"under_load,omitempty"`             // lowers the limit while the upstreams are busy
	Experiment     *Experiment       `yaml:"experiment,omitempty" json:"experiment,omitempty"`             // puts a share of the keys under other values: share, name, and fields of the rule
}

// Scope selects the requests that a rule applies to: those that meet the conditions,
// except those that meet all of Not, which has at least one part.
type Scope struct {
	Conditions `yaml:",inline"`
	Not        *Conditions `yaml:"not,omitempty" json:"not,omitempty"` // exempts requests that meet all of these
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
	Key         string   `yaml:"key" json:"key"`                                     // exact, at most 256 bytes
	Value       string   `yaml:"value,omitempty" json:"value,omitempty"`             // exact, or a prefix with * at the end, at most 256 bytes; absent: any
	Not         []string `yaml:"not,omitempty" json:"not,omitempty"`                 // values, written alike, that do not match
	Descriptors []Entry  `yaml:"descriptors,omitempty" json:"descriptors,omitempty"` // the next entry must match one of them; absent: this is the last
}

// Empty reports whether c has no part and thus holds for every request.
func (c *Conditions) Empty() bool {
	return c.Hosts == nil && c.Paths == nil && c.Methods == nil && c.Clients == nil && c.Headers == nil
}
