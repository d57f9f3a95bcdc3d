package change

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/staging"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const applyHelp = `Applies FILE to all regions of the fleet file, or to those of --region:

  1. validates it; an invalid document changes nothing
  2. shows the difference, and asks (unless --yes)
  3. stores it in every region; a version is never overwritten
  4. locks the regions, checks that none has changed since it showed the
     difference, and points the first of the fleet file at it, then all others at once
  5. ends the canaries of these regions, and waits until every registered edge runs it

If someone else applies at the same time, one of the two waits for the other, reports who
changed what and when, and changes nothing anywhere (status 4), unless both apply the same
document. A running regionctl renews its locks every 3 seconds. The locks of one that was
killed are taken over after 10 seconds without a renewal; one that was only suspended
stops before its next write and says so (status 4). --break-lock does not wait: it takes
the locks from a regionctl that may still be running, and the history says whose. It may say:

  waiting for ana, and 10 seconds later: took over the lock of ana
      Her regionctl died, or cannot reach that region's Consul. Her change may have reached only
      some regions: take it back or apply it again.
  ana is changing the rules (status 4, after a minute)
      Her regionctl is at work. Ask her, or use --break-lock: hers stops before its next write.
  bob took over the lock of this change, or the lock of this change is gone (status 4)
      This regionctl was cut off for over 10 seconds, as on a sleeping laptop, or bob broke its
      lock. It wrote nothing after that. Look at the history, then apply again if still wanted.

Afterwards it prunes old versions: see regionctl prune --help.

If a region cannot be reached, no region is changed; --partial continues without it. If
one fails after the first was switched, the others are switched anyway, and the result
says which region has what (status 3), or that this is unknown because the answer was
lost. Running the same command again finishes the job: regions that have the document keep
it, receive what their history lacks, and are waited for again.

A region in which no edge registers within 15 seconds is not waited for.

An edge that refuses the document keeps its old rules; the output shows its reasons. If edges
object beforehand, because they cannot read it or require another signature, nothing is changed;
--force changes it anyway, and the history says what they objected to.

--if-version VERSION changes nothing unless every region runs that version or already has
the document (status 4). It keeps a file made from an older version from reverting changes
made in between, even with --yes.

--canary POP tries the document on one site first. During --bake only its edges follow it,
and regionctl compares their shares of limited requests (429) and of server errors (5xx)
with what they were just before, less what changed at most of the other sites meanwhile,
over the whole trial and over its last minutes (a tenth of --bake, from 1 to 10 minutes). If
the changes are within the bounds at the end, the document is applied as above. If one is
outside twice in a row, beyond chance and after at least --min-requests, the canary is removed
immediately (status 1), and the reason names the rule. It is also removed if this program is interrupted or fails;
if that fails too, or this host vanishes, it expires a minute after the bake. An apply
without --canary, or an undo, ends any trial in its regions immediately, abandoned ones included.

` + staging.WavesOfRules + `

FILE may be - for standard input; --yes is then required.`

const applyExamples = `  regionctl rules apply rules.yaml -m "halve the login limit, INC-1234"
  regionctl rules apply rules.yaml --region eu-west
  regionctl rules apply rules.yaml --canary ams1 --bake 10m --max-limited-increase 0.02
  regionctl rules apply rules.yaml --yes --wait 2m -o json        # in CI`

func ApplyCommand(p *command.Program, k *fleet.Kind) *cobra.Command {
	var resume bool
	c := &Change{Program: p}
	short := "apply a document"
	if k.AtEdges() {
		short += " and wait for every edge"
	}
	cmd := command.New("apply [FILE]", short, k.Reworded(applyHelp), k.Reworded(applyExamples),
		func(ctx context.Context, args []string) error {
			file := strings.Join(args, "")
			switch {
			case file == "" && !resume:
				return term.Misused("FILE is missing; name the document, or pass --resume to continue a rollout")
			case file != "" && resume:
				return term.Misused("--resume continues with the document of the rollout; leave out %s", term.Printable(file))
			case file == "-" && !c.Yes:
				return term.Misused("the document comes from standard input, which leaves no terminal to prompt on; pass --yes")
			}
			var in *command.Input
			if !resume {
				in = new(p.Input(file))
			}
			r, err := c.Apply(ctx, k, in)
			return command.Show(p, r, err, (*Report).Write)
		})
	c.ApplyFlags(cmd.Flags(), k)
	c.Completions(cmd, p)
	cmd.Flags().BoolVar(&resume, "resume", false, "continue the change that "+k.Name+" rollout shows, with its document and flags")
	if k.AtEdges() {
		_ = cmd.RegisterFlagCompletionFunc("canary", p.CompleteNodes(&c.Regions, func(n consul.Node) string { return n.PoP })) // the flag is known
	}
	cmd.ValidArgsFunction = command.CompleteDocument
	return cmd
}

