package kinds

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Difference is what changes from one rule document to another, by meaning: a default that
// is written out, or a list in another order, is not a change.
type Difference struct {
	Added     []ruleSummary `json:"added"`
	Removed   []ruleSummary `json:"removed"`
	Changed   []ruleChange  `json:"changed"`
	Unchanged int           `json:"unchanged"`
	// First says that nothing is active yet that could differ.
	First bool `json:"first,omitempty"`
	// Reordered rules decide as before; answers and logs follow the new order.
	Reordered bool `json:"reordered"`
}

// ruleSummary describes a whole rule in one line.
type ruleSummary struct {
	Rule    string `json:"rule"`
	Summary string `json:"summary"`
}

// ruleChange is a rule that stays, with other fields.
type ruleChange struct {
	Rule   string        `json:"rule"`
	Fields []fieldChange `json:"fields"`
	// Recount says that the rule gets new counters, so that nothing counts as spent.
	Recount bool `json:"counts_start_anew"`
}

// Comparer is the content of a document of any kind.
type Comparer interface {
	// compare returns what changes when this replaces running, which may be nil.
	Compare(running any) Changes
}

// Changes are the difference between two documents of a kind.
type Changes interface {
	// write shows at most that many of them; 0 means all.
	Write(b *bytes.Buffer, s term.Style, most int)
}

func (d *Difference) empty() bool {
	return len(d.Added)+len(d.Removed)+len(d.Changed) == 0
}

func (d *Difference) Write(b *bytes.Buffer, s term.Style, most int) {
	if d.First && d.empty() {
		b.WriteString("  no rules: every request passes\n")
		return
	}
	if d.empty() && !d.Reordered {
		b.WriteString("  the text differs, but no rule does\n")
		return
	}
	t := term.Table{Indent: "  "}
	shown := 0
	fits := func() bool { shown++; return most == 0 || shown <= most }
	for _, r := range d.Removed {
		if fits() {
			t.Row(s.Red("- "+term.Printable(r.Rule)), s.Red(term.Printable(r.Summary)))
		}
	}
	for _, r := range d.Added {
		if fits() {
			t.Row(s.Green("+ "+term.Printable(r.Rule)), s.Green(term.Printable(r.Summary)))
		}
	}
	for _, r := range d.Changed {
		if !fits() {
			continue
		}
		name := s.Yellow("~ " + term.Printable(r.Rule))
		for _, f := range r.Fields {
			t.Row(name, term.Printable(f.Field)+": "+s.Red(term.Printable(f.Old))+" → "+s.Green(term.Printable(f.New)))
			name = ""
		}
		if r.Recount {
			t.Row("", "its counts start over")
		}
	}
	t.Print(b)
	if more := shown - most; most > 0 && more > 0 {
		fmt.Fprintf(b, "  … and %s; regionctl rules diff shows all\n", term.Plural(more, "more rule"))
	}
	if d.Reordered {
		b.WriteString("  the order of the rules differs, which changes no decision\n")
	}
	fmt.Fprintf(b, "  %d added, %d removed, %d changed, %d unchanged\n", len(d.Added), len(d.Removed), len(d.Changed), d.Unchanged)
}

func (b *RuleBook) Compare(running any) Changes {
	before, _ := running.(*RuleBook)
	return compare(before, b)
}

// compare returns what changes when next replaces running, which may be nil.
func compare(running, next *RuleBook) *Difference {
	d := &Difference{Added: []ruleSummary{}, Removed: []ruleSummary{}, Changed: []ruleChange{}}
	if running == nil {
		d.First = true
		running = &RuleBook{Set: &rules.Set{}}
	}
	var before, after []string // the rules in both, in either order
	for _, old := range running.Set.Rules() {
		if _, stays := next.Set.Rule(old.ID); stays {
			before = append(before, old.ID)
		} else {
			d.Removed = append(d.Removed, running.summary(old))
		}
	}
	for _, c := range next.Set.Rules() {
		old, known := running.Set.Rule(c.ID)
		if !known {
			d.Added = append(d.Added, next.summary(c))
			continue
		}
		after = append(after, c.ID)
		fields := changedFields(running.fields(old), next.fields(c))
		if len(fields) == 0 {
			d.Unchanged++
			continue
		}
		d.Changed = append(d.Changed, ruleChange{c.ID, fields, old.Limit.Tag() != c.Limit.Tag() || keyOf(old) != keyOf(c)})
	}
	d.Reordered = !slices.Equal(before, after)
	return d
}

// fields returns what a rule says, with defaults filled in, in the order of the reference.
func (b *RuleBook) fields(c *rules.Compiled) []FieldValue {
	list := b.ownFields(c)
	if c.Experiment == nil {
		return list
	}
	words := []string{fmt.Sprintf("share %v", c.Experiment.Share)}
	if c.Experiment.Name != "" {
		words = append(words, "name "+c.Experiment.Name)
	}
	for _, f := range changedFields(list, b.ownFields(c.Experiment.Variant)) {
		words = append(words, f.Field+" "+f.New)
	}
	return append(list, FieldValue{"experiment", strings.Join(words, ", ")})
}

