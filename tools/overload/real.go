package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/weir-edge/weir/tools/internal/overload"
)

// real runs every contender, each load with its own nodes and origin.
func (o *options) real(ctx context.Context, contenders []overload.Contender, scenarios []overload.Scenario, refusals bool) (columns []overload.Column, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	slots := make(chan struct{}, max(1, o.parallel))
	columns = make([]overload.Column, len(contenders))
	for i, c := range contenders {
		columns[i] = overload.Column{Name: c.Name, Results: make([]overload.Result, len(scenarios))}
		for j, s := range scenarios {
			if !o.runs(c.Name, s) {
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				if ctx.Err() != nil {
					return
				}
				r, err := o.one(ctx, c, s)
				if err != nil {
					cancel(fmt.Errorf("%s, %s: %w", c.Name, s.Name, err))
					return
				}
				mu.Lock()
				defer mu.Unlock()
				columns[i].Results[j] = r
				fmt.Printf("%s, %s, %s: offered %.2f C, answered %.3f C, p99 %d ms, %d shed, at most %d in flight\n",
					c.Name, s.Name, s.Plan.Length(), r.Offered, r.Goodput, r.P99.Milliseconds(), r.Sheds, r.MaxInFlight)
			})
		}
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	for i, c := range contenders {
		columns[i].Results = slices.DeleteFunc(columns[i].Results, func(r overload.Result) bool { return r.Scenario == "" })
		if c.Name == ours && refusals {
			if columns[i].Refusal, err = o.refusal(ctx); err != nil {
				return nil, fmt.Errorf("cost of a refusal: %w", err)
			}
		}
	}
	return columns, nil
}

// runs reports whether to run a scenario on real nodes. Scenarios that take long and show nothing
// new about a contender are only simulated.
func (o *options) runs(contender string, s overload.Scenario) bool {
	switch contender {
	case ours, overload.Estimated:
		return true
	case forInterest:
		return strings.Contains(o.only, forInterest)
	}
	return s.Serves == 0 && (s.Load <= 1 || s.Load >= 2)
}

func (o *options) one(ctx context.Context, c overload.Contender, s overload.Scenario) (r overload.Result, err error) {
	l, err := newLab()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	origin, _, err := l.self("origin", "-seed", fmt.Sprint(o.seed))
	if err != nil {
		return r, err
	}
	f := &fleet{lab: l, program: o.edge, origin: origin, settings: c.Node(s.Changes)}
	run, err := f.measure(ctx, s, o.seed)
	if err != nil {
		return r, err
	}
	return overload.Measure(s, run), o.trace("real", c, s, run)
}

// points returns a contender's measures at constant loads.
func points(columns []overload.Column, name string) []overload.Point {
	constant := []string{overload.Reference}
	for _, s := range overload.Scenarios(false) {
		if strings.HasSuffix(s.Name, "x") {
			constant = append(constant, s.Name)
		}
	}
	var all []overload.Point
	for _, c := range columns {
		for _, r := range c.Results {
			if c.Name == name && slices.Contains(constant, r.Scenario) {
				all = append(all, overload.Point{Offered: r.Offered, Goodput: r.Goodput, Critical: r.Critical})
			}
		}
	}
	return all
}