// Apply applies a document or, without one, continues the rollout that is not finished.
func (c *Change) Apply(ctx context.Context, k *fleet.Kind, in *command.Input) (_ *Report, err error) {
	if in == nil {
		err = c.resume(ctx, k)
	}
	if err == nil {
		err = c.CheckFlags(c.Program)
	}
	if err == nil && in != nil {
		c.Doc, err = c.Program.ReadDocument(k, *in)
	}
	if err != nil {
		return nil, err
	}
	return c.RunIn(ctx, k)
}

// RunIn performs the change in the regions that the flags name.
func (c *Change) RunIn(ctx context.Context, k *fleet.Kind) (*Report, error) {
	targets, err := c.Program.TargetsToChange(ctx, k, c.Regions, c.Partial)
	if err == nil {
		err = c.Run(ctx, targets)
	}
	return c.Result, err
}

// Run performs the whole change. Afterwards it prunes.
func (c *Change) Run(ctx context.Context, targets []*fleet.Target) error {
	err := c.steps(ctx, targets)
	// Without answers from all regions, it is unknown which versions are needed.
	if c.Engine.Wrote && ctx.Err() == nil && len(c.have()) == len(c.regions) {
		versions.PruneAfter(ctx, c.Program, targets, c.Keep, c.By)
	}
	if err == nil && len(c.recorded) > 0 { // what was unfinished is now something else
		rollout.Forget(ctx, targets, func(t *fleet.Target, r *consul.Rollout) bool {
			seen := c.recorded[t.Name].Rollout
			return seen != nil && seen.SameRollout(r)
		})
	}
	return err
}

func (c *Change) steps(ctx context.Context, targets []*fleet.Target) error {
	if err := c.Prepare(ctx, targets); err != nil {
		return err
	}
	if err := c.mayHalt(c.recorded.Rollouts()...); err != nil {
		return err
	}
	todo := report.With(c.results(), rollout.Untouched)
	if len(todo) == 0 {
		return c.settle(ctx, c.Staging.Pop == "")
	}
	if c.Staging.Staged() {
		if err := c.begins(ctx, targets); err != nil {
			return err
		}
	} else {
		c.overrides(ctx, targets)
	}
	var t *trial
	var homes []string
	if pop := c.Staging.Pop; pop != "" {
		var err error
		if t, err = c.newTrial(ctx, pop); err != nil {
			return err
		}
		homes = command.RegionNames(t.homes)
	} else {
		c.warnOfCanaries(ctx)
	}
	plan, err := c.Staging.Plan(command.RegionNames(TargetsOf(c.With(rollout.Untouched, rollout.AlreadyThere))), homes)
	if err != nil {
		return err
	}
	if err := c.confirm(ctx, "%s", c.Staging.Prompt(plan, todo, c.Lasts)); err != nil {
		return err
	}
	if err := c.Store(ctx); err != nil {
		return err
	}
	j, err := c.openJournal(ctx, c.Staging.Pop, plan.Groups())
	if err != nil {
		return err
	}
	err = c.CarryOut(ctx, plan, t)
	j.close(ctx, err)
	return err
}

// settle handles a change of regions that already have the version. It asks only about
// trials that would be ended.
func (c *Change) settle(ctx context.Context, end bool) error {
	if end && c.warnOfCanaries(ctx) {
		if err := c.confirm(ctx, "End that in %s?", report.Names(c.have())); err != nil {
			return err
		}
	}
	if err := c.Store(ctx); err != nil {
		return err
	}
	c.complete(ctx)
	if end {
		c.endCanaries(ctx)
	}
	return c.Report(c.Outcome(ctx), c.await(ctx))
}

func (c *Change) confirm(ctx context.Context, format string, args ...any) error {
	return c.Program.Confirm(ctx, c.Yes, format, args...)
}

// warnOfCanaries warns of trials on sites, and reports whether there are any.
func (c *Change) warnOfCanaries(ctx context.Context) (tried bool) {
	for _, a := range fleet.Ask(ctx, c.mayTry(rollout.Untouched, rollout.AlreadyThere), func(ctx context.Context, t *fleet.Target) (map[string]consul.Pointer, error) {
		canaries, wrong, err := t.Docs.Canaries(ctx)
		for _, note := range wrong {
			c.Program.Warn("%s: %v", t.Name, note)
		}
		return canaries, err
	}) {
		if a.Err != nil {
			c.Program.Warn("%s: canaries: %v", a.Target.Name, a.Err)
		}
		for _, pop := range slices.Sorted(maps.Keys(a.Value)) {
			if canary := a.Value[pop]; !canary.Expired(a.Target.Consul.Now()) {
				tried = true
				c.Program.Warn("%s: %s tries %s on %s until %s; its edges follow that, and applying ends the trial", a.Target.Name,
					term.Printable(canary.AppliedBy), canary.Version, term.Printable(pop), report.Until(&canary))
			}
		}
	}
	return tried
}
