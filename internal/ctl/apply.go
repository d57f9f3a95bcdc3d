package ctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const applyHelp = `Puts FILE in force in all regions of the fleet file, or in those of --region:

  1. validates it; a bad document changes nothing
  2. shows the difference, and asks (--yes does not)
  3. stores it in every region; versions are kept and never overwritten
  4. locks the regions, looks that nobody has changed any since the difference was
     shown, and points them at it one after another, in the order of the fleet file
  5. ends the canaries of these regions, and waits until every registered edge runs it

When somebody else applies at the same time, one of the two waits until the other is
through, is told by whom and when, and has changed nothing anywhere (status 4). The lock
of one that was killed ends by itself, after half a minute with three regions.

When a region cannot be reached, nothing is changed in any. --partial goes on without
it. When one fails after the first was switched, the others are switched all the same,
and the result says which have what (status 3). Where the answer was lost, that is not
known, and the result says so. Running the same command again finishes the job: regions
that have the document keep it, get what is missing of their history, and are waited
for again.

A region in which no edge is registered within 15 seconds is not waited for.

An edge that refuses the document goes on with its old rules; its reasons are shown.

With --canary POP the document is tried on one site first. For the time of --bake only
its edges follow it, and regionctl compares their share of limited requests (429) and
of server errors (5xx) with those of all other sites. Within the bounds at the end, the
document is applied as above. Twice outside of them, with at least --min-requests, and
the canary is taken back at once (status 1). It is also taken back when this program
is interrupted or loses its way; should that fail, or this host vanish, the edges take
it back themselves a minute after the bake. An apply or rollback without --canary ends
any trial in its regions at once, also one that nobody attends to.

FILE may be - for standard input; --yes is needed then.`

func (p *program) applyCommand() *cobra.Command {
	var names []string
	var by, pop string
	c := &change{p: p}
	o := canaryOptions{}
	var cmd *cobra.Command
	cmd = command("apply FILE", "put a document in force and wait for every edge", applyHelp,
		`  regionctl rules apply rules.yaml -m "halve the login limit, INC-1234"
  regionctl rules apply rules.yaml --region eu-west
  regionctl rules apply rules.yaml --canary ams1 --bake 10m --max-limited-increase 0.02
  regionctl rules apply rules.yaml --yes --wait 2m -o json        # in CI`,
		func(ctx context.Context, args []string) error {
			if args[0] == "-" && !c.yes {
				return misused("the document comes from standard input, so nobody can be asked; give --yes")
			}
			if err := c.checkFlags(by); err != nil {
				return err
			}
			var canary *canaryOptions
			if pop != "" {
				o.pop, canary = pop, &o
			} else if o.changed(cmd.Flags()) {
				return misused("--bake and its like need --canary POP")
			}
			return c.apply(ctx, args[0], names, canary)
		})
	p.regionFlag(cmd, &names)
	c.flags(cmd, &by)
	f := cmd.Flags()
	f.StringVarP(&c.message, "message", "m", "", "`TEXT` for the history: why")
	f.StringVar(&pop, "canary", "", "try it on this `POP` first")
	o.flags(f)
	_ = cmd.RegisterFlagCompletionFunc("canary", p.completeNodes(&names, func(n region.Node) string { return n.PoP })) // the flag is known
	cmd.ValidArgsFunction = completeDocument
	return cmd
}

// flags adds those that apply and rollback share.
func (c *change) flags(cmd *cobra.Command, by *string) {
	f := cmd.Flags()
	f.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&c.partial, "partial", false, "go on without regions that cannot be reached")
	f.DurationVar(&c.wait, "wait", 30*time.Second, "how long to wait for the edges; 0 does not wait")
	f.StringVar(by, "by", "", "`NAME` for the history (default: WEIR_USER, or user@host)")
}

func (c *change) checkFlags(by string) (err error) {
	if c.wait < 0 {
		return misused("--wait %s: must be 0 or above", c.wait)
	}
	if err := checkText("--message", c.message, 1024); err != nil {
		return err
	}
	c.by, err = whoami(by)
	return err
}

