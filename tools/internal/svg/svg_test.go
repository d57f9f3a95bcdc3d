package svg

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// elements counts the elements of a picture, and requires that all of it is within its size.
func elements(t *testing.T, picture []byte) map[string]int {
	found := map[string]int{}
	dec := xml.NewDecoder(bytes.NewReader(picture))
	width, height := 0.0, 0.0
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return found
		}
		require.NoError(t, err)
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		found[e.Name.Local]++
		at := map[string]float64{}
		for _, a := range e.Attr {
			if v, err := strconv.ParseFloat(a.Value, 64); err == nil {
				at[a.Name.Local] = v
			}
		}
		if e.Name.Local == "svg" {
			width, height = at["width"], at["height"]
		}
		require.LessOrEqual(t, at["x"]+at["width"], width)
		require.LessOrEqual(t, at["y"]+at["height"], height)
		require.GreaterOrEqual(t, at["x"], 0.0)
	}
}

func TestBars(t *testing.T) {
	c := &Bars{Title: "a & b", Rows: []Row{{"bare", true}, {"<weir>", false}, {"unknown", false}},
		Panels: []Panel{
			{Title: "a second", Values: []float64{54321, 30000, math.NaN()}},
			{Title: "ratio", Values: []float64{1, 0.55, 0}, Texts: []string{"1", "0.55", "none"}, Goal: 0.65},
		}}
	picture := c.SVG()
	found := elements(t, picture)
	require.Equal(t, 5, found["rect"], "a page and four bars; none for what is unknown or zero")
	require.Equal(t, 1, found["line"], "one goal")
	require.Contains(t, string(picture), "&lt;weir&gt;")
	require.Contains(t, string(picture), "54,321")
	require.Contains(t, string(picture), "prefers-color-scheme: dark")
}

func TestLines(t *testing.T) {
	c := &Lines{Title: "cost", Panels: []Plane{
		{Title: "µs", Under: "keys", Places: []string{"1", "10", "100"}, Curves: []Curve{{"strict", []float64{1, 2, 3}}, {"leased", []float64{math.Inf(1), 0.5, 0.6}}}},
		{Title: "µs", Under: "nodes", Places: []string{"1", "2"}, Curves: []Curve{{"strict", []float64{0, 0}}}},
	}}
	found := elements(t, c.SVG())
	require.Equal(t, 3, found["polyline"])
	require.Equal(t, 7, found["circle"])
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 3: "3", 0.004: "0.004", 0.567: "0.57", 12.34: "12.3", 123.4: "123", 1234: "1,234", 1234567: "1,234,567"} {
		require.Equal(t, want, Number(v))
	}
	require.Equal(t, "–", Number(math.NaN()))
	require.Equal(t, "-1,234", Number(-1234))
	require.Equal(t, "-123", Number(-123))
}

func TestTick(t *testing.T) {
	for most, want := range map[float64]float64{0: 1, 1: 0.2, 4.9: 1, 9: 2, 20: 5, 26: 10, 99: 20} {
		require.InDelta(t, want, tick(most), 1e-9, "%v", most)
	}
}
