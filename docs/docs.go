// Package docs holds the pages that programs print.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed RUNBOOKS.md
var runbooks string

// marks surround what make reference writes.
var marks = strings.NewReplacer("<!-- make reference -->\n", "", "<!-- end -->\n", "")

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
		text = strings.TrimSpace(marks.Replace(text))
		severity := text[:strings.IndexAny(text, " :")] // it begins with Critical after 5m: or Warning:
		list = append(list, Runbook{alert, strings.ToLower(severity), text})
	}
	return list
}
