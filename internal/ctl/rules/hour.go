package rules

import (
	"context"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/hour"
	"github.com/weir-edge/weir/internal/ctl/kinds"
)

// Hour is what Prometheus has of the last hour.
type Hour struct {
	hour.Last
	// Rules are those that decided something, by their IDs.
	Rules map[string]*RuleHour `json:"rules"`
}

// RuleHour is the last hour of one rule.
type RuleHour struct {
	Total fleet.Decided `json:"total"`
	// PerSecond are the decisions per second in each minute of it, the oldest first.
	PerSecond []float64 `json:"per_second"`
}

// LastHour asks Prometheus for the last hour of these regions.
func LastHour(ctx context.Context, p *command.Program, names []string) (*Hour, error) {
	h := &Hour{hour.Of(p, kinds.Rules, names), map[string]*RuleHour{}}
	h.Total(ctx, fleet.DecisionsMetric, "", "rule, outcome", func(of map[string]string, n float64) {
		h.rule(of["rule"]).Total.Add(of["outcome"], n)
	})
	h.PerSecond(ctx, fleet.DecisionsMetric, "", "rule", func(of map[string]string, rates []float64) {
		h.rule(of["rule"]).PerSecond = rates
	})
	if err := h.Err(); err != nil {
		return nil, err
	}
	return h, nil
}

func (h *Hour) rule(id string) *RuleHour {
	if h.Rules[id] == nil {
		h.Rules[id] = &RuleHour{PerSecond: make([]float64, hour.Minutes)}
	}
	return h.Rules[id]
}
