package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/weir-edge/weir/internal/ctl/term"
)

const (
	shownRules   = 20
	shownDetails = 5
	shownClients = 5
)

func (r *Report) WriteText(w io.Writer) error {
	b := &bytes.Buffer{}
	r.writeLog(b)
	r.writeOutcomes(b)
	r.writeChanges(b)
	r.writeRules(b)
	if len(r.Notes) > 0 {
		fmt.Fprintf(b, "\nnotes\n")
		for _, n := range r.Notes {
			fmt.Fprintf(b, "  - %s\n", n)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (r *Report) writeLog(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s from %s to %s (%s)\n", plural(r.Requests, "request"), r.From.Format(time.RFC3339), r.To.Format(time.RFC3339),
		term.Short(r.To.Sub(r.From).Round(time.Millisecond).String()))
	if r.Skipped == 0 {
		return
	}
	fmt.Fprintf(b, "%s skipped:\n", plural(r.Skipped, "line"))
	for _, s := range r.Skips[:min(len(r.Skips), shownDetails)] {
		fmt.Fprintf(b, "  line %d: %s\n", s.Line, s.Reason)
	}
	if more := r.Skipped - shownDetails; more > 0 {
		fmt.Fprintf(b, "  and %s more\n", count(more))
	}
}

func (r *Report) writeOutcomes(b *bytes.Buffer) {
	after, before := r.Candidate, r.Running
	t := term.Table{Right: []bool{false, true, true, true, true}}
	share := func(n int64) string { return percent(n, r.Requests) }
	if before == nil {
		t.Row("", after.Version, "")
		t.Row("passed", count(after.Passed), share(after.Passed))
		t.Row("limited (429)", count(after.Limited), share(after.Limited))
	} else {
		t.Row("", "running "+before.Version, "", "tested "+after.Version, "")
		t.Row("passed", count(before.Passed), share(before.Passed), count(after.Passed), share(after.Passed))
		t.Row("limited (429)", count(before.Limited), share(before.Limited), count(after.Limited), share(after.Limited))
	}
	bad := func(o *Outcome) int64 {
		if o == nil {
			return 0
		}
		return o.BadRequests
	}
	switch {
	case bad(after)+bad(before) == 0:
	case before == nil:
		t.Row("bad request (400)", count(bad(after)), share(bad(after)))
	default:
		t.Row("bad request (400)", count(bad(before)), share(bad(before)), count(bad(after)), share(bad(after)))
	}
	b.WriteByte('\n')
	t.Print(b)
	if x := after.FirstBadRequest; x != nil {
		fmt.Fprintf(b, "first bad request: %s: %s\n", x, x.Reason)
	}
}

func (r *Report) writeRules(b *bytes.Buffer) {
	list := r.compare()
	if len(list) == 0 {
		fmt.Fprintf(b, "\nno rules\n")
		return
	}
	t := term.Table{Right: []bool{false, false, true, true, true, true, true}}
	if r.Running == nil {
		t.Row("RULE", "MODE", "CHECKS", "LIMITED", "SHADOW", "CLIENTS")
	} else {
		t.Row("RULE", "MODE", "CHECKS", "WAS LIMITED", "LIMITED", "SHADOW", "CLIENTS")
	}
	for _, c := range list[:min(len(list), shownRules)] {
		mode, o := "removed", &RuleOutcome{}
		if c.after != nil {
			mode, o = c.after.Mode, c.after
		}
		cells := []string{c.id, mode, count(o.Checks)}
		if r.Running != nil {
			cells = append(cells, c.was())
		}
		t.Row(append(cells, count(o.Limited), count(o.ShadowLimited), count(o.Clients))...)
	}
	b.WriteByte('\n')
	t.Print(b)
	if more := len(list) - shownRules; more > 0 {
		var effect int64
		for _, c := range list[shownRules:] {
			effect += c.effect()
		}
		what := "which limited nothing"
		if effect > 0 {
			what = "each with less effect"
		}
		fmt.Fprintf(b, "and %s, %s\n", plural(int64(more), "more rule"), what)
	}
	shown := 0
	for _, c := range list {
		if c.after == nil || c.after.First == nil {
			continue
		}
		if shown++; shown > shownDetails {
			break
		}
		what := "limited"
		if c.after.Limited == 0 {
			what = "would limit"
		}
		writeGroup(b, c.id+" "+what, Group{c.after.Limited + c.after.ShadowLimited, c.after.Clients, c.after.Top, c.after.First}, c.after.Keys...)
	}
}

// was says what the running rule did.
func (c *compared) was() string {
	switch {
	case c.before == nil:
		return "new"
	case c.before.Mode == "off":
		return "off"
	case c.before.Mode == "shadow":
		return count(c.before.ShadowLimited) + " in shadow"
	}
	return count(c.before.Limited)
}

func (r *Report) writeChanges(b *bytes.Buffer) {
	c := r.Changes
	if c == nil {
		return
	}
	if c.NewlyLimited.Requests+c.NoLongerLimited.Requests == 0 {
		fmt.Fprintf(b, "\nno request of this log is decided differently\n")
		return
	}
	writeGroup(b, "newly limited", c.NewlyLimited)
	writeGroup(b, "no longer limited", c.NoLongerLimited)
}

// writeGroup says how many requests a group has, and whose.
func writeGroup(b *bytes.Buffer, title string, g Group, keys ...KeyCount) {
	if g.Requests == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s: %s of %s\n", title, plural(g.Requests, "request"), plural(g.Clients, "client"))
	t := term.Table{Indent: "  ", Right: []bool{false, true}}
	for _, c := range g.Top[:min(len(g.Top), shownClients)] {
		t.Row(c.Client, count(c.Requests))
	}
	for _, k := range keys[:min(len(keys), shownClients)] {
		t.Row(printable(k.Key), count(k.Requests))
	}
	t.Print(b)
	fmt.Fprintf(b, "  first: %s\n", g.First)
}

// String describes the request in a line.
func (x *Example) String() string {
	s := fmt.Sprintf("line %d, %s, %s %s %s", x.Line, x.Time.Format("15:04:05.999"), x.Client, printable(x.Method), printable(x.Host+x.Path))
	if x.Rule != "" {
		within := "at once"
		if x.Window != "" {
			within = "in " + term.Short(x.Window)
		}
		s += fmt.Sprintf(", by %s (%s %s)", x.Rule, count(x.Limit), within)
	}
	if x.RetryAfter != "" {
		s += ", retry after " + term.Short(x.RetryAfter)
	}
	return s
}

// printable quotes what a terminal would interpret, because it comes from clients.
func printable(s string) string {
	if q := strconv.QuoteToGraphic(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// count writes a number with commas: 1,234,567.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return count(n) + " " + what
}

func percent(n, of int64) string {
	return fmt.Sprintf("%.2f%%", 100*float64(n)/float64(cmp.Or(of, 1)))
}
