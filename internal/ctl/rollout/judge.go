package rollout

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

const (
	// outsideLooks in a row end a change: one may be a coincidence.
	outsideLooks = 2
	// leastPast is how many requests a site must have had to be compared with its past.
	leastPast = 20

	// Flags that set bounds.
	moreLimited = "--max-limited-increase"
	more5xx     = "--max-5xx-increase"
)

// Bounds say by how much a change may make figures worse.
type Bounds struct {
	Requests int     // that are needed for a judgment
	Limited  float64 // more limited requests, as a share of all
	Errors   float64 // more 5xx answers, as a share of all
	Fewer    float64 // fewer limited requests, as a share of all
	Slower   float64 // how many times as long the 99th percentile may take; 0: any
}

// counts are the totals of all sites at one moment.
type counts map[Site]fleet.Traffic

// judge compares each subject with its own past, beside what changed at the sites without the
// version: a difference of differences, because sites differ. It has no clock and reads
// nothing.
type judge struct {
	*Bounds
	group    *Group
	before   counts
	subjects []*subject // all that is judged together, then each site
	moments  moments
	outside  int       // looks in a row
	nearest  deviation // of the group's rules over the whole soak
}

// subject is what is judged: the group, or one of its sites.
type subject struct {
	name     string
	alone    bool // a site
	includes func(Site) bool
	before   fleet.Traffic
	now      fleet.Traffic
	uneven   map[string]*uneven // by figure
	block    int                // looks: half as many as before the change
}

// newJudge returns a judge of a group. before are the totals at each look before the change.
func newJudge(b *Bounds, g *Group, before []counts) *judge {
	j := &judge{Bounds: b, group: g, before: before[len(before)-1], moments: moments{least: lately(g.Soak)}}
	j.add(g.Name, false, g.Judged, before)
	if g.Alone && g.Past {
		for _, at := range sorted(j.before) {
			if g.Judged(at) {
				j.add(at.String(), true, func(other Site) bool { return other == at }, before)
			}
		}
	}
	return j
}

func (j *judge) add(name string, alone bool, is func(Site) bool, before []counts) {
	x := &subject{name: name, alone: alone, includes: is, uneven: map[string]*uneven{}, block: max(1, (len(before)-1)/2)}
	if j.group.Past {
		for _, sites := range before {
			now := sites.of(is)
			x.noteSince(now.Since(x.before))
			x.before = now
		}
		for _, u := range x.uneven {
			u.end()
		}
	}
	j.subjects = append(j.subjects, x)
}

// of adds up some sites.
func (c counts) of(is func(Site) bool) (sum fleet.Traffic) {
	for at, t := range c {
		if is(at) {
			sum = sum.Plus(t)
		}
	}
	return sum
}

func (j *judge) others(at Site) bool { return !j.group.Has(at) }

// look says which figure is outside the bounds, over the whole soak or at its end; "" if none
// is.
func (j *judge) look(at time.Time, sites counts) (why string) {
	others := map[int]*elsewhere{}
	j.moments.add(at, sites)
	for _, x := range j.subjects {
		now := sites.of(x.includes)
		x.noteSince(now.Since(x.now))
		x.now = now
		for i, from := range []int{0, j.moments.start(at, x, float64(j.Requests))} {
			if i > 0 && from == 0 {
				break // the window is the whole soak
			}
			if others[from] == nil {
				others[from] = &elsewhere{j: j, sites: sites, from: j.moments.list[from].sites}
				others[from].sum()
			}
			reason := j.worse(x, now.Since(j.moments.list[from].sites.of(x.includes)), others[from])
			if reason != "" && i > 0 {
				reason = fmt.Sprintf("in the last %s, %s", at.Sub(j.moments.list[from].at).Round(time.Second), reason)
			}
			why = cmp.Or(why, reason)
		}
		if x == j.subjects[0] {
			j.nearest = j.furthest(x, &x.now, others[0], figuresOf(&x.before, &x.now)[2:])
		}
	}
	if j.outside++; why == "" {
		j.outside = 0
	}
	return why
}

