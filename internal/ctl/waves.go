package ctl

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const wavesHelp = `--waves 1,4,rest changes the regions in groups, in the order of the fleet file: here the
first, then four, then all others. After each group but the last, --soak passes, in which
the changed regions, together and each of their sites alone, are compared with what they did
just before, and with the regions that are not changed yet: the shares of limited requests and
of 5xx answers, which include what is shed, and how long 99 % of the requests take; over the
whole soak and its last minutes; within --max-limited-increase, --max-limited-decrease,
--max-5xx-increase and --max-p99-factor. Outside twice in a row, or if someone else changes
one of the regions, the change halts, says why, and leaves each region as it is. It also halts
if a site that had --min-requests before has not had them in a soak; of sites that never had
as many it warns, because they cannot be judged. The lock is
given back during a soak. `

const wavesAgain = `
begins where an earlier one ended, also one that was killed: it watches the regions that have
the version for a soak, compared with those that have not, and continues.`

// wavesOfRules is about documents whose rollouts are recorded.
const wavesOfRules = wavesHelp + `The same command again, or apply --resume without the document,` + wavesAgain + ` regionctl rules
rollout shows how far such a change is, and whether its regionctl still runs.

A canary or waves are refused while a rollout of another document is unfinished and has
changed regions (status 4): resume that one, take it back, or pass --replace-rollout, after
which rollback --rollout returns to what the regions had before both. They are also refused
while another regionctl runs a rollout. An apply without --canary and --waves, and a
rollback, are not refused: they warn of the rollout that they override, and its regionctl
halts.`

// wavesOfSettings is about the shedder's settings, whose rollouts are not recorded.
const wavesOfSettings = wavesHelp + `The same command again, with the same FILE or FIELDs,` + wavesAgain + ` regionctl shedder
show tells which regions have it.`

// waves is how to change regions in groups.
type waves struct {
	*canaryOptions // the bounds; once parsed, its bake is the soak
	text           string
	soak           time.Duration
	sizes          []int // 0: all that are left
}

const defaultSoak = 10 * time.Minute

// flags adds those of waves. The bounds are those of a canary.
func (w *waves) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.text, "waves", "", "change the regions in `GROUPS` of these sizes, such as 1,4,rest")
	cmd.Flags().DurationVar(&w.soak, "soak", defaultSoak, "how long the regions of a wave are watched before the next")
}

// orWaves names the other flag that makes sense of a bound.
func orWaves(flag string) string {
	if flag == canaryFlags[0] {
		return ""
	}
	return " or --waves"
}

// parse reads the flags. It reports whether there are waves.
func (w *waves) parse(cmd *cobra.Command) (wanted bool, err error) {
	if w.text == "" {
		if cmd.Flags().Changed("soak") {
			return false, term.Misused("--soak needs --waves")
		}
		return false, nil
	}
	words := strings.Split(w.text, ",")
	for i, word := range words {
		n, err := strconv.Atoi(word)
		if last := i == len(words)-1 && word == "rest"; last {
			n = 0
		} else if err != nil || n < 1 {
			return false, term.Misused("--waves %s: must be numbers of regions, such as 1,4,rest; %q is none", w.text, word)
		}
		w.sizes = append(w.sizes, n)
	}
	if w.soak <= 0 || w.soak > 24*time.Hour {
		return false, term.Misused("--soak %s: must be above 0 and at most 24h", w.soak)
	}
	bounds := *w.canaryOptions
	bounds.bake, w.canaryOptions = w.soak, &bounds
	return true, w.check()
}

// split puts the regions into their groups.
func (w *waves) split(regions []*regionChange) (groups [][]*regionChange, err error) {
	left := regions
	for _, n := range w.sizes {
		if n == 0 || n > len(left) {
			n = len(left)
		}
		if n > 0 {
			groups = append(groups, left[:n])
		}
		left = left[n:]
	}
	if len(left) > 0 {
		return nil, term.Misused("--waves %s: leaves out %d of %s; end it with rest (nothing was changed)", w.text, len(left), term.Plural(len(regions), "region"))
	}
	return groups, nil
}

