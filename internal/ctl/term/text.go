package term

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Style paints text, or leaves it as it is.
type Style struct{ On bool }

func (s Style) paint(code, text string) string {
	if !s.On || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s Style) Bold(text string) string   { return s.paint("1", text) }
func (s Style) Red(text string) string    { return s.paint("31", text) }
func (s Style) Green(text string) string  { return s.paint("32", text) }
func (s Style) Yellow(text string) string { return s.paint("33", text) }

// Verdict paints a yes green and a no red.
func (s Style) Verdict(good bool) string {
	if good {
		return s.Green("yes")
	}
	return s.Red("no")
}

// Table aligns columns. Cells may be painted.
type Table struct {
	Indent string
	Right  []bool // columns that are aligned at the right
	rows   [][]string
}

func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *Table) Print(w *bytes.Buffer) {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(cell))
		}
	}
	for _, row := range t.rows {
		line := t.Indent
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-width(cell))
			if i < len(t.Right) && t.Right[i] {
				line += pad + cell + "  "
			} else {
				line += cell + pad + "  "
			}
		}
		w.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// width returns how many columns a painted text takes.
func width(text string) int {
	n := 0
	for len(text) > 0 {
		if strings.HasPrefix(text, "\x1b[") {
			if end := strings.IndexByte(text, 'm'); end > 0 {
				text = text[end+1:]
				continue
			}
		}
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
		n++
	}
	return n
}

// Clip shortens an unpainted text to a number of columns.
func Clip(text string, columns int) string {
	if utf8.RuneCountInString(text) <= columns {
		return text
	}
	return string([]rune(text)[:max(0, columns-1)]) + "…"
}

// Clean removes from a text what a terminal would interpret. Everything from outside passes
// through it before it is shown, and is painted afterwards.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, text)
}

// Printable is Clean for text that must be one line, and shows hidden characters.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, Clean(text))
}

// Reason returns what follows a change for which there is a message.
func Reason(message string) string {
	if message == "" {
		return ""
	}
	return ": " + Printable(message)
}

// OrDash replaces a missing value by a dash.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return Printable(text)
}

// Indented indents the lines after the first.
func Indented(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }

// Distinct returns the different values of a list, in order of appearance.
func Distinct(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func OrDashes(list []string) string { return OrDash(strings.Join(list, ", ")) }

// Stamp formats a moment identically for readers in all regions.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// Ago formats how long ago a moment was: 4s, 12m, 3h5m, 8d.
func Ago(now, t time.Time) string {
	d := max(0, now.Sub(t)).Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// When formats a moment and how long ago it was.
func When(now, t time.Time) string { return fmt.Sprintf("%s (%s ago)", Stamp(t), Ago(now, t)) }

// Duration writes a duration without the zeros: 1m, not 1m0s.
func Duration(d time.Duration) string { return Short(d.String()) }

// Brief shortens a duration from an edge to milliseconds.
func Brief(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return Printable(text)
	}
	return Duration(d.Round(time.Millisecond))
}

// UntilRemoved formats the end of what lasts until it is removed, if it has none.
func UntilRemoved(t time.Time) string {
	if t.IsZero() {
		return "further notice"
	}
	return Stamp(t)
}

// Short drops the zeros at the end of a duration: 1h0m0s is 1h.
func Short(duration string) string {
	if s, ok := strings.CutSuffix(duration, "m0s"); ok {
		duration = s + "m"
	}
	if s, ok := strings.CutSuffix(duration, "h0m"); ok {
		duration = s + "h"
	}
	return duration
}

// Plural counts things: 1 rule, 2 rules.
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Percent formats a share.
func Percent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }
