package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// notes say where the figures mislead, and what would fix it.
func (p *playback) notes() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }

	if note := p.clock.note(); note != "" {
		add("%s", note)
	}
	if p.candidate.full || p.running != nil && p.running.full {
		add("at most %s counters are kept at a time, and about that many existed: clients whose counters were dropped passed; allow more keys",
			count(int64(p.config.MaxKeys)))
	}
	if p.budget.over || p.candidate.budget.over {
		add("more than %s clients were limited; the numbers of clients are too low, and the lists may lack some", count(int64(p.config.MaxKeys)))
	}
	d := p.candidate
	if names := d.ruleIDs(func(c *rules.Compiled) bool { return d.tallies[c.Index].unreturned }); names != "" {
		add("no duration was logged for requests of %s: their slots were returned at once, so the rule limits too little here; log duration", names)
	}
	if names := d.ruleIDs(d.finerThanSecond); names != "" && !p.log.fractions {
		add("the log's times are whole seconds, and all requests of a second come at once for %s; log fractions of a second", names)
	}
	absent, explained := d.absent(&p.log)
	list = append(list, absent...)
	idle := func(c *rules.Compiled) bool { return d.tallies[c.Index].checks == 0 && !explained[c.Index] }
	hostless := func(c *rules.Compiled) bool { return !p.log.hosts && len(c.Hosts()) > 0 }
	if names := d.ruleIDs(func(c *rules.Compiled) bool { return idle(c) && hostless(c) }); names != "" {
		add("no request was counted by %s: only certain hosts match, and no line names one; give the host", names)
	}
	ofCalls := func(c *rules.Compiled) bool { return c.Domain != "" }
	if names := d.ruleIDs(ofCalls); names != "" {
		add("a log shows nothing about %s: rules with descriptors count Envoy's calls, not requests", names)
	}
	if names := d.ruleIDs(func(c *rules.Compiled) bool { return idle(c) && !hostless(c) && !ofCalls(c) }); names != "" {
		add("no request was counted by %s: none matches", names)
	}
	return list
}

// ruleIDs names the rules for which f holds, without those that are off. If there are many,
// it names a few.
func (d *document) ruleIDs(f func(c *rules.Compiled) bool) string {
	const most = 5
	var ids []string
	for _, c := range d.set.Rules() {
		if c.Mode != rules.Off && f(c) {
			ids = append(ids, c.ID)
		}
	}
	switch {
	case len(ids) == 0:
		return ""
	case len(ids) == 1:
		return "rule " + ids[0]
	case len(ids) > most:
		return fmt.Sprintf("rules %s and %d more", strings.Join(ids[:most], ", "), len(ids)-most)
	}
	return "rules " + strings.Join(ids, ", ")
}

// finerThanSecond reports whether whole seconds are too coarse to judge a rule by.
func (d *document) finerThanSecond(c *rules.Compiled) bool {
	l := c.Limit
	if d.tallies[c.Index].checks == 0 || l.Algorithm == limiter.Concurrency {
		return false
	}
	return l.Window < 10*time.Second || l.MinInterval > 0 && l.MinInterval < 10*time.Second ||
		l.Algorithm == limiter.LeakyBucket && l.Window < time.Duration(l.Capacity())*10*time.Second
}

// absent describes what rules look at that the log does not carry, and which rules
// therefore count nothing.
func (d *document) absent(log *facts) (list []string, idle map[int]bool) {
	idle = map[int]bool{}
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	counted := map[rules.KeyPart]bool{}
	absent := func(part rules.KeyPart) bool {
		carried, known := d.request.present[part]
		return known && !carried
	}
	for _, c := range d.set.Rules() {
		if c.Mode == rules.Off {
			continue
		}
		missing := "it counted no request"
		if c.CountMissing {
			missing = "all its requests were counted together"
		}
		explain := func(format string, part rules.KeyPart) {
			add(format, c.ID, part, missing)
			idle[c.Index] = idle[c.Index] || !c.CountMissing
		}
		for _, part := range c.Key {
			counted[part] = true
			switch {
			case part.Kind == rules.ByTier && !log.tiers:
				explain("rule %s counts by %s, which no line carries: %s; log the tier", part)
			case part.Kind == rules.ByHost && !log.hosts:
				add("rule %s counts by host, which no line carries; give the host", c.ID)
			case absent(part):
				explain("rule %s counts by %s, which no line carries: %s; log it", part)
			}
		}
		if len(c.Tiers) > 0 && !log.tiers && !slices.Contains(c.Key, rules.KeyPart{Kind: rules.ByTier}) {
			add("rule %s has tiers, and no line carries one: its limit of %d applied to all; log the tier", c.ID, c.Limit.Limit)
		}
		if c.CostHeader == "" {
			continue
		}
		cost := rules.KeyPart{Kind: rules.ByHeader, Name: c.CostHeader}
		counted[cost] = true
		switch {
		case d.tallies[c.Index].checks == 0:
		case !log.trusted:
			add("rule %s takes its cost from header:%s of trusted requests, and no line is trusted: each counted as 1", c.ID, c.CostHeader)
		case absent(cost):
			add("rule %s takes its cost from header:%s, which no line carries: each counted as 1; log it", c.ID, c.CostHeader)
		}
	}
	// Everything else that was asked for is a condition.
	var conditions []string
	for part := range d.request.present {
		if !counted[part] && absent(part) {
			conditions = append(conditions, part.String())
		}
	}
	slices.Sort(conditions)
	for _, c := range conditions {
		add("rules match on %s, which no line carries: that condition never held; log it", c)
	}
	const most = 20
	if n := len(list); n > most {
		list = append(list[:most], fmt.Sprintf("and %d more notes of this kind", n-most))
	}
	return list, idle
}
