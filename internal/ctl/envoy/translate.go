package envoy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

type translator struct {
	doc          *rules.Document
	report       []string
	ids          map[string]bool
	file, domain string
}

func (t *translator) lost(at, format string, args ...any) {
	t.report = append(t.report, fmt.Sprintf("%s: %s: %s", t.file, at, fmt.Sprintf(format, args...)))
}

// level translates entries that have the same parents. Of these the service follows the
// exact match, else the first matching prefix, else the entry without a value; each rule
// therefore excludes the values that an earlier entry takes.
func (t *translator) level(list []entry, path string, above []step) error {
	seen := map[string]bool{}
	for i := range list {
		e, at := &list[i], fmt.Sprintf("%s[%d]", path, i)
		if e.Key == "" {
			return fmt.Errorf("%s.key: is empty", at)
		}
		if composite := e.Key + "_" + e.Value; seen[composite] {
			return fmt.Errorf("%s: repeats key %q and value %q", at, e.Key, e.Value)
		}
		seen[e.Key+"_"+e.Value] = true
		if e.Value == "" && strings.HasSuffix(e.Key, "*") {
			t.lost(at+".key", "a key that ends in * cannot be kept; the entry and those below it are left out")
			continue
		}
		if strings.Contains(strings.TrimSuffix(e.Value, "*"), "*") {
			t.lost(at+".value", "a * that is not at the end cannot be kept; the entry and those below it are left out")
			continue
		}
		not, reached := excluded(list, i)
		if !reached {
			t.lost(at, "is never reached: an entry before it takes all of its values; it is left out")
			continue
		}
		here := append(slices.Clip(above), step{e, not})
		if err := t.limited(here, at); err != nil {
			return err
		}
		if err := t.level(e.Descriptors, at+".descriptors", here); err != nil {
			return err
		}
	}
	return nil
}

// step is an entry on the way to a limit, and the values it excludes.
type step struct {
	*entry
	not []string
}

// excluded returns the values of entry i that other entries of the list take.
func excluded(list []entry, i int) (not []string, reached bool) {
	e := &list[i]
	start, open := strings.CutSuffix(e.Value, "*")
	if e.Value != "" && !open {
		return nil, true
	}
	for k := range list {
		o := &list[k]
		if k == i || o.Key != e.Key || o.Value == "" || strings.Contains(strings.TrimSuffix(o.Value, "*"), "*") {
			continue
		}
		other, alsoOpen := strings.CutSuffix(o.Value, "*")
		switch {
		case alsoOpen && open && k > i:
			continue // e comes first
		case alsoOpen && strings.HasPrefix(start, other) && (open || other == ""):
			return nil, false
		case strings.HasPrefix(other, start):
			not = append(not, o.Value)
		}
	}
	return not, true
}

// units are as long as the service counts them: by seconds since 1970.
var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
	"week": 7 * 24 * time.Hour, "month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
}

