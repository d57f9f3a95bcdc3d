package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"strings"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter"
)

// Experiment tries other values on a share of a rule's keys, as written: absent fields are
// as in the rule.
type Experiment struct {
	Share float64 `yaml:"share" json:"share" required:"write what share of the keys it takes, as in 0.1"`
	// Name identifies the experiment. A new name draws other keys and starts with new
	// counters.
	Name string `yaml:"name,omitempty" json:"name,omitempty"`

	Algorithm      string            `yaml:"algorithm,omitempty" json:"algorithm,omitempty"`
	Storage        string            `yaml:"storage,omitempty" json:"storage,omitempty"`
	Limit          *int64            `yaml:"limit,omitempty" json:"limit,omitempty"`
	Window         string            `yaml:"window,omitempty" json:"window,omitempty" as:"duration"`
	Burst          *int64            `yaml:"burst,omitempty" json:"burst,omitempty"`
	MinInterval    string            `yaml:"min_interval,omitempty" json:"min_interval,omitempty" as:"duration"`
	Cost           string            `yaml:"cost,omitempty" json:"cost,omitempty" as:"number"`
	CountDenied    *bool             `yaml:"count_denied,omitempty" json:"count_denied,omitempty"`
	Tiers          map[string]string `yaml:"tiers,omitempty" json:"tiers,omitempty" as:"number"`
	Mode           string            `yaml:"mode,omitempty" json:"mode,omitempty"`
	OnStoreFailure string            `yaml:"on_store_failure,omitempty" json:"on_store_failure,omitempty"`
	Consistency    string            `yaml:"consistency,omitempty" json:"consistency,omitempty"`
	UnderLoad      *UnderLoad        `yaml:"under_load,omitempty" json:"under_load,omitempty"`

	SharedFields `yaml:",inline"`
}

// SharedFields holds the fields that an experiment must not set. They are read to say why.
type SharedFields struct {
	ID          string      `yaml:"id,omitempty" json:"id,omitempty"`
	Description string      `yaml:"description,omitempty" json:"description,omitempty"`
	Match       *Scope      `yaml:"match,omitempty" json:"match,omitempty"`
	Domain      string      `yaml:"domain,omitempty" json:"domain,omitempty"`
	Descriptors []Entry     `yaml:"descriptors,omitempty" json:"descriptors,omitempty"`
	MaxOverride *int64      `yaml:"max_override,omitempty" json:"max_override,omitempty"`
	Overdraft   *bool       `yaml:"overdraft,omitempty" json:"overdraft,omitempty"`
	Key         []string    `yaml:"key,omitempty" json:"key,omitempty"`
	Missing     string      `yaml:"missing,omitempty" json:"missing,omitempty"`
	Scope       string      `yaml:"scope,omitempty" json:"scope,omitempty"`
	Global      *Global     `yaml:"global,omitempty" json:"global,omitempty"`
	Experiment  *Experiment `yaml:"experiment,omitempty" json:"experiment,omitempty"`
}

// Slices is how many equal parts an experiment divides keys into, by a hash. Each part is
// entirely inside or outside the experiment, so that parts can be compared.
const Slices = 200

// Bounds of Experiment.
const (
	smallestShare  = 0.02
	largestShare   = 0.98
	maxExperiments = 20 // in a document: each is counted by slice, and has its own metrics
	maxTrialName   = 32
)

// faults explains for each field why it must be the same for both variants.
func (s *SharedFields) faults(v *reader) {
	refuse := func(is bool, name, why string) {
		if is {
			v.bad("experiment."+name, "%s; remove it", why)
		}
	}
	refuse(s.ID != "", "id", "the variants are one rule, with one id; tell experiments apart by name")
	refuse(s.Description != "", "description", "the rule already has one; state there what is tried")
	refuse(s.Match != nil, "match", "both variants must apply to the same requests, or they cannot be compared")
	refuse(s.Domain != "", "domain", "both variants must apply to the same requests, or they cannot be compared")
	refuse(s.Descriptors != nil, "descriptors", "both variants must apply to the same requests, or they cannot be compared")
	refuse(s.MaxOverride != nil, "max_override", "rules for descriptors take no experiment")
	refuse(s.Overdraft != nil, "overdraft", "rules for descriptors take no experiment")
	refuse(s.Key != nil, "key", "the key decides which variant a request belongs to, so it must be the same for both")
	refuse(s.Missing != "", "missing", "both variants must count the same requests, or they cannot be compared")
	refuse(s.Scope != "", "scope", "a rule with an experiment applies in one region only")
	refuse(s.Global != nil, "global", "a rule with an experiment applies in one region only")
	refuse(s.Experiment != nil, "experiment", "an experiment cannot contain another; use two rules, whose keys are drawn independently")
}

// CompiledExperiment is a compiled experiment. It is immutable.
type CompiledExperiment struct {
	Share float64
	Name  string
	// Version identifies the rule and its experiment as written: counts under one version
	// can be added up.
	Version string
	// Variant is the rule that limits the keys in the experiment.
	Variant *Compiled
	// Beside is set if these keys stay limited by the rule, and the variant decides without
	// enforcing.
	Beside bool
	// Cut is how many of the Slices, from the first, are in the experiment.
	Cut int

	salt uint64
}

// ExperimentCheck says that a check is part of an experiment, and which slice its key is in.
type ExperimentCheck struct {
	Check, Slice int
	Hash         uint64 // of the key, the same for both variants
}

// Base returns the rule that c is an experiment on, or c itself.
func (c *Compiled) Base() *Compiled {
	if c.base != nil {
		return c.base
	}
	return c
}

