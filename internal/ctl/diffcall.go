package ctl

import (
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// formsOf writes descriptors in the order of their text, which means nothing.
func formsOf(list []rules.Entry) string {
	forms := make([]string, len(list))
	for i, e := range list {
		forms[i] = e.Key
		if e.Value != "" {
			forms[i] += "=" + e.Value
		}
		if e.Not != nil {
			forms[i] += " not " + anyOf(e.Not, strings.Clone)
		}
		if e.Descriptors != nil {
			forms[i] += " > " + formsOf(e.Descriptors)
		}
	}
	slices.Sort(forms)
	if len(forms) == 1 {
		return forms[0]
	}
	return "(" + strings.Join(forms, " | ") + ")"
}
