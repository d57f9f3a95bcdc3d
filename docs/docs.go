// Package docs holds the pages that programs print.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed RUNBOOKS.md
var runbooks string

// Runbook is the section of RUNBOOKS.md for one alert.
type Runbook struct {
	Alert    string `json:"alert"`
	Severity string `json:"severity"` // critical or warning
	Text     string `json:"text"`     // Markdown, without the heading
}

// Runbooks returns the runbooks in the order of the page.
func Runbooks() (list []Runbook) {
	for _, section := range strings.Split(runbooks, "\n### ")[1:] {
		alert, text, _ := strings.Cut(section, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		text = strings.TrimSpace(text)
		severity, _, _ := strings.Cut(text, ":")
		list = append(list, Runbook{alert, strings.ToLower(severity), text})
	}
	return list
}
