// Package term is how a command talks to the person or program that runs it: output as text
// or JSON, exit statuses, questions and progress. It is independent of regions and rules.
package term

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/mattn/go-isatty"

	"github.com/weir-edge/weir/internal/plainjson"
)

// Terminal is where a command reads and writes: its three streams, and what is known about
// the user.
type Terminal struct {
	In      io.Reader
	Out     io.Writer
	ErrOut  io.Writer
	OutLive bool // standard output is a terminal
	Live    bool // standard error is one: progress is drawn in place
	Asks    bool // standard input is also a terminal: a user can be asked
	// Confirmed: the user has confirmed already, wherever this would ask.
	Confirmed bool
	width     int // of the terminal
	Format    string
	NoColor   bool
}

// New treats no stream as a terminal.
func New(in io.Reader, out, errOut io.Writer) *Terminal {
	return &Terminal{In: in, Out: &pipe{w: out}, ErrOut: errOut, width: usualColumns}
}

// Open finds out which streams are terminals.
func Open(in io.Reader, out, errOut io.Writer) *Terminal {
	t := New(in, out, errOut)
	t.OutLive, t.Live, t.width = isTerminal(out), isTerminal(errOut), columns(errOut)
	t.Asks = t.Live && isTerminal(in)
	return t
}

// Abandoned reports whether the reader of standard output has closed it.
func (t *Terminal) Abandoned() bool {
	p, ok := t.Out.(*pipe)
	return ok && p.gone
}

// Progress starts a block of progress on standard error.
func (t *Terminal) Progress() *lines {
	return &lines{w: t.ErrOut, live: t.Live, width: t.width}
}

// OutStyle returns the style of standard output.
func (t *Terminal) OutStyle() Style { return Style{t.colors() && t.OutLive} }
func (t *Terminal) ErrStyle() Style { return Style{t.colors() && t.Live} }

// colors follows https://no-color.org.
func (t *Terminal) colors() bool {
	return !t.NoColor && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// WantsJSON reports whether standard output is for a program.
func (t *Terminal) WantsJSON() bool { return t.Format == "json" }

// WriteJSON writes the whole of standard output with -o json.
func (t *Terminal) WriteJSON(v any) error {
	var b bytes.Buffer
	if err := EncodeJSON(&b, v, "  "); err != nil {
		return err
	}
	_, err := t.Out.Write(b.Bytes())
	return err
}

// EncodeJSON writes JSON without anything that a terminal would interpret.
func EncodeJSON(b *bytes.Buffer, v any, indent string) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	b.Write(plainjson.Escape(text.Bytes()))
	return nil
}

// Show writes JSON, or the text that text produces.
func (t *Terminal) Show(v any, text func(*bytes.Buffer, Style)) error {
	if t.WantsJSON() {
		return t.WriteJSON(v)
	}
	var b bytes.Buffer
	text(&b, t.OutStyle())
	_, err := t.Out.Write(b.Bytes())
	return err
}

// Say tells the user something that is not the result.
func (t *Terminal) Say(format string, args ...any) {
	t.note("", format, args...)
}

// note prefixes a message with a painted label.
func (t *Terminal) note(label, format string, args ...any) {
	_, _ = io.WriteString(t.ErrOut, label+Clean(fmt.Sprintf(format, args...))+"\n") // nowhere else to say it
}

func (t *Terminal) Warn(format string, args ...any) {
	t.note(t.ErrStyle().Yellow("warning:")+" ", format, args...)
}

// pipe is standard output that its reader may close, as head does. That is not a failure:
// the program continues, and its exit status still counts.
type pipe struct {
	w    io.Writer
	gone bool
}

func (r *pipe) Write(p []byte) (int, error) {
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

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// usualColumns is the assumed width of a terminal that does not report one.
const usualColumns = 80

// columns returns how wide a terminal is.
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
