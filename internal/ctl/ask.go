package ctl

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// confirm asks a person, unless they said yes beforehand. Where nobody can be asked
// the answer is an error: a script must not hang, and must not change by accident.
func (p *program) confirm(ctx context.Context, yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	if !p.asks {
		return misused("nobody can be asked here; give --yes to go on without a question (nothing was changed)")
	}
	fmt.Fprint(p.errOut, p.errStyle().bold(clean(fmt.Sprintf(format, args...)))+" [y/N] ")
	answered := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(p.in).ReadString('\n') // the end of input is a no
		answered <- line
	}()
	select {
	case <-ctx.Done():
		p.say("")
		return interrupted("interrupted; nothing was changed")
	case line := <-answered:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return failed("not confirmed; nothing was changed")
	}
}
