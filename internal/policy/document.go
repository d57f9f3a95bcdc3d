// Package policy is the behavior policy's document: the signals of client behavior that add to
// a score, and the tiers of scores with their effects. It reads, validates and compiles the
// document; pkg/behavior applies it.
package policy

import (
	_ "embed"
	"time"

	"github.com/weir-edge/weir/pkg/behavior"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Bounds of a document. Every request looks up the fingerprint and presence headers.
const (
	MaxBytes     = 64 << 10
	maxHeaders   = 8
	maxExempt    = 64
	maxKnown     = 1024
	maxPrint     = 256
	leastLimits  = 0.01
	longestDelay = 10 * time.Second
)

// Schema is the schema of policies that this release reads and writes. Nodes that follow
// policies register it.
const Schema = 1

// The modes.
const (
	Shadow  = "shadow"  // score and report, change nothing
	Enforce = "enforce" // apply the tiers' effects
)

// Example is an annotated document that is equivalent to Defaults.
//
//go:embed example.yaml
var Example string

// Document is a policy as written.
type Document struct {
	Mode string `yaml:"mode"`
	// Subject lists the key parts that identify a client; nil: the address. A request that
	// lacks a part is identified by its address.
	Subject  []string      `yaml:"subject"`
	HalfLife time.Duration `yaml:"half_life"`
	Signals  Signals       `yaml:"signals"`
	// Fingerprint names headers that join the method, path and query names in a request's
	// fingerprint.
	Fingerprint []string `yaml:"fingerprint"`
	Routes      Routes   `yaml:"routes"`
	Tiers       []Tier   `yaml:"tiers"`
	// Exempt lists requests that are not scored: those that meet all conditions of an entry. An
	// entry with headers matches only requests from a trusted proxy.
	Exempt []rules.Conditions `yaml:"exempt"`
}

// Signals are a client's signals.
type Signals struct {
	Burst      Burst    `yaml:"burst"`
	Repetition Shared   `yaml:"repetition"`
	Scan       Shared   `yaml:"scan"`
	Denials    Counted  `yaml:"denials"`
	Failures   Shared   `yaml:"failures"`
	Presence   Presence `yaml:"presence"`
}

// Routes are a route's signals.
type Routes struct {
	// Guessing counts all clients' 401 and 403.
	Guessing Shared `yaml:"guessing"`
}

// Counted is a signal with a threshold count.
type Counted struct {
	Weight  float64 `yaml:"weight"`
	AtLeast int     `yaml:"at_least"`
}

// Shared is a signal that also requires a share of the requests.
type Shared struct {
	Counted `yaml:",inline"`
	Share   float64 `yaml:"share"`
}

// Burst compares a client with its own past.
type Burst struct {
	Counted `yaml:",inline"`
	Times   float64 `yaml:"times"`
}

// Presence counts requests that lack one of the headers.
type Presence struct {
	Shared  `yaml:",inline"`
	Headers []string `yaml:"headers"`
	TLS     *TLS     `yaml:"tls"`
}

// TLS identifies client software by its handshake. A request counts as lacking if its
// fingerprint is not in Known. Only a trusted proxy's requests are examined: any other client
// could forge the header.
type TLS struct {
	Header string   `yaml:"header" required:"name the header in which your proxy writes the fingerprint, as in header: X-JA4"`
	Known  []string `yaml:"known" required:"list the fingerprints of real clients of your site"`
}

// Tier is a range of scores and its effects.
type Tier struct {
	Name  string  `yaml:"name" required:"name the tier, as in name: suspicious"`
	From  float64 `yaml:"from"`
	Until float64 `yaml:"until"`
	// Limits multiplies the limits of all rules; nil: 1.
	Limits *float64      `yaml:"limits"`
	Delay  time.Duration `yaml:"delay"`
	Refuse *Refuse       `yaml:"refuse"`
	Header bool          `yaml:"header"` // tell the origin
}

// Refuse is how long a tier refuses.
type Refuse struct {
	For time.Duration `yaml:"for" required:"say for how long the first time, as in for: 1m"`
	Max time.Duration `yaml:"max" required:"say for how long at most, as in max: 1h"`
}

// Defaults returns the shipped policy, in shadow mode.
func Defaults() *Document {
	p, r := behavior.Default(), behavior.DefaultRoutes()
	counted := func(p *behavior.Policy, s behavior.Signal) Counted {
		return Counted{p.Signals[s].Weight, p.Signals[s].AtLeast}
	}
	shared := func(p *behavior.Policy, s behavior.Signal) Shared { return Shared{counted(p, s), p.Signals[s].Share} }
	d := &Document{
		Mode: Shadow, HalfLife: p.HalfLife,
		Signals: Signals{
			Burst:      Burst{counted(p, behavior.Burst), p.Signals[behavior.Burst].Times},
			Repetition: shared(p, behavior.Repetition),
			Scan:       shared(p, behavior.Scan),
			Denials:    counted(p, behavior.Denials),
			Failures:   shared(p, behavior.Failures),
			Presence:   Presence{Shared: shared(p, behavior.Presence), Headers: []string{"User-Agent", "Accept"}},
		},
		Fingerprint: []string{"User-Agent"},
		Routes:      Routes{Guessing: shared(r, behavior.Failures)},
	}
	for _, t := range p.Tiers {
		d.Tiers = append(d.Tiers, Tier{Name: t.Name, From: t.From, Until: t.Until})
		if t.Refuse > 0 {
			d.Tiers[len(d.Tiers)-1].Refuse = &Refuse{t.Refuse, t.RefuseMax}
		}
	}
	elevated, suspicious := &d.Tiers[1], &d.Tiers[2]
	elevated.Limits, elevated.Header = new(0.6), true
	suspicious.Limits, suspicious.Header, suspicious.Delay = new(0.2), true, time.Second
	return d
}
