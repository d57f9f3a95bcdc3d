package shedding

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/shedder"
)

// Parse reads a YAML or JSON document of at most MaxBytes. What it leaves out is as in
// Defaults. The error joins every fault, each a *shedder.FieldError that names the
// field by its path and says what to do.
func Parse(data []byte) (*Document, error) { return ParseBeside(data, nil) }

// ParseBeside is Parse where other fields, all words, may stand beside those of the
// document: in the configuration of an edge they do.
func ParseBeside(data []byte, others map[string]*string) (*Document, error) {
	root, err := read(data)
	if err != nil {
		return nil, &shedder.FieldError{Field: "document", Msg: err.Error()}
	}
	d, err := decode(root, others)
	if err != nil {
		return nil, err
	}
	d.Version = region.NewPointer(data, "", time.Time{}).Version
	return d, nil
}

func decode(root *yaml.Node, others map[string]*string) (*Document, error) {
	d := Defaults()
	var f faults
	f.document(root, d, others)
	if len(f.list) == 0 { // values that could not be read would be complained about twice
		f.validate(d)
	}
	if err := f.joined(); err != nil {
		return nil, err
	}
	return d, nil
}

// maxFaults is how many are worth reading.
const maxFaults = 100

// faults collects what is wrong, each with its path.
type faults struct{ list []error }

func (f *faults) add(path, format string, args ...any) {
	if len(f.list) < maxFaults {
		f.list = append(f.list, &shedder.FieldError{Field: path, Msg: fmt.Sprintf(format, args...)})
	}
}

func (f *faults) joined() error { return errors.Join(f.list...) }

// reads is what reads the value of a field.
type reads func(path string, n *yaml.Node)

type field struct {
	name string
	read reads
}

func (f *faults) document(root *yaml.Node, d *Document, others map[string]*string) {
	known := []field{
		{"enabled", f.boolean(&d.Enabled)},
		{"law", f.text(&d.Law)},
		{"start", f.number(&d.Start)},
		{"target", f.number(&d.Target)},
		{"patience", f.duration(&d.Patience)},
		{"rotate", f.duration(&d.Rotate)},
		{"user", f.texts(&d.User)},
		{"retry_after", func(path string, n *yaml.Node) {
			f.fields(path, n, []field{{"min", f.duration(&d.RetryAfter.Min)}, {"max", f.duration(&d.RetryAfter.Max)}})
		}},
		{"reason_header", f.boolean(&d.ReasonHeader)},
		{"signals", f.signals(d.Signals)},
		{"classes", func(path string, n *yaml.Node) { d.Classes = f.classes(path, n) }},
		{"default_class", f.text(&d.DefaultClass)},
		{"upstreams", f.overrides(&d.Upstreams)},
		{"candidates", f.overrides(&d.Candidates)},
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		known = append(known, field{name, f.text(others[name])})
	}
	f.fields("", root, known)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// described says what a value is, for a message.
func described(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Tag == "!!null":
		return "nothing"
	case n.Tag == "!!str":
		return shown(n.Value)
	}
	return n.Value
}

func shown(s string) string {
	const longest = 64
	if len(s) > longest {
		return strconv.Quote(strings.ToValidUTF8(s[:longest], "")) + "…"
	}
	return strconv.Quote(s)
}

// named keeps a name that stands in a path from being taken for part of it.
func named(name string) string {
	if word(name) {
		return name
	}
	return shown(name)
}

