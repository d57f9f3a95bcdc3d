package term

import (
	"fmt"
	"io"
	"strings"
)

// lines is a block of text that shows progress: in place on a terminal, and elsewhere as
// lines that are written when they change.
type lines struct {
	w     io.Writer
	live  bool
	width int
	shown []string
}

// Update shows a new state of the block. It never has fewer lines than before.
func (l *lines) Update(now []string) {
	var b strings.Builder
	if l.live && len(l.shown) > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", len(l.shown))
	}
	for i, line := range now {
		same := i < len(l.shown) && l.shown[i] == line
		switch {
		case l.live:
			// A line that wraps could not be found again.
			b.WriteString("\r\x1b[K" + Clip(Printable(line), l.width-1) + "\n")
		case !same && line != "":
			b.WriteString(Printable(line) + "\n")
		}
	}
	l.shown = append([]string(nil), now...)
	_, _ = io.WriteString(l.w, b.String()) // progress is not a result
}
