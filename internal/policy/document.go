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
	// Mode is shadow, which scores and reports, or enforce, which also applies the tiers' effects.
	Mode string `yaml:"mode"`
	// Subject lists the key parts that identify a client; absent: the address. A request that
	// lacks a part is identified by its address.
	Subject []string `yaml:"subject"`
	// HalfLife is the time in which a score falls by half once its signals are over, from 1s to 1h.
	HalfLife time.Duration `yaml:"half_life"`
	// Signals are what adds to the score of a client.
	Signals Signals `yaml:"signals"`
	// Fingerprint lists headers that join the method, path and query names in a request's
	// fingerprint; at most 8.
	Fingerprint []string `yaml:"fingerprint"`
	// Routes are what adds to the score of a route. Its tier applies to everyone who asks for the
	// route, except that no route is refused.
	Routes Routes `yaml:"routes"`
	// Tiers are the ranges of scores, the mildest first; at most 8.
	Tiers []Tier `yaml:"tiers"`
	// Exempt lists requests that are not scored: those that meet all conditions of an entry. An
	// entry with headers matches only requests from a trusted proxy.
	Exempt []rules.Conditions `yaml:"exempt"`
}

// Signals are a client's signals.
type Signals struct {
	// Burst counts requests in 10 s.
	Burst Burst `yaml:"burst"`
	// Repetition counts requests per minute with one fingerprint.
	Repetition Shared `yaml:"repetition"`
	// Scan counts distinct routes in a minute or in 15; its share is of those that answer 404.
	Scan Shared `yaml:"scan"`
	// Denials counts requests per minute that were limited again before the time in Retry-After, if
	// they are at least half as many as passed.
	Denials Counted `yaml:"denials"`
	// Failures counts answers per minute of one sort: 401 and 403, 404, or 5xx.
	Failures Shared `yaml:"failures"`
	// Presence counts requests per minute that lack one of the headers.
	Presence Presence `yaml:"presence"`
}

// Routes are a route's signals.
type Routes struct {
	// Guessing counts 401 and 403 per minute, of all clients.
	Guessing Shared `yaml:"guessing"`
}

// Counted is a signal with a threshold count.
type Counted struct {
	// Weight is what the signal adds at its threshold, from 0 to 100, and up to twice as much
	// above; 0 turns the signal off.
	Weight float64 `yaml:"weight"`
	// AtLeast is the smallest count that matters.
	AtLeast int `yaml:"at_least"`
}

// Shared is a signal that also requires a share of the requests.
type Shared struct {
	Counted `yaml:",inline"`
	// Share is the smallest part of all that matters, from 0 to 1.
	Share float64 `yaml:"share"`
}

// Burst compares a client with its own past.
type Burst struct {
	Counted `yaml:",inline"`
	// Times is the multiple of the client's own past that is the threshold if it is more than
	// at_least; from 1 to 1000.
	Times float64 `yaml:"times"`
}

// Presence counts requests that lack one of the headers.
type Presence struct {
	Shared `yaml:",inline"`
	// Headers are the headers that real clients send; at most 8.
	Headers []string `yaml:"headers"`
	// TLS adds requests whose TLS fingerprint, from a trusted proxy, is not listed.
	TLS *TLS `yaml:"tls"`
}

// TLS identifies client software by its handshake. A request counts as lacking if its
// fingerprint is not in Known. Only a trusted proxy's requests are examined: any other client
// could forge the header.
type TLS struct {
	// Header is the header in which your proxy writes the fingerprint.
	Header string `yaml:"header" required:"name the header in which your proxy writes the fingerprint, as in header: X-JA4"`
	// Known lists the fingerprints of real clients; at most 1024.
	Known []string `yaml:"known" required:"list the fingerprints of real clients of your site"`
}

// Tier is a range of scores and its effects.
type Tier struct {
	// Name is the tier's name.
	Name string `yaml:"name" required:"name the tier, as in name: suspicious"`
	// From is the score at which a client enters the tier.
	From float64 `yaml:"from"`
	// Until is the score below which it leaves the tier.
	Until float64 `yaml:"until"`
	// Limits multiplies the limits of all rules, from 0.01 to 1; absent: 1.
	Limits *float64 `yaml:"limits"`
	// Delay is how long a request waits, up to 10s.
	Delay time.Duration `yaml:"delay"`
	// Refuse answers 429 for a time that doubles with each repetition; not with limits, delay or
	// header.
	Refuse *Refuse `yaml:"refuse"`
	// Header is whether to tell the origin, in Weir-Risk.
	Header bool `yaml:"header"`
}

// Refuse is how long a tier refuses.
type Refuse struct {
	// For is how long the first time.
	For time.Duration `yaml:"for" required:"say for how long the first time, as in for: 1m"`
	// Max is how long at most.
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
