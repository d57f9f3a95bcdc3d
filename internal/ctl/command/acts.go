package command

import (
	"context"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// RecordAct adds what was done to the history of the regions it happened in. If it cannot be
// recorded, it is still done, and a warning says so.
func (p *Program) RecordAct(ctx context.Context, regions []string, by, what string) {
	answers, err := p.Record(context.WithoutCancel(ctx), regions, by, what) // it is done
	if err != nil {
		p.Warn("the change was made but is not recorded: %v", err)
	}
	for _, a := range answers {
		if a.Err != nil {
			p.Warn("%s: the change was made, but the history of acts was not written: %v", a.Target.Name, a.Err)
		}
	}
}

// Record adds an act to the history of these regions.
func (p *Program) Record(ctx context.Context, regions []string, by, what string) ([]fleet.Answer[struct{}], error) {
	if len(regions) == 0 {
		return nil, nil
	}
	targets, err := p.Targets(kinds.Acts, regions)
	if err != nil {
		return nil, err
	}
	const longest = 1024
	what = term.Clip(term.Printable(what), longest)
	pointer := consul.NewPointer([]byte(what), by, p.Now())
	return fleet.Ask(ctx, targets, func(ctx context.Context, t *fleet.Target) (struct{}, error) {
		return struct{}{}, t.Docs.Record(ctx, consul.Change{Pointer: pointer, Message: what, Token: t.Identity(ctx)})
	}), nil
}
