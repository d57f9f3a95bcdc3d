package ctl

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// canaryOptions are the flags of a canary.
type canaryOptions struct {
	pop         string
	bake        time.Duration
	interval    time.Duration
	minRequests int
	maxLimited  float64
	maxErrors   float64
	maxFewer    float64
}

const defaultInterval = 5 * time.Second

var canaryFlags = [...]string{"bake", "interval", "min-requests", "max-limited-increase", "max-5xx-increase", "max-limited-decrease"}

func (o *canaryOptions) flags(f *pflag.FlagSet) {
	f.DurationVar(&o.bake, canaryFlags[0], 5*time.Minute, "how long the canary is watched before the rest follows")
	o.bounds(f)
}

// bounds adds the flags that waves have too.
func (o *canaryOptions) bounds(f *pflag.FlagSet) {
	f.DurationVar(&o.interval, canaryFlags[1], defaultInterval, "how often to compare")
	f.IntVar(&o.minRequests, canaryFlags[2], 100, "how many requests the canary or the changed regions must have had to be judged")
	f.Float64Var(&o.maxLimited, canaryFlags[3], 0.05, "by how much the share of limited requests may exceed the others': 0.05 is five percentage points")
	f.Float64Var(&o.maxErrors, canaryFlags[4], 0.01, "by how much the share of 5xx answers may exceed the others'")
	f.Float64Var(&o.maxFewer, canaryFlags[5], 0.05, "by how much the share of limited requests may fall below its own past, beyond what the others' fell: a rule may have stopped matching")
}

// changed returns the first of them that was passed, or "".
func (o *canaryOptions) changed(f *pflag.FlagSet) string {
	for _, name := range canaryFlags {
		if f.Changed(name) {
			return name
		}
	}
	return ""
}

func (o *canaryOptions) check() error {
	if o.interval == defaultInterval && o.bake > 0 {
		o.interval = min(o.interval, o.bake) // nobody asked for that much
	}
	switch {
	case o.bake <= 0 || o.bake > 24*time.Hour:
		return term.Misused("--bake %s: must be above 0 and at most 24h", o.bake)
	case o.interval < 100*time.Millisecond || o.interval > o.bake:
		return term.Misused("--interval %s: must be between 100ms and --bake, %s", o.interval, o.bake)
	case o.minRequests < 0:
		return term.Misused("--min-requests %d: must be 0 or above", o.minRequests)
	case !(o.maxLimited >= 0 && o.maxLimited <= 1):
		return term.Misused("--max-limited-increase %v: must be between 0 and 1", o.maxLimited)
	case !(o.maxErrors >= 0 && o.maxErrors <= 1):
		return term.Misused("--max-5xx-increase %v: must be between 0 and 1", o.maxErrors)
	case !(o.maxFewer >= 0 && o.maxFewer <= 1):
		return term.Misused("--max-limited-decrease %v: must be between 0 and 1", o.maxFewer)
	}
	return nil
}

// excess says in which figure the canary is outside the bounds, "" if in none. Where
// the others had no requests, theirs count as 0 %: the bounds are then absolute.
func (o *canaryOptions) excess(canary, others *fleet.Traffic) string {
	c, r := canary.LimitedShare(), others.LimitedShare()
	if c-r > o.maxLimited {
		return fmt.Sprintf("it limited %s of %.0f requests, the other sites %s of %.0f; at most %s more is allowed",
			percent(c), canary.Requests, percent(r), others.Requests, points(o.maxLimited))
	}
	c, r = canary.ErrorShare(), others.ErrorShare()
	if c-r > o.maxErrors {
		return fmt.Sprintf("it answered 5xx to %s of %.0f requests, the other sites to %s of %.0f; at most %s more is allowed",
			percent(c), canary.Requests, percent(r), others.Requests, points(o.maxErrors))
	}
	return ""
}

// fallen says whether the canary limits much less than the same site did before the trial,
// other than everywhere; "" if not, or if there was too little to compare with.
func (o *canaryOptions) fallen(before, now sample) string {
	if !o.enough(&before.canary) || !o.enough(&now.canary) {
		return ""
	}
	was, is := before.canary.LimitedShare(), now.canary.LimitedShare()
	elsewhere := 0.0
	if before.others.Requests > 0 && now.others.Requests > 0 {
		elsewhere = before.others.LimitedShare() - now.others.LimitedShare()
	}
	if was-is-max(elsewhere, 0) > o.maxFewer {
		return fmt.Sprintf("it limited %s of %.0f requests, and %s of %.0f before the trial; at most %s less is allowed",
			percent(is), now.canary.Requests, percent(was), before.canary.Requests, points(o.maxFewer))
	}
	return ""
}

// enough reports whether the canary had enough requests to be judged.
func (o *canaryOptions) enough(canary *fleet.Traffic) bool {
	return canary.Requests >= float64(o.minRequests)
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

func points(share float64) string { return fmt.Sprintf("%.4g points", 100*share) }

// canaryReport is the outcome of a canary.
type canaryReport struct {
	PoP      string   `json:"pop"`
	Regions  []string `json:"regions"`
	Promoted bool     `json:"promoted"`
	// Why tells why it was not promoted.
	Why    string        `json:"why,omitempty"`
	Canary fleet.Traffic `json:"canary"`
	Others fleet.Traffic `json:"others"`
}
