package fleet

import (
	"context"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// RuleCounts are the checks that an edge has decided since it started. With many edges and
// rules there are many, so each takes only 32 bytes.
type RuleCounts struct {
	at     time.Time
	index  map[string]int // of rules, in counts
	counts []Decided
}

// Decided counts checks by outcome.
type Decided struct {
	Allowed float64 `json:"allowed"`
	Limited float64 `json:"limited"`
	// Shadow counts what a rule in shadow mode would have refused.
	Shadow float64 `json:"shadow_limited"`
	// Failed counts checks left undecided because the store failed.
	Failed float64 `json:"failed"`
}

// Plus adds two counts.
func (d Decided) Plus(more Decided) Decided {
	return Decided{d.Allowed + more.Allowed, d.Limited + more.Limited, d.Shadow + more.Shadow, d.Failed + more.Failed}
}

func (d *Decided) Add(outcome string, n float64) {
	switch outcome {
	case "allowed":
		d.Allowed += n
	case "limited":
		d.Limited += n
	case "shadow_limited":
		d.Shadow += n
	case "error":
		d.Failed += n
	}
}

func (d Decided) Per(seconds float64) Decided {
	return Decided{d.Allowed / seconds, d.Limited / seconds, d.Shadow / seconds, d.Failed / seconds}
}

// DecisionsMetric has the decisions of each rule.
const DecisionsMetric = "weir_decisions_total"

// RuleCounts asks a node what it decided under the rules that have a place, from 0 on.
func (a *Admin) RuleCounts(ctx context.Context, n consul.Node, index map[string]int) (*RuleCounts, error) {
	c := &RuleCounts{index: index, counts: make([]Decided, len(index))}
	err := a.metrics(ctx, n, []string{DecisionsMetric, requestsMetric}, c.read)
	c.at = time.Now()
	return c, err
}

func (c *RuleCounts) read(families families) error {
	if err := families.ofEdge(); err != nil {
		return err
	}
	for _, m := range families[DecisionsMetric].GetMetric() {
		pos, known := c.index[label(m, "rule")]
		if !known {
			continue
		}
		c.counts[pos].Add(label(m, "outcome"), value(m))
	}
	return nil
}

// Totals returns the checks since the edge started, by the places of the rules.
func (c *RuleCounts) Totals() []Decided { return c.counts }

// Age is how long ago the edge was asked.
func (c *RuleCounts) Age() time.Duration { return time.Since(c.at) }

// Since returns the checks since before, by the places of the rules, and how many seconds that is;
// nil without it.
func (c *RuleCounts) Since(before *RuleCounts) (grown []Decided, took float64) {
	if before == nil {
		return nil, 0
	}
	took = c.at.Sub(before.at).Seconds()
	was := make([]Decided, len(c.counts))
	// The counters of a process begin together: if one is lower, all are new.
	restarted := false
	for rule, pos := range c.index {
		if p, known := before.index[rule]; known {
			was[pos] = before.counts[p]
		}
		now, d := c.counts[pos], was[pos]
		restarted = restarted || now.Allowed < d.Allowed || now.Limited < d.Limited || now.Shadow < d.Shadow || now.Failed < d.Failed
	}
	for pos, now := range c.counts {
		if d := was[pos]; !restarted {
			now = Decided{now.Allowed - d.Allowed, now.Limited - d.Limited, now.Shadow - d.Shadow, now.Failed - d.Failed}
		}
		was[pos] = now
	}
	return was, took
}
