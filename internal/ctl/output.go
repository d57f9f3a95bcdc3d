package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-isatty"
)

// isTerminal reports whether a person sits at the other end.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// usualColumns is the width of a terminal that does not tell.
const usualColumns = 80

// columns is how wide a terminal is.
func columns(stream any) int {
	if file, ok := stream.(*os.File); ok {
		if n := terminalColumns(file.Fd()); n > 0 {
			return n
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 20 {
		return n
	}
	return usualColumns
}

// reader is standard output for someone who may stop reading, as head does. That is
// no failure: the program goes on with what it does, and its exit status still tells.
type reader struct {
	w    io.Writer
	gone bool
}

// Write implements io.Writer.
func (r *reader) Write(p []byte) (int, error) {
	if r.gone {
		return len(p), nil
	}
	n, err := r.w.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		r.gone = true
		return len(p), nil
	}
	return n, err
}

// style paints text, or leaves it as it is.
type style struct{ on bool }

func (s style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bold(text string) string   { return s.paint("1", text) }
func (s style) red(text string) string    { return s.paint("31", text) }
func (s style) green(text string) string  { return s.paint("32", text) }
func (s style) yellow(text string) string { return s.paint("33", text) }

// verdict paints a yes green and a no red.
func (s style) verdict(good bool) string {
	if good {
		return s.green("yes")
	}
	return s.red("no")
}

// outStyle is the style of standard output, errStyle that of standard error.
func (p *program) outStyle() style { return style{p.colours() && p.outLive} }
func (p *program) errStyle() style { return style{p.colours() && p.live} }

// colours follows https://no-color.org.
func (p *program) colours() bool {
	return !p.noColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// wantsJSON reports whether standard output is for a program.
func (p *program) wantsJSON() bool { return p.format == "json" }

// writeJSON is the whole of standard output with -o json.
func (p *program) writeJSON(v any) error {
	var b bytes.Buffer
	if err := encode(&b, v, "  "); err != nil {
		return err
	}
	_, err := p.out.Write(b.Bytes())
	return err
}

// encode writes JSON without anything that a terminal would obey: the encoder leaves
// DEL and the C1 controls, which only strings can hold, as they are.
func encode(b *bytes.Buffer, v any, indent string) error {
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	for _, r := range text.String() {
		if r != '\n' && unicode.IsControl(r) {
			fmt.Fprintf(b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return nil
}

// show writes JSON, or what text makes for a person.
func (p *program) show(v any, text func(*bytes.Buffer, style)) error {
	if p.wantsJSON() {
		return p.writeJSON(v)
	}
	var b bytes.Buffer
	text(&b, p.outStyle())
	_, err := p.out.Write(b.Bytes())
	return err
}

// say tells the person something that is not the result.
func (p *program) say(format string, args ...any) {
	p.note("", format, args...)
}

// note puts a painted label before what is said.
func (p *program) note(label, format string, args ...any) {
	_, _ = io.WriteString(p.errOut, label+clean(fmt.Sprintf(format, args...))+"\n") // nowhere else to say it
}

func (p *program) warn(format string, args ...any) {
	p.note(p.errStyle().yellow("warning:")+" ", format, args...)
}

// table aligns columns. Cells may be painted.
type table struct {
	indent string
	rows   [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w *bytes.Buffer) {
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
		line := t.indent
		for i, cell := range row {
			line += cell
			if i < len(row)-1 {
				line += strings.Repeat(" ", widths[i]-width(cell)+2)
			}
		}
		w.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// width is how many columns a painted text takes.
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

// clip shortens an unpainted text to a number of columns.
func clip(text string, columns int) string {
	if utf8.RuneCountInString(text) <= columns {
		return text
	}
	return string([]rune(text)[:max(0, columns-1)]) + "…"
}

// clean takes out of a text what a terminal would obey. Everything that was not made
// here passes through it before a person sees it, and is painted afterwards.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, text)
}

// printable is clean for what must be one line, and look like what it is.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return '?'
		}
		return r
	}, clean(text))
}

// orDash stands in for a value that is not there.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return printable(text)
}

func orDashes(list []string) string { return orDash(strings.Join(list, ", ")) }

// stamp is a moment, the same for readers in all regions.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

// ago is how long a moment is past: 4s, 12m, 3h5m, 8d.
func ago(now, t time.Time) string {
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

// plural counts things: 1 rule, 2 rules.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// lines is a block of text that shows how things stand, in place on a terminal, and
// elsewhere as lines that are written when they change.
type lines struct {
	w     io.Writer
	live  bool
	width int
	shown []string
}

// update shows a new state of the block. It never has fewer lines than before.
func (l *lines) update(now []string) {
	var b strings.Builder
	if l.live && len(l.shown) > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", len(l.shown))
	}
	for i, line := range now {
		same := i < len(l.shown) && l.shown[i] == line
		switch {
		case l.live:
			// A line that wraps could not be found again.
			b.WriteString("\r\x1b[K" + clip(printable(line), l.width-1) + "\n")
		case !same && line != "":
			b.WriteString(printable(line) + "\n")
		}
	}
	l.shown = append([]string(nil), now...)
	_, _ = io.WriteString(l.w, b.String()) // progress is no result
}
