package overload

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Column holds one contender's measures.
type Column struct {
	Name    string
	Results []Result
	Refusal *Refusal // nil if not measured
}

// Refusal is the cost of refusing a request, as a multiple of that of a bare server that
// sends the same bytes.
type Refusal struct {
	CPU        float64 // user and system time of the process for each request
	Throughput float64 // requests per second
	Allocs     float64 // allocations for each request, not a multiple
}

func (c *Column) result(scenario string) *Result {
	for i := range c.Results {
		if c.Results[i].Scenario == scenario {
			return &c.Results[i]
		}
	}
	return nil
}

// worst returns the largest figure of the measured overloads, and whether there was
// any.
func (c *Column) worst(figure func(*Result) float64) (largest float64, measured bool) {
	largest = math.Inf(-1)
	for _, load := range overloads {
		if r := c.result(Overload(load).Name); r != nil {
			largest, measured = max(largest, figure(r)), true
		}
	}
	return largest, measured
}

// Verdict says whether a bar was held.
type Verdict uint8

// The verdicts.
const (
	NotJudged Verdict = iota // not measured, or there was nothing to judge
	Held
	Missed
)

// Cell is a figure with its verdict.
type Cell struct {
	Text    string
	Verdict Verdict
}

func (c Cell) String() string {
	switch c.Verdict {
	case Held:
		return c.Text + " ✓"
	case Missed:
		return c.Text + " ✗"
	}
	return c.Text
}

// Row is one requirement, and what each contender measured.
type Row struct {
	Load, Bar string
	Cells     []Cell
	only      string // the one column that must hold it; "" for all
	detail    bool
}

// Table has a row for each bar and a cell for each column.
type Table struct {
	Columns []string
	Rows    []Row
}

// NewTable judges the columns.
func NewTable(columns []Column) Table {
	var t Table
	for _, c := range columns {
		t.Columns = append(t.Columns, c.Name)
	}
	for _, bar := range bars() {
		row := Row{Load: bar.load, Bar: bar.text, only: bar.only, detail: bar.detail}
		measured := false
		for i := range columns {
			cell := bar.judge(&columns[i])
			measured = measured || cell.Text != ""
			row.Cells = append(row.Cells, cell)
		}
		if measured {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// Brief returns the table without the rows of slight overload and of changes.
func (t Table) Brief() Table {
	t.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(r Row) bool { return r.detail })
	return t
}

// Missed names the common bars that a column did not hold.
func (t Table) Missed(column string) []string { return t.missed(column, "") }

// MissedAlone names the bars for this column only that it did not hold.
func (t Table) MissedAlone(column string) []string { return t.missed(column, column) }

func (t Table) missed(column, only string) []string {
	var missed []string
	for i, name := range t.Columns {
		for _, row := range t.Rows {
			if name == column && row.Cells[i].Verdict == Missed && row.only == only {
				missed = append(missed, fmt.Sprintf("%s: %s (got %s)", row.Load, row.Bar, row.Cells[i].Text))
			}
		}
	}
	return missed
}

// Terminal writes the table for reading in a terminal.
func (t Table) Terminal(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(tw, "load\tbar\t%s\n", strings.Join(t.Columns, "\t"))
	for _, row := range t.Rows {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", row.Load, row.Bar, strings.Join(row.texts(), "\t"))
	}
	return tw.Flush()
}

// Markdown returns the table as Markdown.
func (t Table) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| load | bar | %s |\n", strings.Join(t.Columns, " | "))
	b.WriteString("|" + strings.Repeat("---|", 2+len(t.Columns)) + "\n")
	for _, row := range t.Rows {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.Load, row.Bar, strings.Join(row.texts(), " | "))
	}
	return b.String()
}

func (r Row) texts() []string {
	var texts []string
	for _, c := range r.Cells {
		texts = append(texts, c.String())
	}
	return texts
}

func judged(text string, held bool) Cell {
	if held {
		return Cell{text, Held}
	}
	return Cell{text, Missed}
}

// unjudged marks a bar to which a contender's run has nothing to judge.
var unjudged = Cell{Text: "–"}

func elapsed(d time.Duration) string {
	switch {
	case d == Never:
		return "never"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