// compared shows the figures of the group beside its past or, if that is unknown, the other
// sites, by which it is then judged; and the rule whose share may end the change, if one is near its bound.
func (j *judge) compared(sites counts) string {
	x := j.subjects[0]
	baseline, what := x.before, "before"
	if baseline.Requests < leastPast {
		baseline, what = sites.of(j.others), "elsewhere"
	}
	text := fmt.Sprintf("%.0f requests, limited %s (%s %s), 5xx %s (%s %s)", x.now.Requests, term.Percent(x.now.LimitedShare()), what,
		term.Percent(baseline.LimitedShare()), term.Percent(x.now.ErrorShare()), what, term.Percent(baseline.ErrorShare()))
	if d := &j.nearest; what == "before" && j.enough(&x.now) && d.beyond > -d.most/2 {
		state := "nears"
		if d.beyond > 0 {
			state = "is beyond"
		}
		text = fmt.Sprintf("%s %s its bound: limited %s (before %s%s; %s allows %s); %s", term.Printable(d.name), state, term.Percent(d.is), term.Percent(d.was), d.elsewhere(), d.flag, points(d.most), text)
	}
	return text
}

// figure is a share of all requests.
type figure struct {
	name string
	what string // that was done to them, after the name of a subject
	part func(*fleet.Traffic) float64
}

var (
	limited = figure{"limited", " limited %s", func(t *fleet.Traffic) float64 { return t.Limited }}
	errored = figure{"5xx", " answered 5xx to %s", func(t *fleet.Traffic) float64 { return t.Errors }}
)

