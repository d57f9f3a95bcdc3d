package change

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/staging"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/region"
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
the locks from a regionctl that may still be running, and the history says whose.

Afterwards it prunes old versions: see regionctl rules prune --help.

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
if that fails too, or this host vanishes, it expires a minute after the bake. An apply or
rollback without --canary ends any trial in its regions immediately, abandoned ones included.

` + staging.WavesOfRules + `

FILE may be - for standard input; --yes is then required.`

const applyExamples = `  regionctl rules apply rules.yaml -m "halve the login limit, INC-1234"
  regionctl rules apply rules.yaml --region eu-west
  regionctl rules apply rules.yaml --canary ams1 --bake 10m --max-limited-increase 0.02
  regionctl rules apply rules.yaml --yes --wait 2m -o json        # in CI`

func ApplyCommand(p *command.Program, k *fleet.Kind) *cobra.Command {
	var names []string
	var by string
	var resume bool
	c := &Change{Program: p}
	var cmd *cobra.Command
	short := "apply a document"
	if k.AtEdges() {
		short += " and wait for every edge"
	}
	cmd = command.New("apply [FILE]", short, k.Reworded(applyHelp), k.Reworded(applyExamples),
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
			if resume {
				if err := c.resume(ctx, cmd, k); err != nil {
					return err
				}
			}
			if err := c.CheckFlags(by); err != nil {
				return err
			}
			c.given = givenOf(cmd.Flags())
			if err := c.Staging.Parse(cmd); err != nil {
				return err
			}
			return c.apply(ctx, k, file, names)
		})
	p.RegionFlag(cmd, &names)
	c.Flags(cmd, &by)
	f := cmd.Flags()
	f.BoolVar(&resume, "resume", false, "continue the change that "+k.Name+" rollout shows, with its document and flags")
	f.StringVarP(&c.Message, "message", "m", "", "`TEXT` for the history: why")
	c.IfVersionFlag(cmd)
	if k.AtEdges() {
		c.EdgeFlags(cmd)
		c.Staging.CanaryFlags(f)
		c.Staging.WaveFlags(f)
		_ = cmd.RegisterFlagCompletionFunc("canary", p.CompleteNodes(&names, func(n consul.Node) string { return n.PoP })) // the flag is known
	}
	cmd.ValidArgsFunction = command.CompleteDocument
	return cmd
}

// IfVersionFlag adds --if-version.
func (c *Change) IfVersionFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.ifVersion, "if-version", "", "change nothing unless each region runs this `VERSION`, which the document was made from; "+versions.NoVersion+": nothing is published")
}

// Flags adds the flags that apply, rollback and undo share.
func (c *Change) Flags(cmd *cobra.Command, by *string) {
	f := cmd.Flags()
	f.BoolVarP(&c.Yes, "yes", "y", false, "do not ask")
	if !c.Partial { // it always is
		f.BoolVar(&c.Partial, "partial", false, "continue without regions that cannot be reached")
	}
	command.BreakLockFlag(cmd, &c.breakLock)
	f.IntVar(&c.keep, "keep-versions", versions.KeepVersions, "prune all but the newest `N` versions afterwards, at least 10; 0 does not (default: keep_versions of the fleet file, or 200)")
	f.Lookup("keep-versions").DefValue = "0" // it says so itself
	command.SignFlag(cmd, &c.signFile)
	f.StringVar(by, "by", "", "`NAME` for the history (default: WEIR_USER, or user@host)")
}

// EdgeFlags adds the flags of changes that edges follow: --wait and --force.
func (c *Change) EdgeFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&c.Wait, "wait", 30*time.Second, "how long to wait for the edges; 0 does not wait")
	cmd.Flags().BoolVar(&c.force, "force", false, "change it even if edges object, because they cannot read it or require another signature; the history says so")
}

func (c *Change) CheckFlags(by string) (err error) {
	if c.Wait < 0 {
		return term.Misused("--wait %s: must be 0 or above", c.Wait)
	}
	if c.keep != versions.KeepVersions && c.keep != 0 && c.keep < region.LeastVersions {
		return term.Misused("--keep-versions %d: must be 0, which does not prune, or at least %d", c.keep, region.LeastVersions)
	}
	if v := c.ifVersion; v != "" && v != versions.NoVersion && (len(v) < 4 || len(v) > 12 || strings.Trim(v, "0123456789abcdef") != "") {
		return term.Misused("--if-version %q: must be %s or the 4 to 12 first digits of a version, as status shows it", v, versions.NoVersion)
	}
	if err := command.CheckText("--message", c.Message, 1024); err != nil {
		return err
	}
	if c.signer, err = command.Signer(cmp.Or(c.signFile, c.Program.SignFile)); err != nil {
		return err
	}
	c.By, err = c.Program.Whoami(by)
	return err
}

func (c *Change) apply(ctx context.Context, k *fleet.Kind, file string, names []string) (err error) {
	if c.resumes == nil {
		if c.Doc, err = c.Program.ReadDocument(k, file); err != nil {
			return err
		}
	}
	targets, err := c.Program.TargetsToChange(ctx, k, names, c.Partial)
	if err != nil {
		return err
	}
	return c.Run(ctx, targets)
}

// Run performs the whole change. Afterwards it prunes.
func (c *Change) Run(ctx context.Context, targets []*fleet.Target) error {
	err := c.steps(ctx, targets)
	// Without answers from all regions, it is unknown which versions are needed.
	if c.Engine.Wrote && ctx.Err() == nil && len(c.have()) == len(c.regions) {
		versions.PruneAfter(ctx, c.Program, targets, c.keep, c.By)
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
	todo := report.With(c.told(), rollout.Untouched)
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
	if err := c.confirm(ctx, "%s", c.Staging.Question(plan, todo, c.Lasts)); err != nil {
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
