package ctl

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const wavesHelp = `--waves 1,4,rest changes the regions in groups, in the order of the fleet file: here the
first, then four, then all others. After each group but the last, --soak passes, in which
the changed regions are compared with what they did just before, and with the regions that
are not changed yet: the shares of limited requests and of 5xx answers, over the whole soak
and its last minutes, within --max-limited-increase, --max-limited-decrease and
--max-5xx-increase. Outside twice in a row, the change halts, says why, and leaves each
region as it is. The lock is given back during a soak. The same command again begins where
an earlier one ended, also one that was killed.`

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

// soaking compares the regions that are changed with the others, and all with their past.
type soaking struct {
	*waves
	c       *change
	targets []*fleet.Target
	before  map[string]*fleet.Tally // by region
}

// runWaves changes one group after another. A group whose regions all have the version is
// done, by an earlier run.
func (c *change) runWaves(ctx context.Context, w *waves) error {
	groups, err := w.split(c.with(rollout.Untouched, rollout.AlreadyThere))
	if err != nil {
		return err
	}
	c.warnOfCanaries(ctx)
	var plan []string
	for _, g := range groups {
		plan = append(plan, strings.Join(regionNames(targetsOf(g)), ", "))
	}
	if err := c.confirm(ctx, "Apply to %s, with %s between?", strings.Join(plan, "; then "), short(w.bake)); err != nil {
		return err
	}
	if err := c.store(ctx); err != nil {
		return err
	}
	s := &soaking{waves: w, c: c, targets: targetsOf(c.with(rollout.Untouched, rollout.AlreadyThere))}
	if err := s.measure(ctx); err != nil {
		if ctx.Err() != nil {
			return c.stopped(&rollout.Stop{Why: rollout.Interrupted})
		}
		return term.Failed("nothing was changed: %w", err)
	}
	all := c.engine.Regions
	defer func() { c.engine.Regions = all }()
	for i, g := range groups {
		c.engine.Regions = nil
		for _, r := range g {
			c.engine.Regions = append(c.engine.Regions, r.region)
		}
		todo := rollout.With(c.engine.Regions, rollout.Untouched)
		if len(todo) == 0 {
			continue
		}
		c.p.Say("wave %d of %d: %s", i+1, len(groups), plan[i])
		if err := c.engine.Write(ctx); err != nil {
			if len(c.with(rollout.Applied, rollout.AlreadyThere)) == 0 {
				return c.report(nil, c.stopped(err), nil)
			}
			return c.halt(i, len(groups), fmt.Errorf("the next wave could not begin: %w", err), nil)
		}
		detached := context.WithoutCancel(ctx)
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
	}
	return c.report(nil, c.outcome(ctx), c.await(ctx))
}

// halt reports a fleet that stays divided, and how to continue or go back.
func (c *change) halt(done, of int, why, waiting error) error {
	have, left := c.have(), pick(c.told(), rollout.Untouched)
	text := fmt.Sprintf("halted after wave %d of %d: %v\n%s has %s", done, of, why, names(have), gets(have))
	if len(left) > 0 {
		text += fmt.Sprintf("; %s keeps what it had", names(left))
	}
	k := c.regions[0].target.Kind
	text += fmt.Sprintf("\ncontinue: the same command again\ngo back:  regionctl %s rollback --region %s", k.Name, joined(have, ",", func(r told) string { return r.Name }))
	status := term.StatusPartial
	if term.ExitStatus(why) == term.StatusInterrupted {
		status = term.StatusInterrupted
	}
	return c.report(nil, &term.Failure{Status: status, Err: fmt.Errorf("%s", text)}, waiting)
}

// count adds the figures of all edges to the tallies of their regions. It returns the edges
// that could not be read.
func (s *soaking) count(ctx context.Context, tallies map[string]*fleet.Tally) (silent []string, err error) {
	counts, err := s.c.p.count(ctx, s.targets, func(context.Context, *fleet.Target) error { return nil })
	if err != nil {
		return nil, err
	}
	for _, n := range counts {
		if n.err != nil {
			silent = append(silent, fmt.Sprintf("%s (%v)", term.Printable(n.node.ID), n.err))
			continue
		}
		if tallies[n.region] == nil {
			tallies[n.region] = &fleet.Tally{}
		}
		tallies[n.region].Add(n.node.ID, n.figures)
	}
	return silent, nil
}

