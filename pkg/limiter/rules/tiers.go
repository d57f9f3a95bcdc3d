package rules

import (
	"strings"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter"
)

func (v *reader) tiers(written map[string]string, c *Compiled) map[string]*limiter.Limit {
	if written != nil && len(written) == 0 {
		v.bad("tiers", "is empty; name at least one tier, or remove it")
	}
	if len(written) > maxTiers {
		v.bad("tiers", "has more than %d tiers (got %d)", maxTiers, len(written))
		return nil
	}
	tiers := make(map[string]*limiter.Limit, len(written))
	for name, text := range sorted(written) {
		at := "tiers." + field.Name(name)
		risk, isRisk := strings.CutPrefix(name, riskPrefix)
		switch {
		case isRisk && !riskName(risk):
			v.bad(at, "must name a tier of the behavior policy after risk: with 1 to %d lower-case letters, digits and hyphens, as in risk:suspicious", maxRisk)
			continue
		case !isRisk && (name == "" || len(name) > maxName || !tierName(name)):
			v.bad(at, "must have a name of 1 to %d letters, digits, -, _ and .; risk:NAME is a tier of the behavior policy", maxName)
			continue
		}
		if text == "unlimited" {
			tiers[name] = nil
			continue
		}
		if n, ok := v.number(at, text, "unlimited"); ok {
			tiers[name] = v.tier(at, name, n, c)
		}
	}
	return tiers
}

// MildestRisk is the risk of a request without a policy, and of one that the policy puts
// into its mildest tier, whatever its name.
const MildestRisk = "normal"

const (
	riskPrefix = "risk:"
	maxRisk    = 32
)

// riskName reports whether a behavior policy may have a tier of that name.
func riskName(s string) bool {
	return s != "" && len(s) <= maxRisk && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// risksOf returns the risk tiers among tiers, or nil if there are none.
func risksOf(tiers map[string]*limiter.Limit) (risks map[string]*limiter.Limit) {
	for name, l := range tiers {
		if risk, ok := strings.CutPrefix(name, riskPrefix); ok {
			if risks == nil {
				risks = map[string]*limiter.Limit{}
			}
			risks[risk] = l
		}
	}
	return risks
}

func tierName(s string) bool {
	return isToken(s) && !strings.ContainsAny(s, "!#$%&'*+^`|~")
}

// tier returns the rule's limit scaled to n.
func (v *reader) tier(at, name string, n int64, c *Compiled) *limiter.Limit {
	base := c.Limit
	l := &limiter.Limit{
		Rule: base.Rule, Algorithm: base.Algorithm, Storage: base.Storage, Limit: n,
		Window: base.Window, MinInterval: base.MinInterval,
		CountDenied: base.CountDenied, Leased: base.Leased, Shadow: base.Shadow, OnFailure: base.OnFailure,
		Global: forTier(base.Global, name),
	}
	if n < 1 || n > limiter.MaxCount {
		v.bad(at, "must be between 1 and %d, or unlimited (got %d)", limiter.MaxCount, n)
		return nil
	}
	l.Burst = (base.Burst*n + base.Limit - 1) / base.Limit
	errs := l.Validate()
	for _, e := range errs {
		if e.Path != "limit" {
			v.bad(at, "%s in proportion: %s", e.Path, e.Msg)
			continue
		}
		v.bad(at, "%s", e.Msg)
	}
	if errs == nil && c.CostHeader != "" && l.Storage == limiter.SortedSet && n > limiter.MaxEntries {
		v.bad(at, "must be at most %d with storage sorted_set and a cost of header:%s (got %d); %s", limiter.MaxEntries, c.CostHeader, n, otherStorage)
	}
	if errs == nil && c.Cost > l.MaxCost() {
		v.bad(at, "the cost of %d can never pass: at most %d fits; lower the cost or raise the tier", c.Cost, l.MaxCost())
	}
	return l
}
