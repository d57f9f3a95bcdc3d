package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Parse reads a YAML or JSON document of at most MaxBytes. It is strict about
// the form: unknown and duplicate fields, wrong types, several documents and an
// empty one are refused. What the values mean is checked by Compile. The error
// is Errors and holds every problem.
func Parse(data []byte) (*Document, error) {
	var p problems
	doc := parse(data, &p, noRest)
	if errs := p.errors(); errs != nil {
		return nil, errs
	}
	return doc, nil
}

// parse returns what could be read, so that Load can go on to find the problems
// of the rest; it returns nil if nothing could.
func parse(data []byte, p *problems, rest func()) *Document {
	root, err := read(data, rest)
	if err != nil {
		p.add(-1, "", "%v", err)
		return nil
	}
	return decode(root, p, rest)
}

func decode(root tree, p *problems, rest func()) *Document {
	if root.kind == nullKind {
		p.add(-1, "", "%v", errEmpty)
		return nil
	}
	d := decoder{p: p, rule: -1}
	var list *tree
	d.fields("", root, []field{{"rules", func(_ string, t tree) { list = &t }}})
	switch {
	case root.kind != mapKind:
		return nil
	case list == nil && len(p.list) > 0:
		return nil // misspelt, most likely: saying that it is absent would repeat it
	case list == nil:
		p.add(-1, "rules", "is required; write rules: [] for no rules")
		return nil
	case list.kind != listKind:
		p.add(-1, "rules", "must be a list (got %s); write rules: [] for no rules", list)
		return nil
	}
	doc := &Document{Rules: make([]Rule, len(list.items))}
	var r Rule
	known := d.ruleFields(&r)
	for i, item := range list.items {
		rest()
		d.rule, r = i, Rule{}
		d.fields("", item, known)
		if item.kind == mapKind && !slices.Contains(item.names, "limit") {
			p.add(i, "limit", "is required; write how many requests may pass in a window")
		}
		doc.Rules[i] = r
	}
	return doc
}

// decoder reads fields, of one rule at a time, and reports what does not fit.
type decoder struct {
	p    *problems
	rule int
}

type field struct {
	name string
	read func(path string, t tree)
}

// ruleFields returns what reads the fields of rules, one after the other, into r.
func (d *decoder) ruleFields(r *Rule) []field {
	c := &r.Match
	match := []field{
		{"hosts", d.list(&c.Hosts)},
		{"paths", d.list(&c.Paths)},
		{"methods", d.list(&c.Methods)},
		{"clients", d.list(&c.Clients)},
		{"headers", d.table(&c.Headers, d.text)},
	}
	return []field{
		{"id", d.text(&r.ID)},
		{"description", d.text(&r.Description)},
		{"match", func(path string, t tree) { d.fields(path, t, match) }},
		{"key", d.list(&r.Key)},
		{"algorithm", d.text(&r.Algorithm)},
		{"storage", d.text(&r.Storage)},
		{"limit", d.integer(&r.Limit)},
		{"window", d.duration(&r.Window)},
		{"burst", func(path string, t tree) { r.Burst = new(int64); d.integer(r.Burst)(path, t) }},
		{"min_interval", d.duration(&r.MinInterval)},
		{"cost", d.numberOrText(&r.Cost)},
		{"count_denied", d.boolean(&r.CountDenied)},
		{"tiers", d.table(&r.Tiers, d.numberOrText)},
		{"missing", d.text(&r.Missing)},
		{"mode", d.text(&r.Mode)},
		{"on_store_failure", d.text(&r.OnStoreFailure)},
	}
}

// String describes a value for an error message.
func (t *tree) String() string {
	switch t.kind {
	case boolKind, numberKind:
		return t.text
	case stringKind:
		return shown(t.text)
	}
	return t.kind.String()
}

