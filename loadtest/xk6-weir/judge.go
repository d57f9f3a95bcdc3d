package weir

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/grafana/sobek"
	"go.k6.io/k6/js/common"

	"github.com/weir-edge/weir/loadtest/xk6-weir/oracle"
)

// ruleOptions is a rule as in a rule document. Fields that do not affect the count are
// accepted, so that a rule can be copied from there.
type ruleOptions struct {
	ID          string   `json:"id"`
	As          string   `json:"as"`
	Key         []string `json:"key"`
	Algorithm   string   `json:"algorithm"`
	Limit       int64    `json:"limit"`
	Window      duration `json:"window"`
	Burst       *int64   `json:"burst"`
	MinInterval duration `json:"min_interval"`
	CountDenied bool     `json:"count_denied"`
	Cost        *int64   `json:"cost"`
	Hold        duration `json:"hold"`

	Match json.RawMessage `json:"match"`

	Description    any `json:"description"`
	Storage        any `json:"storage"`
	Missing        any `json:"missing"`
	Mode           any `json:"mode"`
	OnStoreFailure any `json:"on_store_failure"`

	Consistency string `json:"consistency"`
	Scope       string `json:"scope"`
	Global      any    `json:"global"`

	// Delay and Nodes are no fields of a rule document: see oracle.Rule.
	Delay duration `json:"delay"`
	Nodes int64    `json:"nodes"`
}

type declared struct {
	rule oracle.Rule
	cost int64
	as   string // the edge's name for it
	// client is the network counted by, if it is the whole key.
	client network
}

func (o *ruleOptions) rule() declared {
	d := declared{rule: oracle.Rule{
		ID: o.ID, Algorithm: o.Algorithm, Limit: o.Limit, Window: time.Duration(o.Window), Burst: -1,
		MinInterval: time.Duration(o.MinInterval), CountDenied: o.CountDenied, Leased: o.Consistency == "leased", Hold: time.Duration(o.Hold),
		Delay: time.Duration(o.Delay), Nodes: o.Nodes, Global: o.Scope == "global",
	}, cost: 1, as: cmp.Or(o.As, o.ID)}
	if o.Burst != nil {
		d.rule.Burst = *o.Burst
	}
	if o.Cost != nil {
		d.cost = *o.Cost
	}
	if o.Key != nil {
		d.rule.Subject = "*"
		if len(o.Key) > 0 {
			d.rule.Subject = o.Key[0]
			if n, known := networkOf(o.Key[0]); known {
				d.rule.Subject = fmt.Sprint(n) // one network may be written in two ways
				if len(o.Key) == 1 {
					d.client = n
				}
			}
		}
	}
	return d
}

// oracleOptions are those of oracle.Options.
type oracleOptions struct {
	Fresh       bool     `json:"fresh"`
	ClockError  duration `json:"clockError"`
	Late        duration `json:"late"`
	Release     duration `json:"release"`
	RetrySlack  duration `json:"retrySlack"`
	MaxKeys     int      `json:"maxKeys"`
	MaxRequests int      `json:"maxRequests"`
}

// Judge is the oracle as a script sees it.
type Judge struct{ m *Module }

// oracle returns the process's oracle. The first call with options creates it.
func (m *Module) oracle(options sobek.Value) *Judge {
	if err := m.root.makeOracle(options); err != nil {
		common.Throw(m.vu.Runtime(), err)
	}
	return &Judge{m}
}

func (r *Root) makeOracle(v sobek.Value) error {
	var o oracleOptions
	if err := decode(v, "oracle", &o); err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.oracle == nil {
		r.options = string(text)
		r.oracle = oracle.New(oracle.Options{
			Fresh: o.Fresh, ClockError: time.Duration(o.ClockError), Late: time.Duration(o.Late), Release: time.Duration(o.Release),
			RetrySlack: time.Duration(o.RetrySlack), MaxKeys: o.MaxKeys, MaxRequests: o.MaxRequests,
		})
	} else if !common.IsNullish(v) && r.options != string(text) {
		return errors.New("oracle: other options than at first; there is one oracle in a process, give them once in the init context")
	}
	return nil
}

// judge returns the oracle, creating it with the defaults if necessary.
func (r *Root) judge() *oracle.Oracle {
	_ = r.makeOracle(nil) // without options it cannot fail
	return r.oracle
}

// Rule declares a rule. Every VU does so in its init context; declaring the same rule
// again changes nothing.
func (j *Judge) Rule(options sobek.Value) {
	if err := j.m.root.declare(options, -1); err != nil {
		common.Throw(j.m.vu.Runtime(), err)
	}
}