// IsVariant reports whether c is the variant of an experiment.
func (c *Compiled) IsVariant() bool { return c.base != nil }

// enforces reports whether the rule or its experiment may refuse.
func (c *Compiled) enforces() bool {
	return c.Mode == Enforce || c.Experiment != nil && c.Experiment.Variant.Mode == Enforce
}

// variants returns the rule and its experiment's variant, if it has one.
func (c *Compiled) variants() []*Compiled {
	if c.Experiment == nil {
		return []*Compiled{c}
	}
	return []*Compiled{c, c.Experiment.Variant}
}

// holds reports whether c decides as the limit does.
func (c *Compiled) holds(l *limiter.Limit) bool {
	for _, tier := range c.Tiers {
		if tier != nil && l.SameUnderLoad(tier) {
			return true
		}
	}
	return l.SameUnderLoad(c.Limit) || c.mayOverride(l)
}

// Variants iterates over all rules, each followed by its experiment's variant, if it has
// one.
func (s *Set) Variants() iter.Seq[*Compiled] {
	return func(yield func(*Compiled) bool) {
		for _, c := range s.rules {
			if !yield(c) || c.Experiment != nil && !yield(c.Experiment.Variant) {
				return
			}
		}
	}
}

// experiment compiles the experiment of a rule. If the rule itself is invalid, it reports
// only problems that do not depend on the rule.
func (v *reader) experiment(r *Rule, c *Compiled, valid bool) {
	e := r.Experiment
	before := len(v.p.list)
	bad := func(name, format string, args ...any) { v.bad("experiment"+name, format, args...) }
	cut := math.Round(e.Share * Slices)
	switch {
	case !(e.Share >= smallestShare && e.Share <= largestShare):
		bad(".share", "must be between %g and %g (got %g)", smallestShare, largestShare, e.Share)
	case math.Abs(e.Share*Slices-cut) > 1e-6:
		bad(".share", "must be a multiple of %g (got %g)", 1.0/Slices, e.Share)
	}
	if len(e.Name) > maxTrialName || strings.Trim(e.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		bad(".name", "must be at most %d characters of a-z, 0-9 and -", maxTrialName)
	}
	e.faults(v)
	if e.Mode != "" && e.Mode != Enforce.String() && e.Mode != Shadow.String() {
		bad(".mode", "must be enforce or shadow (got %s); to end the experiment, remove it", field.Shown(e.Mode))
	}
	if !valid {
		return
	}
	switch {
	case c.Mode == Off:
		bad("", "the rule is off, so there is nothing to compare with; use mode: shadow, or remove it")
	case r.Descriptors != nil:
		bad("", "descriptors are counted for requests that another proxy forwards, whose answers this node does not see; remove it")
	case c.Limit.Global != nil:
		bad("", "scope: global counts a key in several regions, under one limit; use scope: region, or remove it")
	case len(c.Key) == 0:
		bad("", "the key is [], which counts all requests together: there are no keys to divide; give the rule a key, or remove it")
	}
	merged := e.Merge(r)
	if is, was := merged.Algorithm == limiter.Concurrency.String(), c.Algorithm == limiter.Concurrency; is != was {
		bad(".algorithm", "concurrency limits what is in flight and the others limit a rate, which cannot be compared; try it as a rule of its own, in shadow mode")
	}
	if v.p.experiments++; v.p.experiments > maxExperiments || len(v.p.list) > before {
		return
	}
	inner := &reader{p: v.p, list: v.list, index: v.index, under: "experiment"}
	variant := inner.rule(merged)
	if len(v.p.list) > before {
		return
	}
	tag := ".x"
	if e.Name != "" {
		tag += "." + e.Name
	}
	variant.base = c
	variant.infix += tag
	text, _ := json.Marshal(r) // it is valid, so it contains nothing that JSON cannot express
	version := sha256.Sum256(text)
	salt := sha256.Sum256(fmt.Appendf(nil, "weir experiment\n%s\n%s", r.ID, e.Name))
	c.Experiment = &CompiledExperiment{
		Share: e.Share, Name: e.Name, Version: hex.EncodeToString(version[:])[:12],
		Variant: variant, Beside: c.Mode == Enforce && variant.Mode == Shadow, Cut: int(cut), salt: binary.LittleEndian.Uint64(salt[:]),
	}
}

// Merge returns the rule that an experiment tries, without the experiment. Fields that do
// not apply to the experiment's algorithm are left out.
func (e *Experiment) Merge(r *Rule) *Rule {
	m := *r
	m.Experiment = nil
	if e.Algorithm != "" && e.Algorithm != r.Algorithm && !(r.Algorithm == "" && e.Algorithm == limiter.RollingWindow.String()) {
		m.Storage, m.Burst, m.MinInterval = "", nil, ""
	}
	for _, f := range []struct {
		to   *string
		from string
	}{
		{&m.Algorithm, e.Algorithm}, {&m.Storage, e.Storage}, {&m.Window, e.Window}, {&m.MinInterval, e.MinInterval}, {&m.Cost, e.Cost},
		{&m.Mode, e.Mode}, {&m.OnStoreFailure, e.OnStoreFailure}, {&m.Consistency, e.Consistency},
	} {
		if f.from != "" {
			*f.to = f.from
		}
	}
	if e.Limit != nil {
		m.Limit = *e.Limit
	}
	if e.Burst != nil {
		m.Burst = e.Burst
	}
	if e.CountDenied != nil {
		m.CountDenied = *e.CountDenied
	}
	if e.Tiers != nil {
		m.Tiers = e.Tiers
	}
	if e.UnderLoad != nil {
		m.UnderLoad = e.UnderLoad
	}
	return &m
}
