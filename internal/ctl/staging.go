package ctl

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const wavesHelp = `--waves 1,4,rest changes the regions in groups, in the order of the fleet file: here the
first, then four, then all others. After each group but the last, --soak passes, in which
the changed regions, together and each of their sites alone, are compared with what they did
just before, less what changed in the regions that are not changed yet: the shares of limited
requests and of 5xx answers, which include what is shed, and how long 99 % of the requests
take; over the whole soak and its last minutes; within --max-limited-increase, --max-limited-decrease,
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
changed regions (status 4): resume that one, or take it back with regionctl undo. They are
also refused while another regionctl runs a rollout. An apply without --canary and --waves, a
rollback and undo are not refused: they warn of the rollout that they override, and its
regionctl halts.`

// wavesOfSettings is about the shedder's settings, whose rollouts are not recorded.
const wavesOfSettings = wavesHelp + `The same command again, with the same FILE or FIELDs,` + wavesAgain + ` regionctl shedder
show tells which regions have it.`

// staging is what the flags say about the stages of a change: none, a canary, or waves.
type staging struct {
	rollout.Bounds
	interval time.Duration
	pop      string
	bake     time.Duration
	groups   string
	soak     time.Duration // once parsed, that of the canary or of the waves
	sizes    []int         // 0: all that are left
}

const (
	defaultInterval = 5 * time.Second
	defaultBake     = 5 * time.Minute
	defaultSoak     = 10 * time.Minute
)

var boundFlags = [...]string{"interval", "min-requests", "max-limited-increase", "max-5xx-increase", "max-limited-decrease", "max-p99-factor"}

// flags adds those of waves, and of the bounds.
func (o *staging) flags(f *pflag.FlagSet) {
	f.DurationVar(&o.interval, boundFlags[0], defaultInterval, "how often to compare")
	f.IntVar(&o.Requests, boundFlags[1], 100, "how many requests the canary or the changed regions must have had to be judged")
	f.Float64Var(&o.Limited, boundFlags[2], 0.02, "by how much the share of limited requests may grow beyond its own past, the others' growth and chance: 0.02 is two percentage points")
	f.Float64Var(&o.Errors, boundFlags[3], 0.01, "by how much the share of 5xx answers may grow, likewise")
	f.Float64Var(&o.Fewer, boundFlags[4], 0.05, "by how much the share of limited requests may fall, likewise: a rule may have stopped matching")
	f.Float64Var(&o.Slower, boundFlags[5], 2, "by what factor the 99th percentile of durations may exceed the previous one; 0: any")
	f.StringVar(&o.groups, "waves", "", "change the regions in `GROUPS` of these sizes, such as 1,4,rest")
	f.DurationVar(&o.soak, "soak", defaultSoak, "how long the regions of a wave are watched before the next")
}

// canaryFlags adds those of a canary.
func (o *staging) canaryFlags(f *pflag.FlagSet) {
	f.StringVar(&o.pop, "canary", "", "try it on this `POP` first")
	f.DurationVar(&o.bake, "bake", defaultBake, "how long the canary is watched before the rest follows")
}

// staged reports whether there are stages.
func (o *staging) staged() bool { return o.pop != "" || o.groups != "" }

// parse checks the flags.
func (o *staging) parse(cmd *cobra.Command) error {
	f := cmd.Flags()
	inWaves, name := o.groups != "", "soak"
	switch {
	case inWaves && o.pop != "":
		return term.Misused("--canary and --waves: choose one; a first wave of one region is a trial too")
	case inWaves && f.Changed("bake"):
		return term.Misused("--bake is for --canary; --waves have --soak")
	case !inWaves && f.Changed("soak"):
		return term.Misused("--soak needs --waves")
	case o.pop == "" && f.Changed("bake"):
		return term.Misused("--bake needs --canary POP")
	case !o.staged():
		for _, name := range boundFlags {
			if f.Changed(name) && f.Lookup("canary") == nil {
				return term.Misused("--%s needs --waves", name)
			} else if f.Changed(name) {
				return term.Misused("--%s needs --canary POP or --waves", name)
			}
		}
		return nil
	case !inWaves:
		o.soak, name = o.bake, "bake"
	}
	if err := o.parseGroups(); err != nil {
		return err
	}
	if o.interval == defaultInterval && o.soak > 0 {
		o.interval = min(o.interval, o.soak) // the default exceeds the soak
	}
	share := func(value float64) bool { return value >= 0 && value <= 1 }
	switch {
	case o.soak <= 0 || o.soak > 24*time.Hour:
		return term.Misused("--%s %s: must be above 0 and at most 24h", name, o.soak)
	case o.interval < 100*time.Millisecond || o.interval > o.soak:
		return term.Misused("--interval %s: must be between 100ms and --%s, %s", o.interval, name, o.soak)
	case o.Requests < 0:
		return term.Misused("--min-requests %d: must be 0 or above", o.Requests)
	case !share(o.Limited):
		return term.Misused("--max-limited-increase %v: must be between 0 and 1", o.Limited)
	case !share(o.Errors):
		return term.Misused("--max-5xx-increase %v: must be between 0 and 1", o.Errors)
	case !share(o.Fewer):
		return term.Misused("--max-limited-decrease %v: must be between 0 and 1", o.Fewer)
	case !(o.Slower == 0 || o.Slower >= 1 && o.Slower <= 1000):
		return term.Misused("--max-p99-factor %v: must be between 1 and 1000, or 0 to accept any duration", o.Slower)
	}
	return nil
}

func (o *staging) parseGroups() error {
	if o.groups == "" {
		return nil
	}
	words := strings.Split(o.groups, ",")
	for i, word := range words {
		n, err := strconv.Atoi(word)
		if last := i == len(words)-1 && word == "rest"; last {
			n = 0
		} else if err != nil || n < 1 {
			return term.Misused("--waves %s: must be numbers of regions, such as 1,4,rest; %q is none", o.groups, word)
		}
		o.sizes = append(o.sizes, n)
	}
	return nil
}

// plan returns the stages of a change of these regions. homes are those of the canary's site.
func (o *staging) plan(regions, homes []string) (rollout.Plan, error) {
	switch {
	case o.pop != "":
		return rollout.Tried(o.pop, homes, regions, o.soak), nil
	case o.groups == "":
		return rollout.Plan{{Regions: regions}}, nil
	}
	plan, left := rollout.InGroups(regions, o.sizes, o.soak)
	if left > 0 {
		return nil, term.Misused("--waves %s: leaves out %d of %s; end it with rest (nothing was changed)", o.groups, left, term.Plural(len(regions), "region"))
	}
	return plan, nil
}

// asks is the question before a change begins.
func (o *staging) asks(plan rollout.Plan, todo []report.Region, lasts time.Duration) string {
	switch {
	case o.pop != "":
		return fmt.Sprintf("Try on %s for %s, then apply to %s?", o.pop, term.Duration(o.soak), report.Names(todo))
	case o.groups != "":
		var groups []string
		for _, s := range plan {
			groups = append(groups, s.String())
		}
		return fmt.Sprintf("Apply to %s, with %s between?", strings.Join(groups, "; then "), term.Duration(o.soak))
	case lasts > 0:
		return fmt.Sprintf("Apply to %s for %s?", report.Names(todo), term.Duration(lasts))
	}
	return fmt.Sprintf("Apply to %s?", report.Names(todo))
}