// shown quotes a value for a message, shortened.
func shown(s string) string {
	if len(s) > maxName {
		return fmt.Sprintf("%q…", strings.ToValidUTF8(s[:maxName], ""))
	}
	return strconv.Quote(s)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// fields reads a map whose names are known.
func (d *decoder) fields(path string, t tree, known []field) {
	if t.kind != mapKind {
		d.p.add(d.rule, path, "must be a map of fields (got %s)", &t)
		return
	}
	seen := make([]bool, len(known))
next:
	for i, name := range t.names {
		for k := range known {
			if known[k].name != name {
				continue
			}
			if seen[k] {
				d.p.add(d.rule, join(path, name), "is written twice; keep one")
				continue next
			}
			seen[k] = true
			if t.items[i].kind == nullKind {
				remedy := "remove the field"
				if d.rule < 0 {
					remedy = "write rules: [] for no rules"
				}
				d.p.add(d.rule, join(path, name), "has no value; give one, or %s", remedy)
				continue next
			}
			known[k].read(join(path, name), t.items[i])
			continue next
		}
		names := make([]string, len(known))
		for k := range known {
			names[k] = known[k].name
		}
		hint := suggest(name, names...)
		if hint == "" {
			hint = "; use " + oneOf(names)
		}
		d.p.add(d.rule, join(path, printable(name)), "unknown field%s", hint)
	}
}

// printable keeps a name that stands in a path from being taken for part of it.
func printable(name string) string {
	if !isToken(name) {
		return shown(name)
	}
	return name
}

func (d *decoder) text(to *string) func(string, tree) {
	return func(path string, t tree) {
		switch {
		case t.kind == numberKind || t.kind == boolKind:
			d.p.add(d.rule, path, "must be a string (got %s); put it in quotes", &t)
		case t.kind != stringKind:
			d.p.add(d.rule, path, "must be a string (got %s)", &t)
		case t.text == "":
			d.p.add(d.rule, path, "must not be empty; give a value, or remove it")
		default:
			*to = t.text
		}
	}
}

func (d *decoder) duration(to *string) func(string, tree) {
	text := d.text(to)
	return func(path string, t tree) {
		if t.kind == numberKind {
			d.p.add(d.rule, path, "must be a duration with a unit (got %s); write %ss for seconds", &t, t.text)
			return
		}
		text(path, t)
	}
}

func (d *decoder) numberOrText(to *string) func(string, tree) {
	return func(path string, t tree) {
		if t.kind != numberKind {
			d.text(to)(path, t)
			return
		}
		var n int64
		before := len(d.p.list)
		if d.integer(&n)(path, t); len(d.p.list) == before {
			*to = t.text
		}
	}
}

func (d *decoder) boolean(to *bool) func(string, tree) {
	return func(path string, t tree) {
		if t.kind != boolKind {
			d.p.add(d.rule, path, "must be true or false (got %s)", &t)
			return
		}
		*to = strings.EqualFold(t.text, "true")
	}
}

func (d *decoder) integer(to *int64) func(string, tree) {
	return func(path string, t tree) {
		digits := strings.TrimPrefix(t.text, "-")
		decimal := digits != "" && strings.Trim(digits, "0123456789") == ""
		switch {
		case decimal && len(digits) > 18: // YAML takes such a number for a string
			d.p.add(d.rule, path, "is too large (got %s)", t.text)
			return
		case t.kind == stringKind && decimal:
			d.p.add(d.rule, path, "must be a whole number (got %s); remove the quotes", &t)
			return
		case t.kind != numberKind:
			d.p.add(d.rule, path, "must be a whole number (got %s)", &t)
			return
		case !decimal || len(digits) > 1 && digits[0] == '0':
			// 0100 would be 64 to some readers of YAML, and 100 to others
			d.p.add(d.rule, path, "must be a whole number in plain decimal digits (got %s)", &t)
			return
		}
		*to, _ = strconv.ParseInt(t.text, 10, 64) // at most 18 digits
	}
}

func (d *decoder) list(to *[]string) func(string, tree) {
	return func(path string, t tree) {
		if t.kind != listKind {
			d.p.add(d.rule, path, "must be a list (got %s); put brackets around it", &t)
			return
		}
		*to = make([]string, len(t.items))
		for i, item := range t.items {
			if item.kind == stringKind && item.text != "" {
				(*to)[i] = item.text
				continue
			}
			d.text(&(*to)[i])(path+"["+strconv.Itoa(i)+"]", item)
		}
	}
}

// table reads a map whose names are free.
func (d *decoder) table(to *map[string]string, value func(*string) func(string, tree)) func(string, tree) {
	return func(path string, t tree) {
		if t.kind != mapKind {
			d.p.add(d.rule, path, "must be a map (got %s)", &t)
			return
		}
		*to = make(map[string]string, len(t.items))
		for i, item := range t.items {
			at := join(path, printable(t.names[i]))
			if _, twice := (*to)[t.names[i]]; twice {
				d.p.add(d.rule, at, "is written twice; keep one")
				continue
			}
			var v string
			value(&v)(at, item)
			(*to)[t.names[i]] = v
		}
	}
}
