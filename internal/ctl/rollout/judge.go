package rollout

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// outsideLooks in a row end a change: one may be a coincidence.
const outsideLooks = 2

// Bounds say by how much a change may make figures worse.
type Bounds struct {
	Requests int     // that are needed for a judgment
	Limited  float64 // more limited requests, as a share of all
	Errors   float64 // more 5xx answers, as a share of all
	Fewer    float64 // fewer limited requests, as a share of all
	Slower   float64 // how many times as long the 99th percentile may take; 0: any
}

// judge compares the sites that a change has reached with their own past, beside the others.
// It has no clock and reads nothing.
type judge struct {
	*Bounds
	group    *Group
	before   map[Site]fleet.Traffic
	subjects []*subject // all that is judged together, then each site
	outside  int        // looks in a row
}

// subject is what is judged: the group, or one of its sites.
type subject struct {
	name        string
	alone       bool // a site among others: only differences beyond chance count
	levels      bool
	is          func(Site) bool
	before, now sample
	late        *window
}

func newJudge(b *Bounds, g *Group, before map[Site]fleet.Traffic) *judge {
	j := &judge{Bounds: b, group: g, before: before}
	j.add(&subject{name: g.Name, is: g.Judged, levels: g.Levels})
	if g.Alone && g.Past {
		for _, at := range sorted(before) {
			if g.Judged(at) {
				j.add(&subject{name: at.String(), alone: true, is: func(other Site) bool { return other == at }})
			}
		}
	}
	return j
}

func (j *judge) add(x *subject) {
	x.late = newWindow(j.group.Soak, j.Requests)
	if x.before = j.sum(j.before, time.Time{}, x.is); !j.group.Past {
		x.before.mine = fleet.Traffic{}
	}
	j.subjects = append(j.subjects, x)
}

// sum adds up some sites, and those that do not have the version.
func (j *judge) sum(sites map[Site]fleet.Traffic, when time.Time, is func(Site) bool) sample {
	s := sample{at: when}
	for at, t := range sites {
		if is(at) {
			s.mine = s.mine.Plus(t)
		} else if !j.group.Has(at) {
			s.others = s.others.Plus(t)
		}
	}
	return s
}

// look says which figure is outside the bounds, over the whole soak or at its end; "" if none
// is.
func (j *judge) look(at time.Time, sites map[Site]fleet.Traffic) (why string) {
	for _, x := range j.subjects {
		x.now = j.sum(sites, at, x.is)
		late, long := x.late.add(x.now)
		why = cmp.Or(why, j.worse(x, x.now), lately(long, j.worse(x, late)))
	}
	if j.outside++; why == "" {
		j.outside = 0
	}
	return why
}

// lately adds to a reason, if there is one, that it is about the end of the period.
func lately(long time.Duration, why string) string {
	if why == "" {
		return ""
	}
	return fmt.Sprintf("in the last %s, %s", long.Round(time.Second), why)
}

// compared shows the figures of the group beside its past or, if that is unknown, the other
// regions, by which it is then judged.
func (j *judge) compared() string {
	x := j.subjects[0]
	than, what, now := &x.before.mine, "before", &x.now.mine
	if than.Requests == 0 {
		than, what = &x.now.others, "elsewhere"
	}
	return fmt.Sprintf("%.0f requests, limited %s (%s %s), 5xx %s (%s %s)", now.Requests,
		term.Percent(now.LimitedShare()), what, term.Percent(than.LimitedShare()), term.Percent(now.ErrorShare()), what, term.Percent(than.ErrorShare()))
}

// worse says in which figure a subject left its own past further than the others did; "" if
// in none, or if there was too little to judge. Without a past it is compared with the others.
func (j *judge) worse(x *subject, now sample) string {
	switch {
	case !j.enough(&now.mine):
		return ""
	case x.levels:
		return cmp.Or(j.excess(x.name, now), j.fallen(x, now), j.slower(x.name, x.before, now))
	case j.enough(&x.before.mine):
		return cmp.Or(j.risen(x, now), j.fallen(x, now), j.slower(x.name, x.before, now))
	case x.alone:
		return ""
	}
	return cmp.Or(j.excess(x.name, now), j.slower(x.name, x.before, now))
}