func (c *change) apply(ctx context.Context, file string, names []string, canary *canaryOptions) (err error) {
	if canary != nil {
		if err := canary.check(); err != nil {
			return err
		}
	}
	if c.doc, err = c.p.readDocument(rulesKind, file); err != nil {
		return err
	}
	targets, closeAll, err := c.p.targets(names)
	if err != nil {
		return err
	}
	defer closeAll()
	return c.run(ctx, targets, canary)
}

// run is the whole of a change, step by step.
func (c *change) run(ctx context.Context, targets []*target, canary *canaryOptions) error {
	if err := c.prepare(ctx, targets); err != nil {
		return err
	}
	todo := c.with(untouched)
	if len(todo) == 0 {
		return c.settle(ctx, canary == nil)
	}
	if canary == nil {
		c.warnOfCanaries(ctx)
		question := "Apply to %s?"
		if c.lasts > 0 {
			question = "Apply to %s for " + short(c.lasts) + "?"
		}
		if err := c.confirm(ctx, question, namesOf(todo)); err != nil {
			return err
		}
		if err := c.store(ctx); err != nil {
			return err
		}
		return c.switchOver(ctx, nil, func() {})
	}
	trial, err := c.newTrial(ctx, targets, canary)
	if err != nil {
		return err
	}
	if err := c.confirm(ctx, "Try on %s for %s, then apply to %s?", canary.pop, short(canary.bake), namesOf(todo)); err != nil {
		return err
	}
	if err := c.store(ctx); err != nil {
		return err
	}
	return trial.run(ctx)
}

// settle is a change of regions that have the version already. Only trials that are in
// the way of it need a question.
func (c *change) settle(ctx context.Context, end bool) error {
	if end && c.warnOfCanaries(ctx) {
		if err := c.confirm(ctx, "End that in %s?", namesOf(c.with(alreadyThere))); err != nil {
			return err
		}
	}
	if err := c.store(ctx); err != nil {
		return err
	}
	c.complete(ctx)
	if end {
		c.endCanaries(ctx)
	}
	return c.report(nil, c.outcome(ctx), c.await(ctx))
}

// switchOver points the regions, and waits. between is called as soon as they are
// pointed.
func (c *change) switchOver(ctx context.Context, canary *canaryReport, between func()) error {
	err := c.point(ctx)
	between()
	if c.pointed {
		detached := context.WithoutCancel(ctx)
		c.complete(detached)
		c.endCanaries(detached)
	}
	if err == nil {
		err = c.outcome(ctx)
	}
	if len(c.with(applied)) == 0 {
		return c.report(canary, err, nil)
	}
	if have := c.with(applied, alreadyThere); ctx.Err() != nil {
		return c.report(canary, err, interrupted("interrupted before waiting; %s has %s, and %s shows who runs it", namesOf(have), runsAll(have), have[0].target.kind.look))
	}
	return c.report(canary, err, c.await(ctx))
}

func (c *change) confirm(ctx context.Context, format string, args ...any) error {
	return c.p.confirm(ctx, c.yes, format, args...)
}

// warnOfCanaries tells that somebody tries something on a site, and returns whether
// anybody does.
func (c *change) warnOfCanaries(ctx context.Context) (tried bool) {
	var targets []*target
	for _, r := range c.with(untouched, alreadyThere) {
		if r.target.kind.canaries {
			targets = append(targets, r.target)
		}
	}
	now := time.Now()
	for _, a := range ask(ctx, c.p, targets, func(ctx context.Context, t *target) (map[string]region.Pointer, error) {
		canaries, wrong, err := t.docs.Canaries(ctx)
		for _, note := range wrong {
			c.p.warn("%s: %v", t.name, note)
		}
		return canaries, err
	}) {
		if a.err != nil {
			c.p.warn("%s: canaries: %v", a.target.name, a.err)
		}
		for _, pop := range sortedKeys(a.value) {
			if canary := a.value[pop]; !canary.Expired(now) {
				tried = true
				c.p.warn("%s: %s tries %s on %s until %s; its edges follow that, and applying ends the trial", a.target.name,
					printable(canary.AppliedBy), canary.Version, printable(pop), until(&canary))
			}
		}
	}
	return tried
}
