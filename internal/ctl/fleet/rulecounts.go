package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// RuleCounts are the checks that an edge has decided since it started, by rule.
type RuleCounts struct {
	at    time.Time
	Rules map[string]Decided
}

// Decided counts checks by what came of them.
type Decided struct {
	Allowed float64 `json:"allowed"`
	Limited float64 `json:"limited"`
	// Shadow counts what a rule in shadow mode would have refused.
	Shadow float64 `json:"shadow_limited"`
	// Failed counts what a store that failed left undecided.
	Failed float64 `json:"failed"`
}

// Plus adds two counts.
func (d Decided) Plus(more Decided) Decided {
	return Decided{d.Allowed + more.Allowed, d.Limited + more.Limited, d.Shadow + more.Shadow, d.Failed + more.Failed}
}

// Per returns the counts a second.
func (d Decided) Per(seconds float64) Decided {
	return Decided{d.Allowed / seconds, d.Limited / seconds, d.Shadow / seconds, d.Failed / seconds}
}

const decisionsMetric = "weir_decisions_total"

// RuleCounts asks a node for them.
func (a *Admin) RuleCounts(ctx context.Context, n consul.Node) (*RuleCounts, error) {
	c := &RuleCounts{Rules: map[string]Decided{}}
	err := a.do(ctx, http.MethodGet, n, adminapi.PathMetrics, nil, c.read)
	c.at = time.Now()
	return c, err
}

func (c *RuleCounts) read(body io.Reader) error {
	families, err := readMetrics(body, func(name string) bool { return name == decisionsMetric || name == requestsMetric })
	if err != nil {
		return err
	}
	if families[requestsMetric] == nil {
		return fmt.Errorf("has no %s among its metrics; is this an edge?", requestsMetric)
	}
	for _, m := range families[decisionsMetric].GetMetric() {
		rule := label(m, "rule")
		d := c.Rules[rule]
		switch label(m, "outcome") {
		case "allowed":
			d.Allowed += value(m)
		case "limited":
			d.Limited += value(m)
		case "shadow_limited":
			d.Shadow += value(m)
		case "error":
			d.Failed += value(m)
		}
		c.Rules[rule] = d
	}
	return nil
}

// Rates are the checks a second after before, by rule; nil without one.
func (c *RuleCounts) Rates(before *RuleCounts) map[string]Decided {
	if before == nil {
		return nil
	}
	took := c.at.Sub(before.at).Seconds()
	if took <= 0 {
		return nil
	}
	// The counters of a process begin together: if one is lower, all are new.
	restarted := false
	for rule, d := range before.Rules {
		now := c.Rules[rule]
		restarted = restarted || now.Allowed < d.Allowed || now.Limited < d.Limited || now.Shadow < d.Shadow || now.Failed < d.Failed
	}
	rates := make(map[string]Decided, len(c.Rules))
	for rule, now := range c.Rules {
		if !restarted {
			was := before.Rules[rule]
			now = Decided{now.Allowed - was.Allowed, now.Limited - was.Limited, now.Shadow - was.Shadow, now.Failed - was.Failed}
		}
		rates[rule] = now.Per(took)
	}
	return rates
}
