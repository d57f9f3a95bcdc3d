package kinds

import (
	"net/url"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Rules describes the rules.
var Rules = &fleet.Kind{
	Name: "rules", Path: adminapi.PathRules, Answer: func() fleet.NodeAnswer { return &adminapi.Rules{} }, Query: url.Values{"brief": {""}}, Longest: rules.MaxBytes, Canaries: true,
	Parse: func(data []byte) (any, error) {
		set, written, err := rules.LoadDocument(data)
		if err != nil {
			return nil, err
		}
		return &RuleBook{set, written.Rules}, nil
	},
	Registered: func(n consul.Node) (version, refused string) { return n.RulesVersion, n.RulesRefused },
	Schema:     rules.Schema, Reads: func(n consul.Node) int { return n.Schema }, Remedy: UpdateFirst,
	What: "rules", Are: "are", Put: "apply", Did: "applied", Look: "regionctl rules status", Watch: "regionctl rules status --watch",
}

// RuleBook is the content of a rule document.
type RuleBook struct {
	Set     *rules.Set
	Written []rules.Rule // as written, by the index of set
}

func (b *RuleBook) Warnings() []string { return b.Set.Warnings() }

// Enforces reports whether a rule refuses requests.
func (b *RuleBook) Enforces(rule string) bool {
	r, known := b.Set.Rule(rule)
	return known && r.Mode == rules.Enforce
}

func RulesOf(d *fleet.Document) *RuleBook { return d.Body.(*RuleBook) }