// Replace says that a rule changes now. It is not judged until settle has passed.
func (j *Judge) Replace(options sobek.Value, settle string) {
	d := 5 * time.Second
	var err error
	if settle != "" {
		if d, err = time.ParseDuration(settle); err != nil || d < 0 {
			err = fmt.Errorf("replace: settle: must be a duration such as \"5s\" (got %q)", settle)
		}
	}
	if err == nil {
		err = j.m.root.declare(options, d)
	}
	if err != nil {
		common.Throw(j.m.vu.Runtime(), err)
	}
}

// declare records a rule; settle is negative if the rule does not replace another.
func (r *Root) declare(v sobek.Value, settle time.Duration) error {
	var o ruleOptions
	if err := decode(v, "rule", &o); err != nil {
		return err
	}
	made, judge := o.rule(), r.judge()
	exempt, err := exemptionOf(o.Match)
	if err != nil {
		return fmt.Errorf("rule %q: %w", o.ID, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before, known := r.declared[o.ID]
	if known && settle < 0 {
		if before != made {
			return fmt.Errorf("rule %q: was declared differently; announce a change with replace()", o.ID)
		}
		return nil
	}
	if err := judge.Declare(made.rule, max(0, settle)); err != nil {
		return err
	}
	if !known { // a VU that starts later declares what the script says, not what replaced it
		r.declared[o.ID] = made
	}
	r.costs[o.ID], r.exempt[o.ID] = made.cost, exempt
	return nil
}

// cost is what a request costs under a rule unless the request says otherwise.
func (r *Root) cost(id string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.costs[id]
}

// named returns the edge's name for a rule.
func (r *Root) named(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.declared[id].as
}

// Phase names the part of the test that begins now.
func (j *Judge) Phase(name string) {
	j.m.root.mu.Lock()
	defer j.m.root.mu.Unlock()
	j.m.root.phase = name
}

// Finish judges the rest. Call it in teardown().
func (j *Judge) Finish() {
	root := j.m.root
	root.mu.Lock()
	unsent := root.unsent
	root.unsent = nil
	root.mu.Unlock()
	j.m.verdicts(append(unsent, root.judge().Finish()...))
}

// Report returns what was found so far. It also works in handleSummary().
func (j *Judge) Report() []map[string]any {
	report := []map[string]any{}
	for _, l := range j.m.root.judge().Report() {
		line := map[string]any{
			"region": l.Region, "rule": l.Rule, "phase": l.Phase,
			"admitted": l.Admitted, "refused": l.Refused, "unknown": l.Unknown, "unjudged": l.Unjudged,
			"overadmitted": l.Overadmitted, "wronglyRefused": l.WronglyRefused,
			"retryChecked": l.RetryChecked, "retryWrong": l.RetryWrong, "retryWorstSeconds": l.RetryWorst,
		}
		if w := l.Worst; w.Excess > 0 {
			line["worst"] = map[string]any{
				"key": w.Key, "at": w.At.UTC().Format(time.RFC3339Nano), "excess": w.Excess, "limit": w.Limit,
				"window": w.Window.String(), "percent": 100 * float64(w.Excess) / float64(w.Limit),
			}
		}
		report = append(report, line)
	}
	return report
}

// verdicts turns verdicts into samples. An interrupted VU's are left to Finish.
func (m *Module) verdicts(all []oracle.Verdict) {
	for i := range all {
		v := &all[i]
		tags := map[string]string{"region": v.Region, "rule": v.Rule, "phase": v.Phase}
		key := map[string]string{"key": v.Key}
		sent := false
		switch v.Kind {
		case oracle.Overadmitted:
			sent = m.emit(m.metrics.overadmitted, v.Value, tags, key)
		case oracle.WronglyRefused:
			sent = m.emit(m.metrics.wronglyRefused, v.Value, tags, key)
		case oracle.RetryAfter:
			sent = m.emit(m.metrics.retryAfterError, 1000*max(v.Value, -v.Value), tags, key) || v.Value == 0
		}
		if !sent {
			m.root.mu.Lock()
			m.root.unsent = append(m.root.unsent, *v)
			m.root.mu.Unlock()
		}
	}
}

// show makes a rule's counters appear in the summary even if nothing is wrong.
func (m *Module) show(region, rule string) {
	id := [2]string{region, rule}
	m.root.mu.Lock()
	seen := m.root.seen[id]
	m.root.seen[id] = true
	m.root.mu.Unlock()
	if !seen {
		tags := map[string]string{"region": region, "rule": rule}
		m.emit(m.metrics.overadmitted, 0, tags, nil)
		m.emit(m.metrics.wronglyRefused, 0, tags, nil)
	}
}
