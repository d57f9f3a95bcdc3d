package drain

import (
	"context"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/dns"
)

// Undo drains a PoP again or, without a reason, puts it back.
func Undo(ctx context.Context, c *change.Change, pop, reason string) error {
	o := &drainOptions{reason: reason, by: c.By, yes: c.Yes, wait: c.Wait, ttl: dns.DefaultTTL}
	if reason == "" {
		return undrain(ctx, c.Program, pop, o)
	}
	return drain(ctx, c.Program, pop, o)
}
