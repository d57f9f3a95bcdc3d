package rules

import (
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter"
)

// form is one form of descriptor that a rule counts: a condition on each entry.
type form []entryForm

type entryForm struct {
	key, value string // a pattern; "" for any value
	not        *pathTable[struct{}]
}

// entryTable finds rules by the entries of a descriptor, one level per entry. Values are
// looked up like paths: exactly, by prefix, or any.
type entryTable struct {
	keys map[string]*pathTable[entryTable]
	ends []formEnd // of forms that end here
}

type formEnd struct {
	rule int32
	form form // to verify Not; nil if no entry has one
}

func (s *Set) buildDomains() {
	for _, c := range s.rules {
		if c.Mode == Off {
			continue
		}
		for _, f := range c.forms {
			made(&s.domains, c.Domain).add(c, f)
		}
	}
}

func (t *entryTable) add(c *Compiled, f form) {
	end := formEnd{rule: int32(c.Index)}
	for _, e := range f {
		t = made(&t.keys, e.key).at(e.value)
		if e.not != nil {
			end.form = f
		}
	}
	t.ends = append(t.ends, end)
}

// descriptors reads what a rule for rate limit calls counts.
func (v *reader) descriptors(r *Rule, c *Compiled) {
	byDescriptor := slices.ContainsFunc(c.Key, func(k KeyPart) bool { return k.Kind == ByDescriptor })
	if r.Descriptors == nil {
		switch {
		case r.Domain != "":
			v.bad("descriptors", "is required with a domain; name the descriptors to count")
		case r.MaxOverride != 0:
			v.bad("max_override", "is only for rules with descriptors; remove it")
		case r.Overdraft:
			v.bad("overdraft", "is only for rules with descriptors, which a gateway charges after the answer; remove it")
		case byDescriptor:
			v.bad("key", "descriptor is only for rules with descriptors; count by client_ip, for example")
		}
		return
	}
	if c.Domain = r.Domain; r.Domain == "" || len(r.Domain) > maxDomain || !printableText(r.Domain) {
		v.bad("domain", "is required with descriptors: the domain of Envoy's rate limit filter, 1 to %d bytes without control characters (got %s)", maxDomain, field.Shown(r.Domain))
	}
	if !r.Match.Empty() || r.Match.Not != nil {
		v.bad("match", "selects requests, but a rule with descriptors counts none; remove it")
	}
	v.entries("descriptors", r.Descriptors, nil, c)
	for i, part := range c.Key {
		at := field.Index("key", i)
		switch {
		case part.Kind != ByDescriptor:
			v.bad(at, "a call has only descriptors; write descriptor for the whole of one, or descriptor:NAME for the value of an entry (got %s)", part)
		case part.Name != "" && slices.ContainsFunc(c.forms, func(f form) bool { return f.count(part.Name) != 1 }):
			v.bad(at, "must name an entry that every descriptor of this rule has once (got %s)", field.Shown(part.Name))
		}
	}
}

func (f form) count(key string) (n int) {
	for _, e := range f {
		if e.key == key {
			n++
		}
	}
	return n
}

// entries appends the forms that a list of entries expands to.
func (v *reader) entries(at string, list []Entry, before form, c *Compiled) {
	switch {
	case len(list) == 0:
		v.bad(at, "is empty and would count nothing; name an entry, or remove it")
	case len(before) == maxEntries:
		v.bad(at, "is nested more than %d deep", maxEntries)
		return
	}
	for i := range list {
		e, at := &list[i], field.Index(at, i)
		f := append(slices.Clip(before), v.entry(at, e))
		if e.Descriptors != nil {
			v.entries(at+".descriptors", e.Descriptors, f, c)
			continue
		}
		if len(c.forms) == maxForms {
			v.bad(at, "expands to more than %d forms of descriptors; split the rule", maxForms)
			return
		}
		c.forms = append(c.forms, f)
	}
}

func (v *reader) entry(at string, e *Entry) entryForm {
	f := entryForm{key: e.Key, value: e.Value}
	if e.Key == "" || len(e.Key) > maxValue || !printableText(e.Key) {
		v.bad(at+".key", "is required: the key of the entry, 1 to %d bytes without control characters (got %s)", maxValue, field.Shown(e.Key))
	}
	v.entryValue(at+".value", e.Value)
	if e.Value == "*" {
		f.value = "" // any
	}
	if e.Not == nil {
		return f
	}
	v.values(at+".not", e.Not, func(at, value string) (string, bool) { return value, v.entryValue(at, value) })
	f.not = setOf(&pathTable[struct{}]{}, e.Not)
	return f
}

func (v *reader) entryValue(at, value string) bool {
	switch {
	case len(value) > maxValue || !printableText(value):
		v.bad(at, "must be at most %d bytes without control characters (got %s)", maxValue, field.Shown(value))
	case strings.Contains(strings.TrimSuffix(value, "*"), "*"):
		v.bad(at, "can have * only at the end, where it matches the rest (got %s)", field.Shown(value))
	default:
		return true
	}
	return false
}

// calls rejects what a rate limit call lacks: tiers, headers and an end.
func (v *reader) calls(r *Rule, c *Compiled) {
	if c.Domain == "" {
		return
	}
	l := c.Limit
	if l.Algorithm == limiter.Concurrency {
		v.bad("algorithm", "concurrency needs to know when a request ends, which a rate limit service never learns; limit its rate")
	}
	if r.Tiers != nil {
		v.bad("tiers", "a call has no tier; let a descriptor name it, or write max_override")
	}
	if strings.HasPrefix(r.Cost, "header:") {
		v.bad("cost", "a call has no headers; its cost is hits_addend; remove it")
	}
	if l.Storage == limiter.SortedSet && max(l.Limit, r.MaxOverride) > limiter.MaxEntries {
		v.bad("limit", "must be at most %d with storage sorted_set and descriptors, whose hits_addend may be any; %s", limiter.MaxEntries, otherStorage)
	}
	if r.MaxOverride == 0 {
		return
	}
	switch {
	case r.Overdraft:
		v.bad("overdraft", "does not work with max_override, because every call must be charged to the same limit; remove one of them")
	case r.MaxOverride < 1 || r.MaxOverride > limiter.MaxCount:
		v.bad("max_override", "must be between 1 and %d (got %d)", limiter.MaxCount, r.MaxOverride)
	case l.Algorithm.IsBucket():
		v.bad("max_override", "cannot apply to %s, because all limits of a key share one bucket; use fixed_window, sliding_window or rolling_window", l.Algorithm)
	case l.Leased || l.Reported:
		v.bad("max_override", "needs consistency strict; remove one of them")
	default:
		c.MaxOverride = r.MaxOverride
		for _, e := range c.overridden(r.MaxOverride, l.Window).Validate() {
			v.bad("max_override", "%s: %s", e.Path, e.Msg)
		}
	}
}

// overdrafts refuses a domain in which a call may be refused before all overdrafts are charged.
func (s *Set) overdrafts(p *problems) {
	early := map[string]*Compiled{} // by domain
	for _, c := range s.rules {
		if l := c.Limit; l != nil && c.Mode != Off && (l.Leased || l.Reported || l.Global != nil) {
			early[c.Domain] = c
		}
	}
	for _, c := range s.rules {
		if o := early[c.Domain]; o != nil && c.Limit != nil && c.Limit.Overdraft {
			p.add(field.Index("rules", c.Index)+".overdraft", "needs consistency: strict and scope: region in all rules of its domain, because a call that another rule refuses early must be charged too; change rule %s, or remove overdraft", o.ID)
		}
	}
}
