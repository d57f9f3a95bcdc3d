package term

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// Confirm asks for confirmation unless yes or Confirmed. Without a terminal that is an error: a script
// must neither hang nor change anything by accident.
func (t *Terminal) Confirm(ctx context.Context, yes bool, format string, args ...any) error {
	if yes || t.Confirmed {
		return nil
	}
	if !t.Asks {
		return Misused("no terminal to prompt on; pass --yes to skip confirmation (nothing was changed)")
	}
	fmt.Fprint(t.ErrOut, t.ErrStyle().Bold(Clean(fmt.Sprintf(format, args...)))+" [y/N] ")
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(t.In).ReadString('\n') // the end of input is a no
		answered <- line
	}()
	select {
	case <-ctx.Done():
		t.Say("")
		return Interrupted("interrupted; nothing was changed")
	case line := <-answered:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return Failed("not confirmed; nothing was changed")
	}
}
