package overload

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// perfect returns the measures of a shedder that holds every bar.
func perfect() Column {
	c := Column{Name: "perfect", Refusal: &Refusal{CPU: 1.1, Throughput: 0.95, Allocs: 0.01}}
	for _, s := range Scenarios(false) {
		r := Result{Scenario: s.Name, LevelShare: 0.85, Shed: [Classes]float64{0, 0, 0.004, 0.2}, Goodput: 0.95, P99: 150 * ms, Critical: 0.9995, Sheds: 9, LevelSheds: 9,
			Swing: 0.1, Variation: 0.04, Onset: 100 * ms, Recovery: 9 * time.Second, LevelZero: 20 * time.Second, Recovered: 0.995}
		switch s.Name {
		case Reference:
			r.P99 = 90 * ms
		case Slower:
			r.Goodput = 0.47
		case Faster:
			r.Goodput = 1.9
		case Longer:
			r.Goodput, r.ShedShare = 0.79, 0.02
		case Calm:
			r.Sheds, r.LevelSheds = 0, 0
		}
		c.Results = append(c.Results, r)
	}
	return c
}

func TestTheTableHasEveryBar(t *testing.T) {
	table := NewTable([]Column{perfect()})
	require.Len(t, table.Rows, len(bars()))
	for _, row := range table.Rows {
		require.Equal(t, Held, row.Cells[0].Verdict, "%s %s: %s", row.Load, row.Bar, row.Cells[0])
	}
	require.Empty(t, table.Missed("perfect"))
}

// A brief table has no rows of slight overload or of changes, and the table keeps them.
func TestTheBriefTable(t *testing.T) {
	table := NewTable([]Column{perfect()})
	brief := table.Brief()
	require.Len(t, brief.Rows, len(bars())-2*len(slight)-len(changeBars()))
	for _, row := range brief.Rows {
		require.NotContains(t, row.Bar, "by the level")
		require.Empty(t, row.only)
	}
	require.Len(t, table.Rows, len(bars()))
}

// A bar for one contender is shown for all and asked of that one.
func TestABarForOne(t *testing.T) {
	c := perfect()
	c.result(Longer).ShedShare = 0.3
	require.Empty(t, NewTable([]Column{c}).Missed("perfect"))
	require.Empty(t, NewTable([]Column{c}).MissedAlone("perfect"))
	c.Name = Estimated
	require.Empty(t, NewTable([]Column{c}).Missed(Estimated))
	require.Equal(t, []string{"0.8x, answers take 100 ms longer: shed < 5% (got 30.00%)"}, NewTable([]Column{c}).MissedAlone(Estimated))
}

// A table grows run by run.
func TestResultsMerge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.json")
	r, err := LoadResults(file)
	require.NoError(t, err)
	c := perfect()
	c.Name = "weir"
	c.Results[1].Variation = math.Inf(1)
	r.Put("real", "first", []Column{c})
	require.Equal(t, "first", r.Title("real"))
	r.Put("simulation", "in vain", []Column{c})
	require.NoError(t, r.Save(file, "real"))

	r, err = LoadResults(file)
	require.NoError(t, err)
	require.Equal(t, []Column{c}, r.Columns("real"))
	require.Empty(t, r.Columns("simulation"))
	again := Result{Scenario: Calm, Sheds: 7}
	r.Put("real", "second", []Column{{Name: "weir", Results: []Result{again}}, {Name: "none", Results: []Result{{Scenario: "10x"}}}})
	columns := r.Columns("real")
	require.Equal(t, "none", columns[0].Name)
	require.Equal(t, again, *columns[1].result(Calm))
	require.Len(t, columns[1].Results, len(c.Results))
	require.Equal(t, c.Refusal, columns[1].Refusal)
	require.Contains(t, r.Title("real"), "- second: weir calm, none 10x")

	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	_, err = LoadResults(file)
	require.ErrorContains(t, err, file)
}

