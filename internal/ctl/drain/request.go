package drain

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/dns"
)

// Request is what the flags of drain and undrain say.
type Request struct {
	reason, by string
	yes, force bool
	Wait       time.Duration // for clients to leave
	ttl        time.Duration
}

// Flags binds the fields to flags of drain.
func (o *Request) Flags(f *pflag.FlagSet) {
	o.bothFlags(f)
	f.StringVarP(&o.reason, "message", "m", "", "`TEXT`: why, required; shown by status and dns explain")
	f.BoolVar(&o.force, "force", false, "drain it even if nothing healthy would be left")
	f.DurationVar(&o.Wait, "wait", time.Minute, "how long to wait at most for clients to leave; 0 does not wait")
	f.DurationVar(&o.ttl, "ttl", dns.DefaultTTL, "the --ttl of regionctl dns")
}

func (o *Request) bothFlags(f *pflag.FlagSet) {
	command.YesFlag(f, &o.yes)
	command.ByFlag(f, &o.by)
}
