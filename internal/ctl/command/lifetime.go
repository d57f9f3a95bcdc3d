package command

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// lifetime is the value of --for. Zero is refused: it would never expire, which is
// expressed by omitting the flag.
type lifetime struct {
	lasts   *time.Duration
	longest time.Duration
}

func LifetimeFlag(f *pflag.FlagSet, lasts *time.Duration, longest time.Duration, usage string) {
	f.Var(&lifetime{lasts, longest}, "for", usage)
}

func (l *lifetime) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > l.longest {
		return fmt.Errorf("must be from 1s to %s, such as 2h; omit it for no expiry", term.Duration(l.longest))
	}
	*l.lasts = d
	return nil
}

func (l *lifetime) String() string { return "" }
func (l *lifetime) Type() string   { return "duration" }
