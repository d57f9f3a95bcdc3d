package command

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// Watched returns a command that looks at regions once, or with --watch again and again: every so
// often, which is usual if --watch stands alone.
func Watched(p *Program, use, short, long, examples, usual string, once func(context.Context, []string) error, watch func(context.Context, []string, time.Duration) error) *cobra.Command {
	var regions []string
	var every time.Duration
	c := New(use, short, long, examples, func(ctx context.Context, _ []string) error {
		switch {
		case every == 0:
			return once(ctx, regions)
		case every < 100*time.Millisecond:
			return term.Misused("--watch %s: must be at least 100ms", every)
		}
		return watch(ctx, regions, every)
	})
	p.RegionFlag(c, &regions)
	c.Flags().DurationVarP(&every, "watch", "w", 0, "repeat, every `OFTEN`")
	c.Flags().Lookup("watch").NoOptDefVal = usual
	return c
}

// spacedWatch reports whether an argument is how often to watch, after a space. --watch may
// stand alone, so it takes only what follows =.
func spacedWatch(c *cobra.Command, arg string) bool {
	_, err := time.ParseDuration(arg)
	return err == nil && c.Flags().Changed("watch")
}

// Watch shows what each of looks obtains, one right after another, and then repeats the
// last of them until ctx ends or the reader closes standard output; both are regular ends
// of a watch.
func Watch[T any](ctx context.Context, every time.Duration, show func(T) error, looks ...func(context.Context) T) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		v := looks[0](ctx)
		if ctx.Err() != nil {
			return nil
		}
		switch err := show(v); {
		case errors.Is(err, errAbandoned):
			return nil
		case err != nil:
			return err
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

var errAbandoned = errors.New("standard output was closed")

// Draw shows one look of a watch, on a terminal in place of the one before.
func (p *Program) Draw(v any, write func(*bytes.Buffer, term.Style)) error {
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
	_, err := p.Out.Write(b.Bytes())
	if err == nil && p.Abandoned() {
		err = errAbandoned
	}
	return err
}