// word reports whether a name can be a label: of a signal, class, group or candidate.
func word(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// each reads a map, in order. A name that stands twice is read once.
func (f *faults) each(path string, n *yaml.Node, read func(name, at string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		f.add(cmp.Or(path, "document"), "must be a map of fields (got %s)", described(n))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		at := join(path, named(name))
		if seen[name] {
			f.add(at, "is written twice; keep one")
			continue
		}
		seen[name] = true
		read(name, at, n.Content[i+1])
	}
}

// fields reads a map whose names are known.
func (f *faults) fields(path string, n *yaml.Node, known []field) {
	f.each(path, n, func(name, at string, value *yaml.Node) {
		names := make([]string, len(known))
		for i, k := range known {
			names[i] = k.name
			if k.name != name {
				continue
			}
			if value.Tag == "!!null" {
				f.add(at, "has no value; give one, or remove the field")
				return
			}
			k.read(at, value)
			return
		}
		hint := rules.Suggest(name, names...)
		if hint == "" {
			hint = "; use " + strings.Join(names, ", ")
		}
		f.add(at, "unknown field%s", hint)
	})
}

func (f *faults) boolean(to *bool) reads {
	return func(path string, n *yaml.Node) {
		if n.Tag != "!!bool" {
			f.add(path, "must be true or false (got %s)", described(n))
			return
		}
		*to = strings.EqualFold(n.Value, "true")
	}
}

func (f *faults) text(to *string) reads {
	return func(path string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value == "" {
			f.add(path, "must be a word (got %s)", described(n))
			return
		}
		*to = n.Value
	}
}

func (f *faults) texts(to *[]string) reads {
	return func(path string, n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			f.add(path, "must be a list (got %s); put brackets around it", described(n))
			return
		}
		*to = make([]string, len(n.Content))
		for i, item := range n.Content {
			f.text(&(*to)[i])(fmt.Sprintf("%s[%d]", path, i), item)
		}
	}
}

// decimal returns the value of a number in plain notation, as in JSON: 010 or 1_000
// would be another number to another reader.
func decimal(n *yaml.Node) (float64, bool) {
	if n.Tag != "!!int" && n.Tag != "!!float" || !json.Valid([]byte(n.Value)) {
		return 0, false
	}
	v, err := strconv.ParseFloat(n.Value, 64)
	return v, err == nil
}

func (f *faults) number(to *float64) reads {
	return func(path string, n *yaml.Node) {
		v, ok := decimal(n)
		if !ok {
			f.add(path, "must be a number such as 0.8 (got %s)", described(n))
			return
		}
		*to = v
	}
}

func (f *faults) count(to *int64) reads {
	return func(path string, n *yaml.Node) {
		v, ok := decimal(n)
		if !ok || v != math.Trunc(v) || math.Abs(v) > 1e15 {
			f.add(path, "must be a whole number (got %s)", described(n))
			return
		}
		*to = int64(v)
	}
}

func (f *faults) duration(to *Duration) reads {
	return func(path string, n *yaml.Node) {
		v, err := time.ParseDuration(n.Value)
		switch {
		case n.Tag == "!!int" || n.Tag == "!!float":
			f.add(path, "must be a duration with a unit (got %s); write %ss for seconds", n.Value, n.Value)
		case n.Kind != yaml.ScalarNode || err != nil:
			f.add(path, "must be a duration such as 250ms, 10s or 1m30s (got %s)", described(n))
		default:
			*to = Duration(v)
		}
	}
}

// signals reads knees, and leaves those that are not named as they are.
func (f *faults) signals(to map[string]Knees) reads {
	return func(path string, n *yaml.Node) {
		f.each(path, n, func(name, at string, value *yaml.Node) {
			switch {
			case !word(name) || strings.Contains(name, "-"):
				f.add(at, "must be named by 1 to 64 characters of a-z, 0-9 and _")
			case value.Tag == "!!null" || value.Tag == "!!str" && value.Value == off:
				to[name] = Knees{Off: true}
			case value.Kind != yaml.MappingNode:
				f.add(at, "must be {low: …, high: …}, or off (got %s)", described(value))
			default:
				k := to[name]
				k.Off = false
				f.fields(at, value, []field{{"low", f.knee(name, &k.Low)}, {"high", f.knee(name, &k.High)}})
				to[name] = k
			}
		})
		if len(to) > maxSignals {
			f.add(path, "has more than %d signals (got %d)", maxSignals, len(to))
		}
	}
}

func (f *faults) knee(signal string, to **Knee) reads {
	return func(path string, n *yaml.Node) {
		_, measured := shedder.Defaults().Signals[signal]
		if timed[signal] || !measured && n.Tag == "!!str" {
			var d Duration
			f.duration(&d)(path, n)
			*to = &Knee{time.Duration(d).Seconds(), true}
			return
		}
		*to = &Knee{}
		f.number(&(*to).Value)(path, n)
	}
}

