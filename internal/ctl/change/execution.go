package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// execution carries out the plan of a change; see rollout.Plan.
type execution struct {
	c     *Change
	plan  rollout.Plan
	trial *trial // of the first stage; nil: it changes whole regions
	// resumed already had the version when this run began, so their past is unknown.
	resumed []string
	begun   bool // a region has the version, or had it
	all     []*rollout.Region[fleet.Current]
	apart   *time.Time
}

// CarryOut changes one stage after another.
func (c *Change) CarryOut(ctx context.Context, plan rollout.Plan, t *trial) error {
	s := &execution{c: c, plan: plan, trial: t, all: c.Engine.Regions, apart: c.apart, resumed: command.RegionNames(TargetsOf(c.With(rollout.AlreadyThere)))}
	defer func() { c.Engine.Regions = s.all }()
	s.begun = len(s.resumed) > 0
	if plan.Staged() {
		if failed := c.With(rollout.Failed); t == nil && len(failed) > 0 { // a wave without regions would pass unwatched
			return c.Report(c.stopped(&rollout.Stop{Why: rollout.NotStored, Region: failed[0].target.Name}), nil)
		}
		targets := TargetsOf(c.With(rollout.Untouched, rollout.AlreadyThere))
		c.watch = &rollout.Watch{
			Bounds: c.Staging.Bounds, Interval: c.Staging.Interval, Timeout: c.Program.LookTime, Kind: targets[0].Kind, Targets: targets, Unchanged: s.unchanged,
			Progress: func(text string) { c.Program.Progress().Update([]string{text}) }, Warn: c.Program.Warn, Say: c.Program.Say,
		}
		if t != nil {
			c.watch.Tried = c.Doc.Version()
			if err := t.endEarlier(ctx); err != nil {
				return c.Report(err, nil)
			}
		}
		if err := c.watch.Measure(ctx, c.Staging.Soak); err != nil {
			return c.Report(&term.Failure{Status: term.ExitStatus(err), Err: fmt.Errorf("nothing was changed: %w", err)}, nil)
		}
		if t != nil {
			if b, ok := c.Doc.Body.(interface{ Enforces(rule string) bool }); ok {
				c.watch.Foretell(func(at rollout.Site) bool { return at.PoP == t.pop }, b.Enforces)
			}
		}
		c.Ready = s.still
	}
	if len(plan) > 1 && t == nil {
		detached := context.WithoutCancel(ctx)
		c.complete(detached) // what an earlier run left undone
		c.endCanaries(detached)
	}
	return plan.Run(ctx, s)
}

// Done implements rollout.Stages.
func (s *execution) Done(stage rollout.Stage) bool {
	return stage.PoP == "" && !slices.ContainsFunc(stage.Regions, func(name string) bool { return s.c.region(name).region.Outcome == rollout.Untouched })
}

// wave returns the number of a stage, and of how many.
func (s *execution) wave(i int) string { return fmt.Sprintf("wave %d of %d", i+1, len(s.plan)) }

// inWaves reports whether whole regions follow each other.
func (s *execution) inWaves() bool { return len(s.plan) > 1 && s.trial == nil }

// Write implements rollout.Stages.
func (s *execution) Write(ctx context.Context, i int) error {
	c, stage := s.c, s.plan[i]
	if stage.PoP != "" {
		if err := s.trial.begin(ctx); err != nil {
			return s.trial.fail(ctx, err)
		}
		return nil
	}
	c.Engine.Regions = nil
	for _, name := range stage.Regions {
		c.Engine.Regions = append(c.Engine.Regions, c.region(name).region)
	}
	if c.apart = s.apart; i < len(s.plan)-1 {
		// An hour for the waves' own work; a fleet that is still divided after that was
		// forgotten.
		until := c.Program.Now().Add(time.Duration(len(s.plan)-1-i)*stage.Soak + time.Hour).UTC().Round(time.Second)
		c.apart = &until
	}
	if s.inWaves() {
		c.Program.Say("%s: %s", s.wave(i), stage)
	}
	err := c.Engine.Write(ctx)
	if s.trial != nil {
		defer s.trial.end(ctx)
	}
	switch {
	case err != nil && s.begun && s.inWaves():
		return s.halt(i, fmt.Errorf("the next wave could not begin: %w", err), nil)
	case err != nil:
		return c.Report(c.stopped(err), nil)
	}
	s.begun = true
	detached := context.WithoutCancel(ctx)
	if c.Engine.Wrote || s.there() {
		c.complete(detached)
		c.endCanaries(detached)
	}
	if i == len(s.plan)-1 {
		return nil
	}
	if wrong := rollout.With(c.Engine.Regions, rollout.Lost, rollout.Failed, rollout.Unknown, rollout.Untouched); len(wrong) > 0 {
		return s.halt(i+1, c.Outcome(ctx), nil)
	}
	if err := c.await(ctx); err != nil {
		return s.halt(i+1, err, err)
	}
	return nil
}

// there reports whether nothing is left to write: someone else may have done the same in the
// meantime, and everything is as it should be.
func (s *execution) there() bool {
	return len(s.c.With(rollout.Applied, rollout.AlreadyThere, rollout.Unreachable)) == len(s.c.regions)
}

