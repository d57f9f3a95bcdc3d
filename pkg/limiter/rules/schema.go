package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/limiter"
)

// Schema is the newest document schema that this release reads. It increases with each
// field or word that the previous release rejects; documents do not state it.
//
//	1  the first
//	2  match.not; client_ip/N and client_net in keys
//	3  high: auto in the shedder's settings
//	4  storage: large_ring
//	5  consistency
//	6  consistency: reported
//	7  descriptors
//	8  scope
//	9  risk in keys and tiers
//	10 global.mode: escrow
//	11 under_load
//	12 experiment
//	14 consistency: leased with global.mode: escrow
const Schema = 14

// Needs returns the schema that a node must support to read these rules, and which field
// needs it and why; "" for 1. It depends on the text: even client_ip/64, which equals
// client_ip, is a word that schema 1 lacks.
func Needs(list []Rule) (schema int, what string) {
	schema = 1
	for i := range list {
		needs, word := list[i].needs(fmt.Sprintf("rules[%d].", i))
		if needs > schema {
			schema, what = needs, word
		}
	}
	return schema, what
}

func (r *Rule) needs(at string) (schema int, what string) {
	if r.Global != nil && r.Global.Mode == "escrow" && r.Consistency == "leased" {
		return 14, at + "consistency: leased with global.mode: escrow"
	}
	if r.Experiment != nil {
		return 12, at + "experiment"
	}
	if r.UnderLoad != nil {
		return 11, at + "under_load"
	}
	if r.Global != nil && r.Global.Mode == "escrow" {
		return 10, at + "global.mode: escrow"
	}
	if needs, word := r.needsRisk(at); needs > 0 {
		return needs, word
	}
	switch {
	case r.Scope != "":
		return 8, at + "scope"
	case r.Global != nil:
		return 8, at + "global"
	case r.Descriptors != nil:
		return 7, at + "descriptors"
	case r.Consistency == "reported":
		return 6, at + "consistency: reported"
	case r.Consistency != "":
		return 5, at + "consistency"
	case r.Storage == limiter.LargeRing.String():
		return 4, at + "storage: large_ring"
	case r.Match.Not != nil:
		return 2, at + "match.not"
	}
	return KeyNeeds(at+"key", r.Key)
}

// needsRisk is Needs for what names a risk tier.
func (r *Rule) needsRisk(at string) (schema int, what string) {
	if slices.Contains(r.Key, keyKinds[ByRisk]) {
		return 9, at + "key: " + keyKinds[ByRisk]
	}
	for name := range sorted(r.Tiers) {
		if strings.HasPrefix(name, riskPrefix) {
			return 9, at + "tiers." + name
		}
	}
	return 0, ""
}

// KeyNeeds is Needs for a list of key parts at a path.
func KeyNeeds(at string, list []string) (schema int, what string) {
	for _, part := range list {
		if strings.HasPrefix(part, "client_ip/") || strings.HasPrefix(part, "client_net") {
			return 2, at + ": " + part
		}
	}
	return 1, ""
}