// runWaves changes one group after another. A group whose regions all have the version is
// done, by an earlier run.
func (c *change) runWaves(ctx context.Context, w *waves) (err error) {
	groups, err := w.split(c.with(rollout.Untouched, rollout.AlreadyThere))
	if err != nil {
		return err
	}
	c.warnOfCanaries(ctx)
	var plan []string
	var order [][]string
	for _, g := range groups {
		order = append(order, regionNames(targetsOf(g)))
		plan = append(plan, strings.Join(order[len(order)-1], ", "))
	}
	if err := c.confirm(ctx, "Apply to %s, with %s between?", strings.Join(plan, "; then "), short(w.bake)); err != nil {
		return err
	}
	if err := c.store(ctx); err != nil {
		return err
	}
	j, err := c.openJournal(ctx, "", order)
	if err != nil {
		return err
	}
	defer func() { j.close(ctx, err) }()
	s := &soaking{waves: w, c: c, targets: targetsOf(c.with(rollout.Untouched, rollout.AlreadyThere)), resumed: targetsOf(c.with(rollout.AlreadyThere))}
	if err := s.measure(ctx); err != nil {
		if ctx.Err() != nil {
			return c.stopped(&rollout.Stop{Why: rollout.Interrupted})
		}
		return &term.Failure{Status: term.ExitStatus(err), Err: fmt.Errorf("nothing was changed: %w", err)}
	}
	detached := context.WithoutCancel(ctx)
	c.complete(detached) // what an earlier run left undone
	c.endCanaries(detached)
	all, chosen := c.engine.Regions, c.apart
	defer func() { c.engine.Regions = all }()
	c.ready, s.begun = s.still, len(s.resumed) > 0
	watched := 0 // groups
	for i, g := range groups {
		c.engine.Regions = nil
		for _, r := range g {
			c.engine.Regions = append(c.engine.Regions, r.region)
		}
		todo := rollout.With(c.engine.Regions, rollout.Untouched)
		if len(todo) == 0 {
			continue
		}
		// An earlier run may not have watched what it changed to the end.
		if i > 0 && watched < i {
			c.p.Say("wave %d of %d has it already, and is watched again", i, len(groups))
			if err := s.watch(ctx, i, len(groups)); err != nil {
				return c.halt(i, len(groups), err, nil)
			}
		}
		if c.apart = chosen; i < len(groups)-1 {
			// An hour for the waves' own work; a fleet that is still divided after that was
			// forgotten.
			until := c.p.now().Add(time.Duration(len(groups)-1-i)*w.soak + time.Hour).UTC().Round(time.Second)
			c.apart = &until
		}
		c.p.Say("wave %d of %d: %s", i+1, len(groups), plan[i])
		if err := c.engine.Write(ctx); err != nil {
			if !s.begun {
				return c.report(nil, c.stopped(err), nil)
			}
			return c.halt(i, len(groups), fmt.Errorf("the next wave could not begin: %w", err), nil)
		}
		s.begun = true
		c.complete(detached)
		c.endCanaries(detached)
		if wrong := rollout.With(c.engine.Regions, rollout.Lost, rollout.Failed, rollout.Unknown, rollout.Untouched); len(wrong) > 0 {
			return c.halt(i+1, len(groups), c.outcome(ctx), nil)
		}
		if err := c.await(ctx); err != nil || len(c.with(rollout.Untouched)) == 0 {
			if err == nil {
				return c.report(nil, c.outcome(ctx), nil)
			}
			return c.halt(i+1, len(groups), err, err)
		}
		if err := s.watch(ctx, i+1, len(groups)); err != nil {
			return c.halt(i+1, len(groups), err, nil)
		}
		watched = i + 1
	}
	return c.report(nil, c.outcome(ctx), c.await(ctx))
}

// halt reports a fleet that stays divided, and how to continue or go back.
func (c *change) halt(done, of int, why, waiting error) error {
	have, left := c.have(), pick(c.told(), rollout.Untouched)
	text := fmt.Sprintf("halted after wave %d of %d: %v", done, of, why)
	var state []string
	if len(have) > 0 {
		state = append(state, holding(have))
	}
	if len(left) > 0 {
		state = append(state, names(left)+verb(left, " keeps what it had", " keep what they had"))
	}
	if len(state) > 0 {
		text += "\n" + strings.Join(state, "; ")
	}
	if len(c.with(rollout.Lost)) == 0 { // the same command would replace what somebody else applied
		resume := ""
		if c.regions[0].target.Kind.Canaries { // those whose rollouts are recorded
			resume = ", or apply --resume"
		}
		text += "\ncontinue: the same command again" + resume + "; it watches the changed regions again before the next wave"
	}
	switch j := c.journal; {
	case j != nil && len(j.record.Found) > 0: // the version before is that of the rollout that this one replaced
		text += fmt.Sprintf("\ngo back:  regionctl %s rollback --rollout", c.regions[0].target.Kind.Name)
	case len(have) > 0:
		text += fmt.Sprintf("\ngo back:  regionctl %s rollback --region %s", c.regions[0].target.Kind.Name, joined(have, ",", func(r told) string { return r.Name }))
	}
	status := term.StatusPartial
	if term.ExitStatus(why) == term.StatusInterrupted {
		status = term.StatusInterrupted
	}
	return c.report(nil, &term.Failure{Status: status, Err: fmt.Errorf("%s", text)}, waiting)
}
