package command

import (
	"context"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// RecordAct adds an act to the history of the regions it happened in. If it cannot be
// recorded, it is still done, and a warning says so.
func (p *Program) RecordAct(ctx context.Context, regions []string, by, what string) {
	if len(regions) == 0 {
		return
	}
	ctx = context.WithoutCancel(ctx) // it is done
	targets, err := p.Targets(kinds.Acts, regions)
	if err != nil {
		p.Warn("the change was made but is not recorded: %v", err)
		return
	}
	const longest = 1024
	what = term.Clip(term.Printable(what), longest)
	pointer := consul.NewPointer([]byte(what), by, p.Now())
	for _, a := range fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (struct{}, error) {
		return struct{}{}, t.Docs.Record(ctx, consul.Change{Pointer: pointer, Message: what, Token: t.Identity(ctx)})
	}) {
		if a.Err != nil {
			p.Warn("%s: the change was made, but the history of acts was not written: %v", a.Target.Name, a.Err)
		}
	}
}