func TestEachBarCanBeMissed(t *testing.T) {
	f := func(bar, text string, spoil func(*Column)) {
		t.Helper()
		c := perfect()
		spoil(&c)
		missed := NewTable([]Column{c}).Missed("perfect")
		require.Len(t, missed, 1)
		require.Contains(t, missed[0], bar)
		require.Contains(t, missed[0], "got "+text)
	}
	f("2x: goodput", "0.899", func(c *Column) { c.result("2x").Goodput = 0.8991 })
	f("5x: goodput", "0.849", func(c *Column) { c.result("5x").Goodput = 0.8491 })
	f("10x: goodput", "0.799", func(c *Column) { c.result("10x").Goodput = 0.7991 })
	f("10x: p99", "2.01 (181 ms)", func(c *Column) { c.result("10x").P99 = 181 * ms })
	f("critical", "99.80%", func(c *Column) { c.result("5x").Critical = 0.998 })
	f("lower class", "1", func(c *Column) { c.result("2x").Faults = 1 })
	f("swings", "0.150", func(c *Column) { c.result("2x").Swing = 0.15 })
	f("varies", "∞", func(c *Column) { c.result("2x").Variation = math.Inf(1) })
	f("within 1 s", "never", func(c *Column) { c.result("5x").Onset = Never })
	f("within 1 s", "1.2 s", func(c *Column) { c.result("5x").Onset = 1200 * ms })
	f("after 10 s", "10.1 s", func(c *Column) { c.result("5x").Recovery = 10100 * ms })
	f("requests shed", "1", func(c *Column) { c.result(Calm).Sheds = 1 })
	f("returns to 0", "never", func(c *Column) { c.result(Latch).LevelZero = Never })
	f("retries", "98.00%", func(c *Column) { c.result(Storm).Recovered = 0.98 })
	f("1.02x: by the level", "39%", func(c *Column) { c.result("1.02x").LevelShare = 0.39 })
	f("1.1x: shed of critical", "0.0, 0.5, 0.4, 20.0%", func(c *Column) { c.result("1.1x").Shed[Write] = 0.005 })
	f("CPU time", "1.11", func(c *Column) { c.Refusal.CPU = 1.11 })
	f("a refusal: throughput", "0.929", func(c *Column) { c.Refusal.Throughput = 0.929 })
	f("allocations", "1.00", func(c *Column) { c.Refusal.Allocs = 1 })
}

func TestWhatWasNotMeasuredIsNotJudged(t *testing.T) {
	require.Empty(t, NewTable([]Column{{Name: "nothing"}}).Rows)

	// No shedder: never shedding when it should is judged; the rest cannot be.
	none := perfect()
	none.Refusal = nil
	for i := range none.Results {
		r := &none.Results[i]
		r.Sheds, r.LevelSheds, r.Onset, r.Recovery, r.Swing, r.LevelZero = 0, 0, Never, 0, 0, 0
	}
	got := map[string]string{}
	for _, row := range NewTable([]Column{none, perfect()}).Rows {
		got[row.Bar] = row.Cells[0].String()
	}
	require.Equal(t, "never ✗", got["sheds within 1 s"])
	require.Equal(t, "–", got["sheds nothing after 10 s"])
	require.Equal(t, "–", got["level swings by < 0.15 once settled"])
	require.Equal(t, "–", got["shed while a lower class is admitted: 0"])
	require.Equal(t, "–", got["level returns to 0"])
	require.Equal(t, "0 ✓", got["requests shed: 0"])
	require.Equal(t, "", got["CPU time ≤ 1.1 × a bare 503"])
}

func TestTablesAreWritten(t *testing.T) {
	c := perfect()
	c.Results = []Result{*c.result(Reference), *c.result(Calm)}
	c.Results[1].Sheds = 3
	c.Refusal = nil
	table := NewTable([]Column{c, c})
	table.Columns = []string{"a", "b"}
	require.Equal(t, "| load | bar | a | b |\n|---|---|---|---|\n"+
		"| 0.1x to 0.7x, bursts to 0.9x | requests shed: 0 | 3 ✗ | 3 ✗ |\n", table.Markdown())
	var out bytes.Buffer
	require.NoError(t, table.Terminal(&out))
	lines := strings.Split(out.String(), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, strings.Index(lines[0], "bar "), strings.Index(lines[1], "requests"))
}

func TestThePlotIsWellFormedAndWithinItsFrame(t *testing.T) {
	curves := []Curve{
		{"none & <all>", []Point{{0.25, 0.25, 1}, {1, 0.98, 1}, {10, 0, 0}}, []Point{{2, 0.01, 0.1}}},
		{"weir", []Point{{0.1, 0.1, 1}, {20, 3, 1}}, nil},
	}
	out := Plot(curves)
	dec := xml.NewDecoder(bytes.NewReader(out))
	elements := map[string]int{}
	for {
		token, err := dec.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
	require.Equal(t, 4, elements["polyline"], "in two panels")
	require.Equal(t, 3, elements["circle"], "one run in two panels, and its legend")
	text := string(out)
	require.Contains(t, text, "none &amp; &lt;all&gt;")
	require.Contains(t, text, "prefers-color-scheme: dark")
	require.Equal(t, float64(left), atLoad(0.1), "loads beyond the axis are drawn at its end")
	require.Equal(t, float64(width-right), atLoad(20))
	for _, p := range panels {
		require.Equal(t, float64(p.top), p.at(3))
		require.Equal(t, float64(p.top+tall), p.at(0))
		require.Contains(t, p.title, fmt.Sprintf("within %d ms", Deadline.Milliseconds()))
	}
}