func (f *faults) classes(path string, n *yaml.Node) []Class {
	if n.Kind != yaml.SequenceNode {
		f.add(path, "must be a list, from first kept to first shed (got %s)", described(n))
		return nil
	}
	if len(n.Content) > shedder.MaxClasses {
		f.add(path, "must be 1 to %d (got %d)", shedder.MaxClasses, len(n.Content))
		return nil
	}
	list := make([]Class, len(n.Content))
	for i, item := range n.Content {
		c := &list[i]
		f.fields(fmt.Sprintf("%s[%d]", path, i), item, []field{
			{"name", f.text(&c.Name)},
			{"max_in_flight", f.count(&c.MaxInFlight)},
			{"match", func(path string, n *yaml.Node) { c.Match = f.conditions(path, n) }},
		})
	}
	return list
}

func (f *faults) conditions(path string, n *yaml.Node) []rules.Conditions {
	if n.Kind != yaml.SequenceNode {
		f.add(path, "must be a list of conditions, of which any suffices (got %s); put brackets around it", described(n))
		return nil
	}
	if len(n.Content) > maxConditions {
		f.add(path, "has more than %d conditions (got %d)", maxConditions, len(n.Content))
		return nil
	}
	if len(n.Content) == 0 {
		return nil
	}
	list := make([]rules.Conditions, len(n.Content))
	for i, item := range n.Content {
		c, at := &list[i], fmt.Sprintf("%s[%d]", path, i)
		f.fields(at, item, []field{
			{"hosts", f.texts(&c.Hosts)},
			{"paths", f.texts(&c.Paths)},
			{"methods", f.texts(&c.Methods)},
			{"clients", f.texts(&c.Clients)},
			{"headers", func(path string, n *yaml.Node) {
				c.Headers = map[string]string{}
				f.each(path, n, func(name, at string, value *yaml.Node) {
					var text string
					f.text(&text)(at, value)
					c.Headers[name] = text
				})
			}},
		})
		if item.Kind == yaml.MappingNode && len(item.Content) == 0 {
			f.add(at, "is empty and would match every request; default_class is for those")
		}
	}
	return list
}

func (f *faults) overrides(to *map[string]Override) reads {
	return func(path string, n *yaml.Node) {
		*to = map[string]Override{}
		f.each(path, n, func(name, at string, value *yaml.Node) {
			if !word(name) || strings.Contains(name, "_") {
				f.add(at, "must be named by 1 to 64 characters of a-z, 0-9 and -")
				return
			}
			(*to)[name] = f.override(at, value)
		})
		if len(*to) == 0 { // as if it were not there, which is how it is written again
			*to = nil
		}
	}
}

func (f *faults) override(path string, n *yaml.Node) (o Override) {
	f.fields(path, n, []field{
		{"law", func(path string, n *yaml.Node) { o.Law = new(string); f.text(o.Law)(path, n) }},
		{"start", func(path string, n *yaml.Node) { o.Start = new(float64); f.number(o.Start)(path, n) }},
		{"target", func(path string, n *yaml.Node) { o.Target = new(float64); f.number(o.Target)(path, n) }},
		{"patience", func(path string, n *yaml.Node) { o.Patience = new(Duration); f.duration(o.Patience)(path, n) }},
		{"signals", func(path string, n *yaml.Node) {
			o.Signals = map[string]Knees{}
			if f.signals(o.Signals)(path, n); len(o.Signals) == 0 {
				o.Signals = nil
			}
		}},
		{"max_in_flight", func(path string, n *yaml.Node) {
			o.MaxInFlight = map[string]int64{}
			f.each(path, n, func(name, at string, value *yaml.Node) {
				var limit int64
				f.count(&limit)(at, value)
				o.MaxInFlight[name] = limit
			})
			if len(o.MaxInFlight) == 0 {
				o.MaxInFlight = nil
			}
		}},
	})
	return o
}
