// Package report prints measurements as tables on the terminal, and writes them to Markdown
// documents, each with a chart.
package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Table is a table that prints in two forms.
type Table struct {
	Name, Title string
	Head        []string
	Rows        [][]string
	// Charts are drawn from the same figures.
	Charts []Chart
}

// Chart is a picture of a table. The name of its file begins with those of the command and
// of the table; Suffix tells several charts apart.
type Chart struct {
	Suffix, Alt string
	Picture     interface{ SVG() []byte }
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Text is the table for a terminal.
func (t *Table) Text() string {
	widths := make([]int, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	b.WriteString("\n" + t.Title + "\n\n")
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for i, c := range row {
			b.WriteString(c + strings.Repeat(" ", widths[i]-len([]rune(c))+2))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// markdown is the table for a document, followed by its charts.
func (t *Table) markdown(command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s. %s.\n\n| %s |\n|%s\n", t.Title, Machine(), strings.Join(t.Head, " | "), strings.Repeat("---|", len(t.Head)))
	for _, row := range t.Rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	b.WriteString("\n")
	for i := range t.Charts {
		fmt.Fprintf(&b, "![%s](%s)\n\n", t.Charts[i].Alt, t.file(command, i))
	}
	return b.String()
}

// file is the path of a chart, relative to the document.
func (t *Table) file(command string, i int) string {
	name := command + "-" + t.Name
	if s := t.Charts[i].Suffix; s != "" {
		name += "-" + s
	}
	return "plots/" + name + ".svg"
}

// Machine says where the figures come from.
func Machine() string {
	return fmt.Sprintf("%d cores shared by all, %s", runtime.NumCPU(), runtime.Version())
}

// Save writes the tables into the document, each between the comments of Regenerate, and
// their charts into the folder plots next to it.
func Save(document, command string, tables []*Table) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if text, err = Regenerate(text, command, t.Name, t.markdown(command)); err != nil {
			return fmt.Errorf("%s: %w", document, err)
		}
	}
	for _, t := range tables {
		for i := range t.Charts {
			file := filepath.Join(filepath.Dir(document), t.file(command, i))
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(file, t.Charts[i].Picture.SVG(), 0o644); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(document, text, 0o644)
}

// Regenerate replaces the text of a Markdown document between the comments
//
//	<!-- make COMMAND: NAME -->
//	<!-- end: NAME -->
func Regenerate(document []byte, command, name, text string) ([]byte, error) {
	begin, end := fmt.Appendf(nil, "<!-- make %s: %s -->\n", command, name), fmt.Appendf(nil, "<!-- end: %s -->", name)
	before, rest, ok := bytes.Cut(document, begin)
	_, after, closed := bytes.Cut(rest, end)
	if !ok || !closed {
		return nil, fmt.Errorf("the document has no place for %q; add the lines %s and %s", name, bytes.TrimSpace(begin), end)
	}
	return bytes.Join([][]byte{before, begin, []byte(text), end, after}, nil), nil
}
