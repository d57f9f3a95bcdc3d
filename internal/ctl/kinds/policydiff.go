package kinds

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/policy"
)

func (b *PolicyBook) Compare(running any) Changes {
	before, published := running.(*PolicyBook)
	if !published {
		before = &PolicyBook{Written: policy.Defaults()}
	}
	c := compareFields(policyFields(before.Written), policyFields(b.Written))
	if !published {
		c.from("the default policy")
	}
	return c
}

// policyFields returns the content of a policy, in the order of the example.
func policyFields(d *policy.Document) (list []FieldValue) {
	add := func(name, value string) { list = append(list, FieldValue{name, value}) }
	number := func(name string, value float64) { add(name, strconv.FormatFloat(value, 'g', -1, 64)) }
	counted := func(at string, c policy.Counted) {
		number(at+".weight", c.Weight)
		number(at+".at_least", float64(c.AtLeast))
	}
	shared := func(at string, s policy.Shared) {
		counted(at, s.Counted)
		number(at+".share", s.Share)
	}
	s := &d.Signals
	add("mode", d.Mode)
	if d.Subject != nil {
		add("subject", "["+strings.Join(d.Subject, ", ")+"]")
	}
	add("half_life", term.Duration(d.HalfLife))
	counted("signals.burst", s.Burst.Counted)
	number("signals.burst.times", s.Burst.Times)
	shared("signals.repetition", s.Repetition)
	shared("signals.scan", s.Scan)
	counted("signals.denials", s.Denials)
	shared("signals.failures", s.Failures)
	shared("signals.presence", s.Presence.Shared)
	add("signals.presence.headers", "["+strings.Join(s.Presence.Headers, ", ")+"]")
	if t := s.Presence.TLS; t != nil {
		add("signals.presence.tls", fmt.Sprintf("%s [%s]", t.Header, strings.Join(t.Known, ", ")))
	}
	add("fingerprint", "["+strings.Join(d.Fingerprint, ", ")+"]")
	shared("routes.guessing", d.Routes.Guessing)
	names := fleet.Map(d.Tiers, func(t policy.Tier) string { return t.Name })
	add("tiers", "["+strings.Join(names, ", ")+"]")
	for i := range d.Tiers {
		t := &d.Tiers[i]
		at := "tiers." + t.Name
		number(at+".from", t.From)
		number(at+".until", t.Until)
		if t.Limits != nil {
			number(at+".limits", *t.Limits)
		}
		if t.Delay > 0 {
			add(at+".delay", term.Duration(t.Delay))
		}
		if t.Refuse != nil {
			add(at+".refuse", fmt.Sprintf("for %s, at most %s", term.Duration(t.Refuse.For), term.Duration(t.Refuse.Max)))
		}
		if t.Header {
			add(at+".header", "true")
		}
	}
	for i := range d.Exempt {
		add(fmt.Sprintf("exempt[%d]", i), whereOf(&d.Exempt[i], math.MaxInt))
	}
	return list
}
