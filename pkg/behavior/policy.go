package behavior

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/field"
)

// MaxScore caps scores.
const MaxScore = 100

// maxSeverity is the most times its weight that a signal adds, reached when its value is
// that many times its threshold.
const maxSeverity = 2

// Policy says which behavior adds to a score and what a score means. It is immutable once
// in use.
type Policy struct {
	HalfLife time.Duration // of the score, from 1 s to 1 h
	Signals  [numSignals]Threshold
	Tiers    []Tier // from the mildest, which begins at 0
}

// Threshold says when a signal rises and how much it then adds.
type Threshold struct {
	// Weight is added to the score while the signal is at its threshold, and up to twice
	// as much above. 0 turns the signal off.
	Weight float64
	// AtLeast is the smallest count that matters.
	AtLeast int
	// Share is a fraction of the requests, 0 to 1: with the same fingerprint (Repetition),
	// for missing routes among the distinct ones (Scan), that failed (Failures), or that
	// lack a header (Presence). Other signals ignore it.
	Share float64
	// Times is the multiple of the subject's own past that Burst compares with, if that is
	// more than AtLeast. A subject without a past is compared with AtLeast.
	Times float64
}

// Tier is a range of scores.
type Tier struct {
	Name string
	// A subject enters the tier when its score reaches From, and leaves it when the score
	// falls below Until.
	From, Until float64
	// Refuse is how long the tier refuses a subject; 0 if it does not. It doubles with each
	// repetition up to RefuseMax; after 10 times RefuseMax it starts over.
	Refuse, RefuseMax time.Duration
}

// Default returns the default policy. docs/BEHAVIOR.md shows what it does.
func Default() *Policy {
	return &Policy{
		HalfLife: 2 * time.Minute,
		Signals: [numSignals]Threshold{
			Burst:      {Weight: 24, AtLeast: 300, Times: 4},
			Repetition: {Weight: 35, AtLeast: 1200, Share: 0.8},
			Scan:       {Weight: 40, AtLeast: 150, Share: 0.1},
			Denials:    {Weight: 30, AtLeast: 15},
			Failures:   {Weight: 40, AtLeast: 40, Share: 0.5},
			Presence:   {Weight: 15, AtLeast: 20, Share: 0.9},
		},
		Tiers: []Tier{
			{Name: "normal"},
			{Name: "elevated", From: 25, Until: 20},
			{Name: "suspicious", From: 50, Until: 40},
			{Name: "blocked", From: 75, Until: 60, Refuse: time.Minute, RefuseMax: time.Hour},
		},
	}
}

// DefaultRoutes returns the default policy for routes as subjects: a route with many failed
// logins is under a guessing attack, however many addresses it comes from. Pass it the
// status of 401 and 403 answers only.
func DefaultRoutes() *Policy {
	p := Default()
	p.Signals = [numSignals]Threshold{Failures: {Weight: 50, AtLeast: 60, Share: 0.5}}
	for i := range p.Signals {
		if p.Signals[i].Weight == 0 {
			p.Signals[i] = Threshold{AtLeast: Signal(i).most()}
		}
	}
	p.Signals[Burst].Times = 1
	p.Tiers = p.Tiers[:3]
	return p
}

// MaxTiers bounds the tiers of a policy.
const MaxTiers = 8

// Validate reports what is wrong, by the paths of a policy document.
func (p *Policy) Validate() error {
	var faults field.Errors
	if p.HalfLife < time.Second || p.HalfLife > time.Hour {
		faults.Add("half_life", "must be from 1s to 1h (got %s)", p.HalfLife)
	}
	for i, s := range p.Signals {
		s.validate(Signal(i), field.Join("signals", Signal(i).String()), &faults)
	}
	p.validateTiers(&faults)
	return faults.Err()
}

func (s Threshold) validate(signal Signal, path string, faults *field.Errors) {
	if !(s.Weight >= 0 && s.Weight <= MaxScore) {
		faults.Add(field.Join(path, "weight"), "must be from 0 to %d (got %v); 0 turns the signal off", MaxScore, s.Weight)
	}
	if s.AtLeast < 1 || s.AtLeast > signal.most() {
		faults.Add(field.Join(path, "at_least"), "must be from 1 to %d (got %d)", signal.most(), s.AtLeast)
	}
	if !(s.Share >= 0 && s.Share <= 1) {
		faults.Add(field.Join(path, "share"), "must be from 0 to 1 (got %v)", s.Share)
	}
	if signal == Burst && !(s.Times >= 1 && s.Times <= 1000) {
		faults.Add(field.Join(path, "times"), "must be from 1 to 1000 (got %v)", s.Times)
	}
}

// most returns the largest count that a subject's state can represent.
func (s Signal) most() int {
	switch s {
	case Scan:
		return fullRoutes
	case Denials, Failures:
		return 10_000
	case Repetition, Presence:
		return 30_000
	}
	return 1_000_000
}

func (p *Policy) validateTiers(faults *field.Errors) {
	if len(p.Tiers) < 2 || len(p.Tiers) > MaxTiers {
		faults.Add("tiers", "must list from 2 to %d (got %d)", MaxTiers, len(p.Tiers))
	}
	names := map[string]bool{}
	for i, t := range p.Tiers {
		path := field.Index("tiers", i)
		if !validName(t.Name) {
			faults.Add(field.Join(path, "name"), "must be 1 to 32 lower-case letters, digits and hyphens (got %q)", t.Name)
		} else if names[t.Name] {
			faults.Add(field.Join(path, "name"), "%q is another tier's name too; choose a different one", t.Name)
		}
		names[t.Name] = true
		t.validate(i, path, p, faults)
	}
}

func (t *Tier) validate(i int, path string, p *Policy, faults *field.Errors) {
	switch {
	case i == 0 && (t.From != 0 || t.Until != 0):
		faults.Add(path, "is the mildest tier and begins at a score of 0; remove from and until")
	case i == 0 && t.Refuse != 0:
		faults.Add(field.Join(path, "refuse"), "would refuse everyone; remove it from the mildest tier")
	case i > 0 && !(t.From > p.Tiers[i-1].From && t.From <= MaxScore):
		faults.Add(field.Join(path, "from"), "must be above that of the previous tier, up to %d (got %v)", MaxScore, t.From)
	case i > 0 && !(t.Until > 0 && t.Until < t.From):
		faults.Add(field.Join(path, "until"), "must be above 0 and below from, so that a tier does not flap (got %v)", t.Until)
	case i > 1 && t.Until < p.Tiers[i-1].Until:
		faults.Add(field.Join(path, "until"), "must not be below that of the previous tier (got %v)", t.Until)
	}
	if t.Refuse != 0 && (t.Refuse < time.Second || t.Refuse > maxRefuse) {
		faults.Add(field.Join(path, "refuse.for"), "must be from 1s to %s (got %s)", hours(maxRefuse), t.Refuse)
	} else if t.Refuse != 0 && (t.RefuseMax < t.Refuse || t.RefuseMax > maxRefuse) {
		faults.Add(field.Join(path, "refuse.max"), "must be from refuse.for to %s (got %s)", hours(maxRefuse), t.RefuseMax)
	}
	if t.Refuse != 0 && i < len(p.Tiers)-1 {
		faults.Add(field.Join(path, "refuse"), "belongs to the severest tier: a refused subject is no longer observed, so it could never reach a later tier; move it there")
	}
}

const maxRefuse = 24 * time.Hour

func hours(d time.Duration) string { return fmt.Sprintf("%dh", int(d.Hours())) }

func validName(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