// measure takes the figures of all edges for a short time before the first wave.
func (s *soaking) measure(ctx context.Context) error {
	s.before = map[string]*fleet.Tally{}
	return s.twice(ctx, func() error {
		_, err := s.count(ctx, s.before)
		return err
	})
}

// sum adds up the regions that have the version, and the others.
func (s *soaking) sum(tallies map[string]*fleet.Tally, at time.Time) sample {
	now := sample{at: at}
	for _, r := range s.c.regions {
		t := tallies[r.target.Name]
		switch {
		case t == nil:
		case r.region.Outcome.Has():
			now.canary = now.canary.Plus(t.Total)
		default:
			now.others = now.others.Plus(t.Total)
		}
	}
	return now
}

// watch returns why the next wave must not follow, nil if it may.
func (s *soaking) watch(ctx context.Context, wave, of int) error {
	progress := s.c.p.Progress()
	tallies, late := map[string]*fleet.Tally{}, newWindow(s.bake, s.minRequests)
	before := s.sum(s.before, time.Time{})
	outside, why, ends := 0, "", time.Now().Add(s.bake)
	for {
		silent, err := s.count(ctx, tallies)
		if ctx.Err() != nil {
			return term.Interrupted("interrupted")
		}
		if err != nil {
			return err
		}
		now := s.sum(tallies, time.Now())
		canary, others, long := late.add(now)
		if why = s.worse(before, now); why == "" {
			if why = s.worse(before, sample{now.at, canary, others}); why != "" {
				why = fmt.Sprintf("in the last %s, %s", long.Round(time.Second), why)
			}
		}
		if outside++; why == "" {
			outside = 0
		}
		left := time.Until(ends)
		progress.Update([]string{fmt.Sprintf("wave %d of %d: %.0f requests, limited %s (before %s), 5xx %s (before %s); %s left", wave, of, now.canary.Requests,
			percent(now.canary.LimitedShare()), percent(before.canary.LimitedShare()), percent(now.canary.ErrorShare()), percent(before.canary.ErrorShare()), max(0, left).Round(time.Second))})
		switch {
		case outside == outsideLooks, left <= 0 && outside > 0:
			return fmt.Errorf("%s", why)
		case left > 0:
		case !s.enough(&now.canary):
			return fmt.Errorf("the changed regions had only %.0f requests in %s, and are judged by at least %d; soak longer, or lower --min-requests", now.canary.Requests, s.bake, s.minRequests)
		case len(silent) > 0:
			return fmt.Errorf("the figures of %s could not be read at the end", strings.Join(silent, ", "))
		default:
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(min(s.interval, max(0, left))):
		}
	}
}

// worse says in which figure changed regions left their own past further than the others
// did; "" if in none, or if there was too little to judge. Regions without a past are
// compared with the others, as a canary is.
func (s *soaking) worse(before, now sample) string {
	switch {
	case !s.enough(&now.canary):
		return ""
	case !s.enough(&before.canary):
		return s.excess(&now.canary, &now.others)
	}
	elsewhere := func(share func(*fleet.Traffic) float64) float64 {
		if before.others.Requests == 0 || now.others.Requests == 0 {
			return 0
		}
		return max(0, share(&now.others)-share(&before.others))
	}
	for _, f := range []struct {
		what  string
		share func(*fleet.Traffic) float64
		most  float64
	}{{"limited", (*fleet.Traffic).LimitedShare, s.maxLimited}, {"answered 5xx to", (*fleet.Traffic).ErrorShare, s.maxErrors}} {
		was, is := f.share(&before.canary), f.share(&now.canary)
		if is-was-elsewhere(f.share) > f.most {
			return fmt.Sprintf("the changed regions %s %s of %.0f requests, and %s of %.0f before; at most %s more is allowed", f.what,
				percent(is), now.canary.Requests, percent(was), before.canary.Requests, points(f.most))
		}
	}
	return s.fallen(before, now)
}
