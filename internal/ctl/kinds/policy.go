package kinds

import (
	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Policy describes behavior policies.
var Policy = &fleet.Kind{
	Name: "policy", Path: adminapi.PathPolicy, Answer: func() fleet.NodeAnswer { return &adminapi.Policy{} }, Longest: policy.MaxBytes, Canaries: true,
	Parse: func(data []byte) (any, error) {
		made, written, err := policy.ParseDocument(data)
		if err != nil {
			return nil, err
		}
		return &PolicyBook{made, written}, nil
	},
	Registered: func(n consul.Node) (version, refused string) { return n.PolicyVersion, n.PolicyRefused },
	Schema:     policy.Schema, Reads: func(n consul.Node) int { return n.PolicySchema }, Remedy: "set its policy.source to consul",
	What: "behavior policies", Are: "are", Put: "apply", Did: "applied", Look: "regionctl policy status", Watch: "regionctl policy status --watch",
	Words: []string{"keeps its old rules", "keeps its old policy", "halve the login limit", "a lower threshold for scans"},
}

// PolicyBook is the content of a behavior policy.
type PolicyBook struct {
	Made    *policy.Policy
	Written *policy.Document
}