// limited appends the rule of an entry, if it has a limit.
func (t *translator) limited(path []step, at string) error {
	e := path[len(path)-1]
	t.metrics(e.entry, at)
	l := e.RateLimit
	if l == nil {
		return nil
	}
	at += ".rate_limit"
	if len(l.Replaces) > 0 {
		var names []string
		for _, r := range l.Replaces {
			names = append(names, r.Name)
		}
		t.lost(at+".replaces", "cannot be kept: a request that matches this limit and %s must pass both", strings.Join(names, ", "))
	}
	if l.Unlimited {
		if l.Unit != "" {
			return fmt.Errorf("%s.unit: must not be given with unlimited", at)
		}
		return nil // no rule counts it: the others exclude its values
	}
	unit, known := units[strings.ToLower(l.Unit)]
	if !known {
		return fmt.Errorf("%s.unit: must be second, minute, hour, day, week, month or year (got %q)", at, l.Unit)
	}
	times := int64(1)
	if l.UnitMultiplier != nil {
		times = *l.UnitMultiplier
	}
	if times < 1 || l.RequestsPerUnit < 0 || l.RequestsPerUnit > 1<<32-1 {
		return fmt.Errorf("%s: requests_per_unit must be 0 to 4294967295 and unit_multiplier at least 1 (got %d and %d)", at, l.RequestsPerUnit, times)
	}
	switch {
	case times > int64(limiter.MaxWindow/unit):
		t.lost(at+".unit", "%d %s is longer than a window may be, %s; the limit is left out", times, l.Unit, term.Duration(limiter.MaxWindow))
		return nil
	case l.RequestsPerUnit == 0:
		t.lost(at+".requests_per_unit", "0 cannot be kept: a limit is at least 1; the limit is left out, refuse such requests in Envoy's routes")
		return nil
	case l.RequestsPerUnit > limiter.MaxCount:
		t.lost(at+".requests_per_unit", "%d becomes %d, the most that can be counted", l.RequestsPerUnit, limiter.MaxCount)
	}
	if len(path) > 6 {
		t.lost(at, "is nested more than 6 deep; the limit is left out")
		return nil
	}
	r := rules.Rule{
		ID: t.id(path), Description: t.name(path), Domain: t.domain, Descriptors: nested(path), Key: t.key(path, at),
		Algorithm: limiter.FixedWindow.String(), Limit: min(l.RequestsPerUnit, limiter.MaxCount), Window: term.Duration(time.Duration(times) * unit),
		Overdraft: true, // the service adds every hit
	}
	if e.ShadowMode {
		r.Mode = rules.Shadow.String()
	}
	t.doc.Rules = append(t.doc.Rules, r)
	return nil
}

// metrics reports what only the service's statistics would show.
func (t *translator) metrics(e *entry, at string) {
	const where = "cannot be kept: metrics name rules (weir_decisions_total), never values"
	if e.DetailedMetric {
		t.lost(at+".detailed_metric", where)
	}
	if e.ValueToMetric {
		t.lost(at+".value_to_metric", where)
	}
	if e.QuotaMode {
		t.lost(at+".quota_mode", "cannot be kept: the limit is enforced; write mode: shadow to only count")
	}
	if e.ShadowMode && e.RateLimit == nil {
		t.lost(at+".shadow_mode", "has no effect without a rate_limit")
	}
}

// key counts by the whole descriptor, or omits entries with a shared threshold.
func (t *translator) key(path []step, at string) []string {
	shared := slices.ContainsFunc(path, func(s step) bool { return s.ShareThreshold && strings.HasSuffix(s.Value, "*") })
	if !shared {
		return []string{"descriptor"}
	}
	key, names := []string{}, map[string]bool{}
	for _, s := range path {
		if names[s.Key] {
			t.lost(at, "share_threshold cannot be kept where a descriptor has a key twice: each value has a count of its own")
			return []string{"descriptor"}
		}
		names[s.Key] = true
		if !s.ShareThreshold || !strings.HasSuffix(s.Value, "*") {
			key = append(key, "descriptor:"+s.Key)
		}
	}
	return key
}

func nested(path []step) []rules.Entry {
	s := path[0]
	e := rules.Entry{Key: s.Key, Value: s.Value, Not: s.not}
	if len(path) > 1 {
		e.Descriptors = nested(path[1:])
	}
	return []rules.Entry{e}
}

// name returns what the service calls a limit in its statistics.
func (t *translator) name(path []step) string {
	name := t.domain
	for _, s := range path {
		name += "." + s.Key
		if s.Value != "" {
			name += "_" + s.Value
		}
	}
	return name[:min(len(name), 1024)]
}

// id makes an id of the name, with a number if another limit has it.
func (t *translator) id(path []step) string {
	const longest = 60 // and a number
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.name(path)))
	clean = strings.Trim(clean[:min(len(clean), longest)], "-")
	id := clean
	for n := 2; t.ids[id] || id == ""; n++ {
		number := fmt.Sprintf("-%d", n)
		id = strings.TrimPrefix(clean[:min(len(clean), longest+4-len(number))]+number, "-")
	}
	t.ids[id] = true
	return id
}