// Finish implements rollout.Stages.
func (s *execution) Finish(ctx context.Context) error {
	c, err, waiting := s.c, s.c.Outcome(ctx), error(nil)
	switch {
	case len(c.With(rollout.Applied)) == 0 && !s.there():
	case ctx.Err() != nil:
		waiting = c.interrupted("before waiting")
	default:
		waiting = c.await(ctx)
	}
	if why := cmp.Or(err, waiting); why != nil && s.inWaves() {
		return s.halt(len(s.plan), why, waiting)
	}
	return c.Report(err, waiting)
}

// Judge implements rollout.Stages.
func (s *execution) Judge(ctx context.Context, i int, again bool) error {
	c, stage := s.c, s.plan[i]
	g := &rollout.Group{Soak: stage.Soak, Past: true, Runs: func(region string) string { return c.region(region).runs() }}
	if stage.PoP != "" {
		g.Name, g.Stage = stage.PoP, stage.PoP
		g.Has = func(at rollout.Site) bool { return at.PoP == stage.PoP && slices.Contains(stage.Regions, at.Region) }
		g.Judged = g.Has
		if err := c.watch.Judge(ctx, g); err != nil {
			return s.trial.fail(ctx, err)
		}
		c.tried = stage.PoP
		return nil
	}
	if again {
		c.Program.Say("%s has it already, and is watched again", s.wave(i))
	}
	// Those that this run changed or, before it has changed any, those that an earlier run did.
	regions := fleet.Filter(command.RegionNames(TargetsOf(c.With(rollout.Applied, rollout.AlreadyThere))), func(name string) bool { return !slices.Contains(s.resumed, name) })
	if len(regions) == 0 {
		regions, g.Past = s.resumed, false
	}
	g.Name, g.Stage, g.Alone = "the changed regions", s.wave(i), true
	g.Has = func(at rollout.Site) bool { return c.region(at.Region).region.Outcome.Has() }
	g.Judged = func(at rollout.Site) bool { return slices.Contains(regions, at.Region) }
	if err := c.watch.Judge(ctx, g); err != nil {
		return s.halt(i+1, err, nil)
	}
	return nil
}

// unchanged checks that no one else has changed a region, or ended the trial on its site,
// since this change looked at it or wrote it.
func (s *execution) unchanged(ctx context.Context, target *fleet.Target) error {
	ctx, cancel := target.Bounded(ctx)
	defer cancel()
	r := s.c.region(target.Name)
	now, err := fleet.LookAtPointer(ctx, target)
	switch {
	case err != nil:
		return err
	case now.State == fleet.Active && now.Damage == nil && now.Version() == r.step.Next.Version():
	case !r.region.Outcome.Has() && s.c.Engine.Unchanged(r.region.Seen, now):
	default:
		r.region.Outcome, r.region.Now = rollout.Lost, now
		return term.Conflict("%s: %s", target.Name, report.WhoMoved(target.Kind, now.Pointer))
	}
	if s.trial == nil {
		return nil
	}
	return s.trial.check(ctx, target)
}

// still checks, under the lock of a stage, that no one has changed a region since the last
// look, and that this is still the recorded rollout.
func (s *execution) still(ctx context.Context) error {
	for _, a := range fleet.Ask(ctx, s.c.watch.Targets, func(ctx context.Context, target *fleet.Target) (struct{}, error) {
		return struct{}{}, s.unchanged(ctx, target)
	}) {
		// The soak judged regions that do not answer, and Write checks those that it changes.
		if f := (*term.Failure)(nil); errors.As(a.Err, &f) {
			return s.unbegun(a.Err)
		}
	}
	if s.trial != nil && s.trial.expired() {
		return s.unbegun(fmt.Errorf("it expired while this waited for another change"))
	}
	return s.c.journal.own(ctx)
}

// unbegun adds to a conflict that nothing was changed, if that is so.
func (s *execution) unbegun(err error) error {
	switch {
	case s.trial != nil:
		return term.Conflict("nothing was changed: canary on %s: %w", s.trial.pop, err)
	case !s.begun:
		return term.Conflict("nothing was changed: %w", err)
	}
	return err
}

// halt reports a fleet that stays divided after some waves, and how to continue or go back.
func (s *execution) halt(done int, why, waiting error) error {
	c := s.c
	have, left := c.have(), report.With(c.results(), rollout.Untouched)
	text := fmt.Sprintf("halted after wave %d of %d: %v", done, len(s.plan), why)
	var state []string
	if len(have) > 0 {
		state = append(state, report.Holding(have))
	}
	if len(left) > 0 {
		state = append(state, report.Names(left)+report.Verb(left, " keeps what it had", " keep what they had"))
	}
	for i, part := range state {
		text += []string{"\n", "; "}[i] + part
	}
	k := c.regions[0].target.Kind
	if len(c.With(rollout.Lost)) == 0 { // the same command would replace what somebody else applied
		resume := ""
		if !k.Temporary { // those whose rollouts are recorded
			resume = ", or apply --resume"
		}
		text += "\ncontinue: the same command again" + resume + "; it watches the changed regions again before the next wave"
	}
	if len(have) > 0 {
		text += fmt.Sprintf("\ngo back:  regionctl undo %s", k.Name)
	}
	status := term.StatusPartial
	if term.ExitStatus(why) == term.StatusInterrupted {
		status = term.StatusInterrupted
	}
	return c.Report(&term.Failure{Status: status, Err: errors.New(text)}, waiting)
}
