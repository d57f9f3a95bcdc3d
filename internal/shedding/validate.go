package shedding

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/shedder"
)

// faults collects a document's faults.
type faults struct{ list field.Errors }

func (f *faults) add(path, format string, args ...any) { f.list.Add(path, format, args...) }

// Check returns the semantic faults of the fields.
func (d *Document) Check() field.Errors {
	var f faults
	f.document(d)
	return f.list
}

func (f *faults) document(d *Document) {
	if n := len(d.Signals); n > maxSignals {
		f.add("signals", "has more than %d signals (got %d)", maxSignals, n)
	}
	f.user(d.User)
	f.classNames(d)
	low, high := time.Duration(d.RetryAfter.Min), time.Duration(d.RetryAfter.Max)
	if low < time.Second || low > longestRetry {
		f.add("retry_after.min", "must be between 1s and 1h (got %v)", d.RetryAfter.Min)
	}
	if high < low || high > longestRetry {
		f.add("retry_after.max", "must be between min, %v, and 1h (got %v)", d.RetryAfter.Min, d.RetryAfter.Max)
	}
	if n := len(d.Upstreams); n > maxUpstreams {
		f.add("upstreams", "has more than %d groups (got %d)", maxUpstreams, n)
	}
	if n := len(d.Candidates); n > maxCandidates {
		f.add("candidates", "has more than %d (got %d); each is evaluated for every request", maxCandidates, n)
	}
	if len(f.list) > 0 {
		return // groups and candidates would repeat the fault
	}
	f.complete("signals", d.Signals)
	for _, at := range []struct {
		path string
		list Overrides
	}{{"upstreams", d.Upstreams}, {"candidates", d.Candidates}} {
		for _, name := range slices.Sorted(maps.Keys(at.list)) {
			f.differs(field.Join(at.path, name), at.list[name], d)
		}
	}
	if len(f.list) > 0 {
		return
	}
	f.values(d)
}

func (f *faults) user(list []string) {
	if len(list) == 0 || len(list) > maxUser {
		f.add("user", "must name 1 to %d (got %d), as in [client_ip]", maxUser, len(list))
		return
	}
	_, err := rules.ParseKey(list)
	f.list.Take("user", err)
}

func (f *faults) classNames(d *Document) {
	seen := map[string]bool{}
	for i, c := range d.Classes {
		at := fmt.Sprintf("classes[%d]", i)
		switch {
		case !word(c.Name):
			f.add(at+".name", "must be 1 to 64 characters of a-z, 0-9, - and _ (got %s)", field.Shown(c.Name))
		case seen[c.Name]:
			f.add(at+".name", "%s is taken; choose another", c.Name)
		}
		seen[c.Name] = true
		f.conditions(at+".match", c.Match)
	}
	switch {
	case seen[d.DefaultClass]:
	case d.DefaultClass == defaultClass: // probably nobody wrote it
		f.add("default_class", "is %q if it is not set, and no class has that name; set it to the class of requests that match no other", defaultClass)
	default:
		f.add("default_class", "must be one of the classes%s (got %s)", field.Suggest(d.DefaultClass, d.names()...), field.Shown(d.DefaultClass))
	}
	if i := d.class(d.DefaultClass); i >= 0 && d.Classes[i].Match != nil {
		f.add(fmt.Sprintf("classes[%d].match", i), "is not allowed for %s, which gets every request that matches no other class; remove it", d.DefaultClass)
	}
	if _, err := d.Matcher(); err != nil && len(f.list) == 0 {
		f.add("classes", "%v", err)
	}
}

func (f *faults) conditions(path string, list Alternatives) {
	if n := len(list); n > maxConditions {
		f.add(path, "has more than %d conditions (got %d)", maxConditions, n)
		return
	}
	for i, c := range list {
		if c.Empty() {
			f.add(field.Index(path, i), "is empty and would match every request; use default_class for those")
		}
	}
	_, err := rules.NewMatcher(list)
	f.list.Take(path, err)
}

func (d *Document) names() []string {
	var names []string
	for _, c := range d.Classes {
		names = append(names, c.Name)
	}
	return names
}

// class returns a class's index, or -1.
func (d *Document) class(name string) int {
	return slices.IndexFunc(d.Classes, func(c Class) bool { return c.Name == name })
}

// complete requires both knees of a signal that no lower layer defines.
func (f *faults) complete(path string, given Signals, below ...Signals) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		k := given[name]
		for _, m := range below {
			if b, ok := m[name]; ok && !b.Off {
				k.Low, k.High = first(k.Low, b.Low), first(k.High, b.High)
			}
		}
		if k.Off || k.Low != nil && k.High != nil {
			continue
		}
		missing := "low"
		if k.Low != nil {
			missing = "high"
		}
		if len(below) > 0 && below[0][name].Off {
			f.add(field.Join(path, name)+"."+missing, "is required: signals.%s is off, so there is nothing to override", name)
			continue
		}
		known := slices.Sorted(maps.Keys(shedder.Defaults().Signals))
		f.add(field.Join(path, name)+"."+missing, "is required: there is no default for this signal%s", field.SuggestOr(name, known...))
	}
}

func first(a, b *Knee) *Knee {
	if a != nil {
		return a
	}
	return b
}

func (f *faults) differs(path string, o Override, d *Document) {
	f.complete(path+".signals", o.Signals, d.Signals)
	for _, name := range slices.Sorted(maps.Keys(o.MaxInFlight)) {
		if d.class(name) < 0 {
			f.add(path+".max_in_flight."+field.Name(name), "is not one of the classes%s", field.Suggest(name, d.names()...))
		}
	}
}

// values validates each group's settings by pkg/shedder. It reports a fault of the document
// itself only once.
func (f *faults) values(d *Document) {
	seen := map[string]bool{}
	judge := func(path string, s *settings) {
		for _, fault := range field.All(s.Validate()) {
			switch {
			case seen[fault.Error()]:
			case path == "":
				seen[fault.Error()] = true
				f.add(fault.Path, "%s", fault.Msg)
			default:
				f.add(field.Join(path, d.overridden(fault.Path)), "%s", fault.Msg)
			}
		}
	}
	judge("", d.live(""))
	for _, name := range slices.Sorted(maps.Keys(d.Upstreams)) {
		judge("upstreams."+name, d.live(name))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Candidates)) {
		for _, group := range append([]string{""}, slices.Sorted(maps.Keys(d.Upstreams))...) {
			s := d.live(group)
			s.apply(d.Candidates[name])
			before := len(f.list)
			judge("candidates."+name, s)
			if len(f.list) > before {
				break // one group is enough
			}
		}
	}
}

// overridden returns the name of a settings field in an override.
func (d *Document) overridden(path string) string {
	for i, c := range d.Classes {
		if path == fmt.Sprintf("classes[%d].max_in_flight", i) {
			return "max_in_flight." + c.Name
		}
	}
	return path
}