// figuresOf returns those that some traffic has, the rules' last.
func figuresOf(all ...*fleet.Traffic) []figure {
	list, known := []figure{limited, errored}, map[string]bool{}
	for _, t := range all {
		for id := range t.Rules {
			known[id] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		list = append(list, figure{"rule " + id, ": rule " + term.Printable(id) + " limited %s", func(t *fleet.Traffic) float64 { return t.Rules[id] }})
	}
	return list
}

func (f *figure) share(t *fleet.Traffic) float64 { return fleet.Ratio(f.part(t), t.Requests) }

// worse says in which figure a subject left its own past further than the others did; "" if
// in none, or if there was too little to judge. Without a past it is compared with the others.
func (j *judge) worse(x *subject, now fleet.Traffic, others *elsewhere) string {
	switch {
	case !j.enough(&now):
		return ""
	case x.alone && !j.enough(&x.before):
		return ""
	case x.before.Requests >= leastPast:
		return cmp.Or(j.moved(x, &now, others), j.slower(x, &now, others))
	}
	return cmp.Or(j.excess(x.name, &now, others, &limited, j.Limited, moreLimited), j.excess(x.name, &now, others, &errored, j.Errors, more5xx), j.slower(x, &now, others))
}

// deviation is how far a figure of a subject has left its past.
type deviation struct {
	figure
	was, is float64
	most    float64 // that flag allows
	flag    string
	beyond  float64 // most, the others' change, and chance
	others  *common
}

// furthest returns which figure of a subject is furthest beyond its bound, or else closest to
// it. Where a rule and the sum are, it is the rule.
func (j *judge) furthest(x *subject, now *fleet.Traffic, others *elsewhere, figures []figure) (far deviation) {
	far.beyond = math.Inf(-1)
	for _, f := range figures {
		d := deviation{figure: f, was: f.share(&x.before), is: f.share(now), most: j.Limited, flag: moreLimited, others: others.change(&f)}
		difference := d.is - d.was - d.others.beside(d.is-d.was)
		switch {
		case f.name == errored.name:
			d.most, d.flag = j.Errors, more5xx
			difference = max(0, difference)
		case difference < 0:
			d.most, d.flag = j.Fewer, "--max-limited-decrease"
		}
		d.beyond = math.Abs(difference) - d.most - x.chance(&f, now, d.others)
		if d.beyond >= far.beyond { // never if it is not a number
			far = d
		}
	}
	return far
}

// moved says which figure of a subject is furthest beyond its bound; "" if none is.
func (j *judge) moved(x *subject, now *fleet.Traffic, others *elsewhere) (why string) {
	d := j.furthest(x, now, others, figuresOf(&x.before, now))
	if d.beyond <= 0 {
		return ""
	}
	why = x.name + fmt.Sprintf(d.what, fmt.Sprintf("%s of %.0f requests, and %s of %.0f before", term.Percent(d.is), now.Requests, term.Percent(d.was), x.before.Requests))
	return why + fmt.Sprintf("%s; %s allows %s", d.elsewhere(), d.flag, points(d.most))
}

// elsewhere says how the figure changed at the other sites, if there are any.
func (d *deviation) elsewhere() string {
	if d.others.sites == 0 {
		return ""
	}
	return fmt.Sprintf("; elsewhere the share changed by %+.2f points", 100*d.others.common)
}

// excess says whether a figure is beyond its bound, compared with the others, or "". Where
// those had no requests, theirs count as 0%, so the bounds are absolute.
func (j *judge) excess(who string, now *fleet.Traffic, others *elsewhere, f *figure, most float64, flag string) string {
	is, than := f.share(now), f.share(&others.now)
	if is-than <= most {
		return ""
	}
	return who + fmt.Sprintf(f.what, fmt.Sprintf("%s of %.0f requests, the other sites %s of %.0f, and what it did before is unknown; %s allows %s more",
		term.Percent(is), now.Requests, term.Percent(than), others.now.Requests, flag, points(most)))
}

// slower says whether the 99th percentile of durations exceeds its bound, compared with its
// own past or, without one, with the others; "" if not, or if chance explains it. Nodes
// count durations only in the steps of adminapi.RequestBounds.
func (j *judge) slower(x *subject, now *fleet.Traffic, others *elsewhere) string {
	const tail = 0.01
	past, whose, grown := &x.before.Took, "before", 0.0
	if past.Counted() < float64(j.Requests) {
		past, whose = &others.now.Took, "elsewhere"
	}
	is := &now.Took
	usual := past.Quantile(1 - tail)
	at := slices.IndexFunc(adminapi.RequestBounds[:], func(bound float64) bool { return bound >= j.Slower*usual })
	if j.Slower == 0 || at < 0 || is.Counted() < max(1, float64(j.Requests)) || past.Counted() < max(1, float64(j.Requests)) {
		return ""
	}
	most := adminapi.RequestBounds[at]
	share := func(d *fleet.Durations) float64 { return fleet.Ratio(d.Slower(most), d.Counted()) }
	if whose == "before" && others.now.Requests > 0 && others.before.Requests > 0 {
		grown = max(0, share(&others.now.Took)-share(&others.before.Took))
	}
	p := fleet.Ratio(is.Slower(most)+past.Slower(most), is.Counted()+past.Counted())
	by := 4 * math.Sqrt(p*(1-p)*(1/is.Counted()+1/past.Counted()))
	if late := share(is) - grown; late > tail && late-share(past) > by {
		return fmt.Sprintf("%s of %.0f requests to %s took longer than %s; 99%% took at most %s %s, and --max-p99-factor allows %.4g times as long",
			term.Percent(share(is)), is.Counted(), x.name, seconds(most), seconds(usual), whose, j.Slower)
	}
	return ""
}

// enough reports whether there were enough requests for a judgment.
func (b *Bounds) enough(t *fleet.Traffic) bool { return t.Requests >= float64(b.Requests) }

func seconds(s float64) string { return time.Duration(s * float64(time.Second)).String() }

func points(share float64) string { return fmt.Sprintf("%.4g points", 100*share) }