// ownFields returns the fields of a rule without its experiment.
func (b *RuleBook) ownFields(c *rules.Compiled) []FieldValue {
	match := b.Written[c.Index].Match
	var list []FieldValue
	add := func(name, value string) {
		if value != "" {
			list = append(list, FieldValue{name, value})
		}
	}
	add("description", c.Description)
	conditions := func(at string, c *rules.Conditions) {
		add(at+".hosts", anyOf(c.Hosts, strings.ToLower))
		add(at+".paths", anyOf(c.Paths, strings.Clone))
		add(at+".methods", anyOf(c.Methods, strings.Clone))
		add(at+".clients", anyOf(c.Clients, network))
		headers := map[string]string{}
		for name, value := range c.Headers {
			headers[textproto.CanonicalMIMEHeaderKey(name)] = value
		}
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			add(at+".headers."+name, strconv.Quote(headers[name]))
		}
	}
	conditions("match", &match.Conditions)
	if match.Not != nil {
		conditions("match.not", match.Not)
	}
	add("domain", c.Domain)
	if c.Domain != "" {
		add("descriptors", formsOf(b.Written[c.Index].Descriptors))
	}
	if c.MaxOverride > 0 {
		add("max_override", strconv.FormatInt(c.MaxOverride, 10))
	}
	l := c.Limit
	if l.Overdraft {
		add("overdraft", "true")
	}
	add("key", keyOf(c))
	add("algorithm", l.Algorithm.String())
	if l.Algorithm == limiter.RollingWindow {
		add("storage", l.Storage.String())
	}
	add("limit", strconv.FormatInt(l.Limit, 10))
	add("window", term.Duration(l.Window))
	if l.Algorithm.IsBucket() {
		add("burst", strconv.FormatInt(l.Burst, 10))
	}
	if l.MinInterval > 0 {
		add("min_interval", term.Duration(l.MinInterval))
	}
	if c.CostHeader != "" {
		add("cost", "header:"+c.CostHeader)
	} else {
		add("cost", strconv.FormatInt(c.Cost, 10))
	}
	add("count_denied", strconv.FormatBool(l.CountDenied))
	for _, tier := range slices.Sorted(maps.Keys(c.Tiers)) {
		size := "unlimited"
		if t := c.Tiers[tier]; t != nil {
			size = strconv.FormatInt(t.Limit, 10)
		}
		add("tiers."+tier, size)
	}
	if u := c.UnderLoad; u != nil {
		add("under_load", fmt.Sprintf("from %v, share %v", u.From, u.Share))
	}
	add("missing", map[bool]string{false: "skip", true: "limit"}[c.CountMissing])
	add("mode", c.Mode.String())
	add("on_store_failure", l.OnFailure.String())
	if word := l.Consistency(); word != "strict" {
		add("consistency", word)
	}
	if g := l.Global; g != nil {
		add("scope", "global")
		if g.Escrow {
			add("global.mode", "escrow")
		} else {
			add("global.on_partition", g.OnPartition.String())
			add("global.partition_after", term.Duration(g.PartitionAfter))
		}
	}
	return list
}

// summary describes an added or removed rule.
func (b *RuleBook) summary(c *rules.Compiled) ruleSummary {
	l, match := c.Limit, b.Written[c.Index].Match
	words := []string{strconv.FormatInt(l.Limit, 10) + " in " + term.Duration(l.Window)}
	if l.Algorithm == limiter.Concurrency {
		words = []string{strconv.FormatInt(l.Limit, 10) + " at once"}
	}
	if key := keyOf(c); key == "[]" {
		words = append(words, "for all together")
	} else {
		words = append(words, "by "+strings.Trim(key, "[]"))
	}
	if where := whereOf(&match.Conditions, mostNamed); where != "" {
		words = append(words, "on "+where)
	}
	if c.Domain != "" {
		words = append(words, "on "+c.Domain+" "+formsOf(b.Written[c.Index].Descriptors))
	}
	if match.Not != nil {
		words = append(words, "but not on "+whereOf(match.Not, mostNamed))
	}
	words = append(words, "("+l.Algorithm.String()+")")
	if c.Mode != rules.Enforce {
		words = append(words, "mode "+c.Mode.String())
	}
	if c.Experiment != nil {
		words = append(words, fmt.Sprintf("with an experiment on %v of its keys", c.Experiment.Share))
	}
	return ruleSummary{c.ID, strings.Join(words, " ")}
}

// mostNamed is how many alternatives of a condition a summary names.
const mostNamed = 3

// whereOf formats conditions, with at most that many alternatives of each.
func whereOf(c *rules.Conditions, most int) string {
	var where []string
	for _, list := range [][]string{c.Methods, c.Hosts, c.Paths, c.Clients} {
		if len(list) > most {
			list = append(slices.Clone(list[:most]), "…")
		}
		if len(list) > 0 {
			where = append(where, strings.Join(list, "|"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		where = append(where, name+": "+c.Headers[name])
	}
	return strings.Join(where, " ")
}

func keyOf(c *rules.Compiled) string {
	return "[" + strings.Join(fleet.Map(c.Key, rules.KeyPart.String), ", ") + "]"
}

// anyOf formats a list of alternatives, whose order means nothing.
func anyOf(list []string, canonical func(string) string) string {
	if len(list) == 0 {
		return ""
	}
	out := fleet.Map(list, canonical)
	slices.Sort(out)
	return "[" + strings.Join(out, ", ") + "]"
}

func network(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked().String()
	}
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()).String()
	}
	return text
}

// formsOf writes descriptors in the order of their text, which means nothing.
func formsOf(list []rules.Entry) string {
	forms := make([]string, len(list))
	for i, e := range list {
		forms[i] = e.Key
		if e.Value != "" {
			forms[i] += "=" + e.Value
		}
		if e.Not != nil {
			forms[i] += " not " + anyOf(e.Not, strings.Clone)
		}
		if e.Descriptors != nil {
			forms[i] += " > " + formsOf(e.Descriptors)
		}
	}
	slices.Sort(forms)
	if len(forms) == 1 {
		return forms[0]
	}
	return "(" + strings.Join(forms, " | ") + ")"
}