// excess says in which figure a subject is outside the bounds, compared with the others, or
// "". Where those had no requests, theirs count as 0 %, so the bounds are absolute.
func (b *Bounds) excess(who string, now sample) string {
	mine, others := &now.mine, &now.others
	c, r := mine.LimitedShare(), others.LimitedShare()
	if c-r > b.Limited {
		return fmt.Sprintf("%s limited %s of %.0f requests, the other sites %s of %.0f; at most %s more is allowed",
			who, term.Percent(c), mine.Requests, term.Percent(r), others.Requests, points(b.Limited))
	}
	c, r = mine.ErrorShare(), others.ErrorShare()
	if c-r > b.Errors {
		return fmt.Sprintf("%s answered 5xx to %s of %.0f requests, the other sites to %s of %.0f; at most %s more is allowed",
			who, term.Percent(c), mine.Requests, term.Percent(r), others.Requests, points(b.Errors))
	}
	return ""
}

// risen says in which figure a subject has risen above its own past by more than the others
// did, or "".
func (b *Bounds) risen(x *subject, now sample) string {
	was := &x.before.mine
	for _, f := range []struct {
		what  string
		share func(*fleet.Traffic) float64
		most  float64
	}{{"limited", (*fleet.Traffic).LimitedShare, b.Limited}, {"answered 5xx to", (*fleet.Traffic).ErrorShare, b.Errors}} {
		had, has := f.share(was), f.share(&now.mine)
		if has-had-elsewhere(x.before, now, f.share) > f.most+margin(x.alone, had, was.Requests, has, now.mine.Requests) {
			return fmt.Sprintf("%s %s %s of %.0f requests, and %s of %.0f before; at most %s more is allowed", x.name, f.what,
				term.Percent(has), now.mine.Requests, term.Percent(had), was.Requests, points(f.most))
		}
	}
	return ""
}

// fallen says whether a subject limits much less than it did before, unlike elsewhere; "" if
// not, or if there was too little to compare with.
func (b *Bounds) fallen(x *subject, now sample) string {
	was := &x.before.mine
	if !b.enough(was) {
		return ""
	}
	had, has := was.LimitedShare(), now.mine.LimitedShare()
	less := elsewhere(x.before, now, func(t *fleet.Traffic) float64 { return -t.LimitedShare() })
	if had-has-less > b.Fewer+margin(x.alone, had, was.Requests, has, now.mine.Requests) {
		return fmt.Sprintf("%s limited %s of %.0f requests, and %s of %.0f before; at most %s less is allowed",
			x.name, term.Percent(has), now.mine.Requests, term.Percent(had), was.Requests, points(b.Fewer))
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
func (b *Bounds) slower(who string, before, now sample) string {
	const tail = 0.01
	past, whose, grown := &before.mine.Took, "before", 0.0
	if past.Counted() < float64(b.Requests) {
		past, whose = &now.others.Took, "elsewhere"
	}
	is := &now.mine.Took
	usual := past.Quantile(1 - tail)
	at := slices.IndexFunc(adminapi.RequestBounds[:], func(bound float64) bool { return bound >= b.Slower*usual })
	if b.Slower == 0 || at < 0 || is.Counted() < max(1, float64(b.Requests)) || past.Counted() < max(1, float64(b.Requests)) {
		return ""
	}
	most := adminapi.RequestBounds[at]
	share := func(d *fleet.Durations) float64 { return fleet.Ratio(d.Slower(most), d.Counted()) }
	if whose == "before" {
		grown = elsewhere(before, now, func(t *fleet.Traffic) float64 { return share(&t.Took) })
	}
	if late := share(is) - grown; late > tail && late-share(past) > chance(share(past), past.Counted(), share(is), is.Counted()) {
		return fmt.Sprintf("%s of %.0f requests to %s took longer than %s; 99 %% took at most %s %s, and %.4g times as long is allowed",
			term.Percent(share(is)), is.Counted(), who, seconds(most), seconds(usual), whose, b.Slower)
	}
	return ""
}

// enough reports whether there were enough requests for a judgment.
func (b *Bounds) enough(t *fleet.Traffic) bool { return t.Requests >= float64(b.Requests) }

func seconds(s float64) string { return time.Duration(s * float64(time.Second)).String() }

func points(share float64) string { return fmt.Sprintf("%.4g points", 100*share) }
