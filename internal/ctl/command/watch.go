package command

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// WatchFlag adds --watch, which alone means so often.
func WatchFlag(c *cobra.Command, every *time.Duration, alone string) {
	f := c.Flags()
	f.DurationVarP(every, "watch", "w", 0, "repeat, every `OFTEN`")
	f.Lookup("watch").NoOptDefVal = alone
}

// spacedWatch reports whether an argument is how often to watch, after a space. --watch may
// stand alone, so it takes only what follows =.
func spacedWatch(c *cobra.Command, arg string) bool {
	_, err := time.ParseDuration(arg)
	return err == nil && c.Flags().Changed("watch")
}

func CheckWatch(every time.Duration) error {
	if every < 0 || every > 0 && every < 100*time.Millisecond {
		return term.Misused("--watch %s: must be at least 100ms", every)
	}
	return nil
}

// Looking obtains something, and how to write it.
type Looking func(context.Context) (any, func(*bytes.Buffer, term.Style))

// Watch shows what each of looks obtains, one right after another, and then repeats the
// last of them until ctx ends or the reader closes standard output; both are regular ends
// of a watch.
func (p *Program) Watch(ctx context.Context, every time.Duration, looks ...Looking) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		v, write := looks[0](ctx)
		if ctx.Err() != nil {
			return nil
		}
		var b bytes.Buffer
		switch {
		case p.WantsJSON():
			if err := term.EncodeJSON(&b, v, ""); err != nil {
				return err
			}
		case p.OutLive: // go home and overwrite each line, so that nothing flickers
			var text bytes.Buffer
			write(&text, p.OutStyle())
			b.WriteString("\x1b[H" + strings.ReplaceAll(text.String(), "\n", "\x1b[K\n") + "\x1b[J")
		default:
			write(&b, p.OutStyle())
			b.WriteByte('\n')
		}
		if _, err := p.Out.Write(b.Bytes()); err != nil {
			return err
		}
		if p.Abandoned() {
			return nil
		}
		if len(looks) > 1 {
			looks = looks[1:]
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
