// Package docs holds the pages that programs print.
package docs

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
)

//go:embed RUNBOOKS.md
var runbooks string

// marks surround what make reference writes.
var marks = strings.NewReplacer("<!-- make reference -->\n", "", "<!-- end -->\n", "")

var capitals = regexp.MustCompile(`\b[A-Z]{3,}\b`)

// hasPlaceholder reports whether a command has a word in capitals.
func hasPlaceholder(text string) bool {
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 && capitals.MatchString(part) {
			return true
		}
	}
	return false
}

// Runbook is the section of RUNBOOKS.md for one alert.
type Runbook struct {
	Alert    string `json:"alert"`
	Severity string `json:"severity"` // critical or warning
	Text     string `json:"text"`     // Markdown, without the heading
	Legend   string `json:"legend"`   // Markdown: what its words in capitals stand for; empty if it has none
}

// Runbooks returns the runbooks in the order of the page.
func Runbooks() (list []Runbook) {
	explain := legend()
	for _, section := range strings.Split(runbooks, "\n### ")[1:] {
		alert, text, _ := strings.Cut(section, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		text = strings.TrimSpace(marks.Replace(text))
		severity := text[:strings.IndexAny(text, " :")] // it begins with Critical after 5m: or Warning:
		list = append(list, Runbook{alert, strings.ToLower(severity), text, explain(text)})
	}
	return list
}

// legend returns a function that says what words of a runbook stand for, as the page's introduction does.
func legend() func(text string) string {
	const begins = "Replace the words in capitals."
	_, intro, _ := strings.Cut(runbooks, begins)
	paragraphs := strings.SplitN(begins+intro, "\n\n", 3)
	return func(text string) string {
		about := []string{paragraphs[0] + "\n"}
		for _, item := range strings.Split("\n"+paragraphs[1], "\n- ")[1:] {
			words, _, _ := strings.Cut(item, ":")
			if slices.ContainsFunc(strings.Split(words, ", "), func(word string) bool { return strings.Contains(text, strings.Trim(word, "`")) }) {
				about = append(about, "- "+item)
			}
		}
		if len(about) == 1 && !hasPlaceholder(text) {
			return ""
		}
		return strings.TrimSpace(strings.Join(about, "\n"))
	}
}
