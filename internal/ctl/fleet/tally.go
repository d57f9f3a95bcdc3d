package fleet

import (
	"maps"
	"math"

	"github.com/weir-edge/weir/internal/adminapi"
)

// Traffic is what happened in a group of nodes since the first look at each.
type Traffic struct {
	Requests float64   `json:"requests"`
	Limited  float64   `json:"limited"`
	Errors   float64   `json:"errors_5xx"`
	Took     Durations `json:"-"`
	// Rules counts the limited ones by rule, if the figures do; Shadow, what rules in shadow mode
	// would have limited. They are never changed.
	Rules  map[string]float64 `json:"-"`
	Shadow map[string]float64 `json:"-"`
}

func (t *Traffic) LimitedShare() float64 { return Ratio(t.Limited, t.Requests) }
func (t *Traffic) ErrorShare() float64   { return Ratio(t.Errors, t.Requests) }

// Since returns what was added to an earlier total.
func (t Traffic) Since(before Traffic) Traffic { return t.plus(before, -1) }

// Plus adds two totals.
func (t Traffic) Plus(more Traffic) Traffic { return t.plus(more, 1) }

func (t Traffic) plus(more Traffic, sign float64) Traffic {
	t.Requests += sign * more.Requests
	t.Limited += sign * more.Limited
	t.Errors += sign * more.Errors
	for i, n := range more.Took {
		t.Took[i] += sign * n
	}
	t.Rules, t.Shadow = plusRules(t.Rules, more.Rules, sign), plusRules(t.Shadow, more.Shadow, sign)
	return t
}

func plusRules(rules, more map[string]float64, sign float64) map[string]float64 {
	if len(more) == 0 {
		return rules
	}
	if rules = maps.Clone(rules); rules == nil {
		rules = map[string]float64{}
	}
	for rule, n := range more {
		rules[rule] += sign * n
	}
	return rules
}

// Durations counts requests by how long they took: those within each of
// adminapi.RequestBounds, and the total.
type Durations [len(adminapi.RequestBounds) + 1]float64

// Counted returns how many requests it knows of.
func (d *Durations) Counted() float64 { return d[len(d)-1] }

// Quantile returns the smallest bound, in seconds, within which the given share of requests
// finished; infinite if there is none.
func (d *Durations) Quantile(share float64) float64 {
	for i, bound := range adminapi.RequestBounds {
		if d.Counted() > 0 && d[i] >= share*d.Counted() {
			return bound
		}
	}
	return math.Inf(1)
}

// Slower counts the requests that took longer than a bound, which must be one of
// adminapi.RequestBounds.
func (d *Durations) Slower(bound float64) float64 {
	for i, b := range adminapi.RequestBounds {
		if b == bound {
			return d.Counted() - d[i]
		}
	}
	return 0
}

func Ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// Tally adds up the traffic of a group of nodes.
type Tally struct {
	Total Traffic
	last  map[string]*Figures // by node
}

func (t *Tally) Add(node string, now *Figures) {
	if t.last == nil {
		t.last = map[string]*Figures{}
	}
	if before := t.last[node]; before != nil {
		t.Total = t.Total.Plus(now.grown(before))
	}
	t.last[node] = now
}

// grown returns what was counted since before. If the node has restarted, all of its counts
// are new; so are those of a rule that was removed and added meanwhile.
func (f *Figures) grown(before *Figures) Traffic {
	if f.restarted(before) {
		return f.traffic()
	}
	grown := f.traffic().Since(before.traffic())
	grown.Rules, grown.Shadow = counted(grown.Rules, f.limitedBy), counted(grown.Shadow, f.shadowBy)
	return grown
}

// counted replaces what fell by what is counted now.
func counted(grown, now map[string]float64) map[string]float64 {
	for id, n := range grown {
		if n < 0 {
			grown[id] = now[id]
		}
	}
	return grown
}

// restarted reports whether the counts are from a different process than before: one
// counter is lower. The process start time is no evidence, because it changes with the
// clock.
func (f *Figures) restarted(before *Figures) bool {
	fewer := f.total() < before.total() || f.limited < before.limited || f.took.Counted() < before.took.Counted()
	for class, n := range f.requests {
		fewer = fewer || n < before.requests[class]
	}
	return fewer
}

func (f *Figures) traffic() Traffic {
	return Traffic{Requests: f.total(), Limited: f.limited, Errors: f.requests["5xx"], Took: f.took, Rules: f.limitedBy, Shadow: f.shadowBy}
}
