package main

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"time"
)

func micro(d time.Duration) string { return fmt.Sprintf("%.0f µs", float64(d)/1e3) }

// table is a table that prints in two forms.
type table struct {
	name, title string
	head        []string
	rows        [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) text() string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], len([]rune(c)))
		}
	}
	var b strings.Builder
	b.WriteString("\n" + t.title + "\n\n")
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, c := range row {
			b.WriteString(c + strings.Repeat(" ", widths[i]-len([]rune(c))+2))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (t *table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s. %d cores shared by all, %s.\n\n| %s |\n|%s\n", t.title, runtime.NumCPU(), runtime.Version(), strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	b.WriteString("\n")
	return b.String()
}

// regenerate replaces the text between the comments of a name.
func regenerate(document []byte, name, text string) ([]byte, error) {
	begin, end := fmt.Appendf(nil, "<!-- make tables: %s -->\n", name), fmt.Appendf(nil, "<!-- end: %s -->", name)
	before, rest, ok := bytes.Cut(document, begin)
	_, after, closed := bytes.Cut(rest, end)
	if !ok || !closed {
		return nil, fmt.Errorf("no place for %q; add the lines %s and %s", name, bytes.TrimSpace(begin), end)
	}
	return bytes.Join([][]byte{before, begin, []byte(text), end, after}, nil), nil
}
