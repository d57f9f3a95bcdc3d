package oracle

import (
	"sort"
	"sync"
	"time"
)

// Kind is what a verdict is about.
type Kind uint8

// The kinds.
const (
	// Overadmitted: Value requests passed beyond what any decision times allow.
	Overadmitted Kind = iota
	// WronglyRefused: no decision times explain the refusal.
	WronglyRefused
	// RetryAfter: Value seconds is how far the stated time is from every decision-time
	// explanation; negative if it is too short, 0 if it fits.
	RetryAfter
)

// Verdict is one proof, or for RetryAfter the result of one comparison.
type Verdict struct {
	Kind                     Kind
	Region, Rule, Key, Phase string
	Value                    float64
	// Excess is how much of the window that ends with this request was proven beyond
	// the limit; Overadmitted only.
	Excess int64
	// Sent and Answered are the request's, in Unix microseconds, widened by ClockError.
	Sent, Answered int64
}

// maxPending bounds a key's refusals that wait for requests in flight.
const maxPending = 10_000

// judge judges the refusals that no future event can explain.
func (c *count) judge(o *Oracle, now int64, verdicts []Verdict) []Verdict {
	late := o.options.Late.Microseconds()
	for len(c.pending) > 0 {
		r := &c.pending[0]
		if !c.settled(r) && now-r.answered < late && len(c.pending) < maxPending {
			break
		}
		verdicts = c.judgeOne(o, r, verdicts)
		c.pending = c.pending[1:]
	}
	if len(c.pending) == 0 {
		c.pending = nil
	}
	return verdicts
}

func (c *count) judgeOne(o *Oracle, r *refusal, verdicts []Verdict) []Verdict {
	v := Verdict{
		Region: c.tag.region, Rule: c.tag.rule, Key: c.tag.key, Phase: r.phase,
		Sent: r.sent, Answered: r.answered,
	}
	if c.rule.Leased || c.rule.Global || c.rule.Delay > 0 || c.rule.method.lookback(r.sent) < c.known {
		o.report.unjudged(c.tag, r.phase)
		return verdicts
	}
	if !c.rule.method.mayRefuse(c, r) {
		v.Kind, v.Value = WronglyRefused, 1
		return append(verdicts, v)
	}
	if r.retry < 0 || c.rule.Algorithm == "concurrency" {
		return verdicts
	}
	shortest, longest := c.rule.method.wait(c, r)
	v.Kind = RetryAfter
	const second = 1_000_000
	if stated := r.retry * second; stated+o.options.RetrySlack.Microseconds() < shortest {
		v.Value = float64(stated-shortest) / second
	} else if most := max(1, ceilDiv(longest, second)); r.only && r.retry > most {
		v.Value = float64(r.retry - most)
	}
	return append(verdicts, v)
}

// Line is what is known about one rule in one region and phase.
type Line struct {
	Region, Rule, Phase string

	Admitted, Refused, Unknown int64
	// Unjudged refusals may be due to requests from before the oracle knew the key.
	Unjudged int64

	Overadmitted, WronglyRefused int64
	// RetryChecked of the refusals stated a retry-after; RetryWrong of these were wrong,
	// by at most RetryWorst seconds.
	RetryChecked, RetryWrong int64
	RetryWorst               float64

	// Worst is the window exceeded most.
	Worst Worst
}

// Worst is the window exceeded most.
type Worst struct {
	Key    string
	At     time.Time
	Excess int64
	Limit  int64
	Window time.Duration
}

// tally collects the report.
type tally struct {
	sync.Mutex
	lines map[lineKey]*Line
}

func (t *tally) line(region, rule, phase string) *Line {
	id := lineKey{region, rule, phase}
	l := t.lines[id]
	if l == nil {
		l = &Line{Region: region, Rule: rule, Phase: phase}
		t.lines[id] = l
	}
	return l
}

func (t *tally) answered(p counter, a Answer) {
	t.Lock()
	defer t.Unlock()
	l := t.line(p.region, p.rule, a.Phase)
	switch a.Outcome {
	case Admitted:
		l.Admitted++
	case Refused:
		l.Refused++
	case Unknown:
		l.Unknown++
	}
}

func (t *tally) unjudged(p counter, phase string) {
	t.Lock()
	defer t.Unlock()
	t.line(p.region, p.rule, phase).Unjudged++
}

func (t *tally) proven(verdicts []Verdict, r *rule) {
	if len(verdicts) == 0 {
		return
	}
	t.Lock()
	defer t.Unlock()
	for i := range verdicts {
		v := &verdicts[i]
		l := t.line(v.Region, v.Rule, v.Phase)
		switch v.Kind {
		case Overadmitted:
			l.Overadmitted += int64(v.Value)
			if v.Excess > l.Worst.Excess {
				l.Worst = Worst{v.Key, time.UnixMicro(v.Answered), v.Excess, r.Limit, r.Window}
			}
		case WronglyRefused:
			l.WronglyRefused++
		case RetryAfter:
			l.RetryChecked++
			if v.Value != 0 {
				l.RetryWrong++
				l.RetryWorst = max(l.RetryWorst, v.Value, -v.Value)
			}
		}
	}
}

// Report returns what was found so far, ordered by region, rule and phase.
func (o *Oracle) Report() []Line {
	o.report.Lock()
	defer o.report.Unlock()
	lines := make([]Line, 0, len(o.report.lines))
	for _, l := range o.report.lines {
		lines = append(lines, *l)
	}
	sort.Slice(lines, func(i, j int) bool {
		a, b := &lines[i], &lines[j]
		if a.Region != b.Region {
			return a.Region < b.Region
		}
		if a.Rule != b.Rule {
			return a.Rule < b.Rule
		}
		return a.Phase < b.Phase
	})
	return lines
}

type lineKey struct{ region, rule, phase string }
