package ctl

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/internal/adminapi"
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
	maxSlower   float64
}

const defaultInterval = 5 * time.Second

var canaryFlags = [...]string{"bake", "interval", "min-requests", "max-limited-increase", "max-5xx-increase", "max-limited-decrease", "max-p99-factor"}

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
	f.Float64Var(&o.maxFewer, canaryFlags[5], 0.05, "by how much the share of limited requests may fall below its own past, beyond the others' decrease: a rule may have stopped matching")
	f.Float64Var(&o.maxSlower, canaryFlags[6], 2, "by what factor the 99th percentile of durations may exceed the previous one; 0: any")
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
		o.interval = min(o.interval, o.bake) // the default exceeds the bake
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
	case !(o.maxSlower == 0 || o.maxSlower >= 1 && o.maxSlower <= 1000):
		return term.Misused("--max-p99-factor %v: must be between 1 and 1000, or 0 to accept any duration", o.maxSlower)
	}
	return nil
}

// excess says in which figure the canary is outside the bounds, or "". Where the others had
// no requests, theirs count as 0 %, so the bounds are absolute.
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

// risen says in which figure who has risen above its own past by more than the others did,
// or "".
func (o *canaryOptions) risen(who string, before, now sample, surely bool) string {
	for _, f := range []struct {
		what  string
		share func(*fleet.Traffic) float64
		most  float64
	}{{"limited", (*fleet.Traffic).LimitedShare, o.maxLimited}, {"answered 5xx to", (*fleet.Traffic).ErrorShare, o.maxErrors}} {
		was, is := f.share(&before.canary), f.share(&now.canary)
		if is-was-elsewhere(before, now, f.share) > f.most+margin(surely, was, before.canary.Requests, is, now.canary.Requests) {
			return fmt.Sprintf("%s %s %s of %.0f requests, and %s of %.0f before; at most %s more is allowed", who, f.what,
				percent(is), now.canary.Requests, percent(was), before.canary.Requests, points(f.most))
		}
	}
	return ""
}

// elsewhere returns by how much a share has grown at the others.
func elsewhere(before, now sample, share func(*fleet.Traffic) float64) float64 {
	if before.others.Requests == 0 || now.others.Requests == 0 {
		return 0
	}
	return max(0, share(&now.others)-share(&before.others))
}

// margin returns by how much more than allowed a share may differ if only differences
// beyond chance count.
func margin(surely bool, was, requestsBefore, is, requests float64) float64 {
	if !surely {
		return 0
	}
	return chance(was, requestsBefore, is, requests)
}

// chance returns how much two shares of that many requests may differ by chance: four
// standard deviations, which many sites with many looks at each rarely exceed.
func chance(a, ofA, b, ofB float64) float64 {
	if ofA == 0 || ofB == 0 {
		return 1
	}
	p := (a*ofA + b*ofB) / (ofA + ofB)
	return 4 * math.Sqrt(p*(1-p)*(1/ofA+1/ofB))
}

// slower says whether the 99th percentile of durations exceeds its bound, compared with its
// own past or, without one, with the others; "" if not, or if chance explains it. Nodes
// count durations only in the steps of adminapi.RequestBounds.
func (o *canaryOptions) slower(who string, before, now sample) string {
	const tail = 0.01
	past, whose, grown := &before.canary.Took, "before", 0.0
	if past.Counted() < float64(o.minRequests) {
		past, whose = &now.others.Took, "elsewhere"
	}
	is := &now.canary.Took
	usual := past.Quantile(1 - tail)
	at := slices.IndexFunc(adminapi.RequestBounds[:], func(bound float64) bool { return bound >= o.maxSlower*usual })
	if o.maxSlower == 0 || at < 0 || is.Counted() < max(1, float64(o.minRequests)) || past.Counted() < max(1, float64(o.minRequests)) {
		return ""
	}
	most := adminapi.RequestBounds[at]
	share := func(d *fleet.Durations) float64 { return fleet.Ratio(d.Slower(most), d.Counted()) }
	if whose == "before" {
		grown = elsewhere(before, now, func(t *fleet.Traffic) float64 { return share(&t.Took) })
	}
	if late := share(is) - grown; late > tail && late-share(past) > chance(share(past), past.Counted(), share(is), is.Counted()) {
		return fmt.Sprintf("%s of %.0f requests to %s took longer than %s; 99 %% took at most %s %s, and %.4g times as long is allowed",
			percent(share(is)), is.Counted(), who, seconds(most), seconds(usual), whose, o.maxSlower)
	}
	return ""
}

func seconds(s float64) string { return time.Duration(s * float64(time.Second)).String() }

// fallen says whether who limits much less than the same site did before the trial, unlike
// elsewhere; "" if not, or if there was too little to compare with.
func (o *canaryOptions) fallen(who string, before, now sample, surely bool) string {
	if !o.enough(&before.canary) || !o.enough(&now.canary) {
		return ""
	}
	was, is := before.canary.LimitedShare(), now.canary.LimitedShare()
	less := elsewhere(before, now, func(t *fleet.Traffic) float64 { return -t.LimitedShare() })
	if was-is-less > o.maxFewer+margin(surely, was, before.canary.Requests, is, now.canary.Requests) {
		return fmt.Sprintf("%s limited %s of %.0f requests, and %s of %.0f before the trial; at most %s less is allowed",
			who, percent(is), now.canary.Requests, percent(was), before.canary.Requests, points(o.maxFewer))
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
	// Why says why it was not promoted.
	Why    string        `json:"why,omitempty"`
	Canary fleet.Traffic `json:"canary"`
	Others fleet.Traffic `json:"others"`
}
