// Package staging reads the flags of a change, and makes the plan of one in stages, a canary or
// waves.
package staging

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/report"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const wavesHelp = `--waves 1,4,rest changes the regions in groups, in the order of the fleet file: here the
first, then four, then all others. After each group but the last, --soak passes, in which
the changed regions, together and each of their sites alone, are compared with what they did
just before, less what changed in the regions that are not changed yet: the shares of limited
requests and of 5xx answers, which include what is shed, and how long 99% of the requests
take; over the whole soak and its last minutes; within --max-limited-increase, --max-limited-decrease,
--max-5xx-increase and --max-p99-factor. Outside twice in a row, or if someone else changes
one of the regions, the change halts, says why, and leaves each region as it is. It also halts
if a site that had --min-requests before has not had them in a soak; of sites that never had
as many it warns, because they cannot be evaluated. The lock is
given back during a soak. `

const wavesAgain = `
begins where an earlier one ended, also one that was killed: it watches the regions that have
the version for a soak, compared with those that have not, and continues.`

// WavesOfRules is about documents whose rollouts are recorded.
const WavesOfRules = wavesHelp + `The same command again, or apply --resume without the document,` + wavesAgain + ` regionctl rules
rollout shows how far such a change is, and whether its regionctl still runs.

A canary or waves are refused while a rollout of another document is unfinished and has
changed regions (status 4): resume that one, or take it back with regionctl undo. They are
also refused while another regionctl runs a rollout. An apply without --canary and --waves, and
undo are not refused: they warn of the rollout that they override, and its
regionctl halts.`

// WavesOfSettings is about the shedder's settings, whose rollouts are not recorded.
const WavesOfSettings = wavesHelp + `The same command again, with the same FILE or FIELDs,` + wavesAgain + ` regionctl shedder
show tells which regions have it.`

// Flags is what the flags say about the stages of a change: none, a canary, or waves.
type Flags struct {
	rollout.Bounds
	Interval time.Duration
	Pop      string
	bake     time.Duration
	groups   string
	Soak     time.Duration // once parsed, that of the canary or of the waves
	sizes    []int         // 0: all that are left
}

const (
	defaultInterval = 5 * time.Second
	defaultBake     = 5 * time.Minute
	defaultSoak     = 10 * time.Minute
)

var BoundFlags = [...]string{"interval", "min-requests", "max-limited-increase", "max-5xx-increase", "max-limited-decrease", "max-p99-factor"}

// WaveFlags adds those of waves, and of the bounds.
func (o *Flags) WaveFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.Interval, BoundFlags[0], defaultInterval, "how often to compare")
	f.IntVar(&o.Requests, BoundFlags[1], 100, "how many requests the canary or the changed regions must have had to be evaluated")
	f.Float64Var(&o.Limited, BoundFlags[2], 0.02, "by how much the share of limited requests may grow beyond its own past, the others' growth and chance: 0.02 is two percentage points")
	f.Float64Var(&o.Errors, BoundFlags[3], 0.01, "by how much the share of 5xx answers may grow, likewise")
	f.Float64Var(&o.Fewer, BoundFlags[4], 0.05, "by how much the share of limited requests may fall, likewise: a rule may have stopped matching")
	f.Float64Var(&o.Slower, BoundFlags[5], 2, "by what factor the 99th percentile of durations may exceed the previous one; 0: any")
	f.StringVar(&o.groups, "waves", "", "change the regions in `GROUPS` of these sizes, such as 1,4,rest")
	f.DurationVar(&o.Soak, "soak", defaultSoak, "how long the regions of a wave are watched before the next")
}

func (o *Flags) Staged() bool { return o.Pop != "" || o.groups != "" }

// Parse checks the flags.
func (o *Flags) Parse(f *pflag.FlagSet) error {
	inWaves, name := o.groups != "", "soak"
	switch {
	case inWaves && o.Pop != "":
		return term.Misused("--canary and --waves: choose one; a first wave of one region is a trial too")
	case inWaves && f.Changed("bake"):
		return term.Misused("--bake is for --canary; --waves have --soak")
	case !inWaves && f.Changed("soak"):
		return term.Misused("--soak needs --waves")
	case o.Pop == "" && f.Changed("bake"):
		return term.Misused("--bake needs --canary POP")
	case !o.Staged():
		for _, name := range BoundFlags {
			if f.Changed(name) && f.Lookup("canary") == nil {
				return term.Misused("--%s needs --waves", name)
			} else if f.Changed(name) {
				return term.Misused("--%s needs --canary POP or --waves", name)
			}
		}
		return nil
	case !inWaves:
		o.Soak, name = o.bake, "bake"
	}
	if err := o.parseGroups(); err != nil {
		return err
	}
	if o.Interval == defaultInterval && o.Soak > 0 {
		o.Interval = min(o.Interval, o.Soak) // the default exceeds the soak
	}
	share := func(value float64) bool { return value >= 0 && value <= 1 }
	switch {
	case o.Soak <= 0 || o.Soak > 24*time.Hour:
		return term.Misused("--%s %s: must be above 0 and at most 24h", name, o.Soak)
	case o.Interval < 100*time.Millisecond || o.Interval > o.Soak:
		return term.Misused("--interval %s: must be between 100ms and --%s, %s", o.Interval, name, o.Soak)
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

func (o *Flags) parseGroups() error {
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

// Plan returns the stages of a change of these regions. homes are those of the canary's site.
func (o *Flags) Plan(regions, homes []string) (rollout.Plan, error) {
	switch {
	case o.Pop != "":
		return rollout.Tried(o.Pop, homes, regions, o.Soak), nil
	case o.groups == "":
		return rollout.Plan{{Regions: regions}}, nil
	}
	plan, left := rollout.InGroups(regions, o.sizes, o.Soak)
	if left > 0 {
		return nil, term.Misused("--waves %s: leaves out %d of %s; end it with rest (nothing was changed)", o.groups, left, term.Plural(len(regions), "region"))
	}
	return plan, nil
}

// Prompt is the question before a change begins.
func (o *Flags) Prompt(plan rollout.Plan, todo []report.Region, lasts time.Duration) string {
	switch {
	case o.Pop != "":
		return fmt.Sprintf("Try on %s for %s, then apply to %s?", o.Pop, term.Duration(o.Soak), report.Names(todo))
	case o.groups != "":
		return fmt.Sprintf("Apply to %s, with %s between?", strings.Join(fleet.Map(plan, rollout.Stage.String), "; then "), term.Duration(o.Soak))
	case lasts > 0:
		return fmt.Sprintf("Apply to %s for %s?", report.Names(todo), term.Duration(lasts))
	}
	return fmt.Sprintf("Apply to %s?", report.Names(todo))
}
