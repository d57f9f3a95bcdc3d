package svg

import (
	"math"
	"strconv"
)

// Bars is a chart of horizontal bars: rows that several panels share, side by side.
type Bars struct {
	Title  string
	Rows   []Row
	Panels []Panel
}

// Row is one bar in each panel. An anchor is what the others are compared with.
type Row struct {
	Label  string
	Anchor bool
}

// Panel is one measure of all rows. Values that are not finite have no bar.
type Panel struct {
	Title  string
	Values []float64
	Texts  []string // at the ends of the bars; nil for the values
	Goal   float64  // a line across all bars; 0 for none
}

const (
	rowHeight   = 26.0
	barHeight   = 16.0
	edgeMargin  = 14.0
	panelGap    = 28.0
	panelHead   = 34.0
	leastWidth  = 220.0 // of a panel
	leastBar    = 110.0 // of the longest bar
	chartWidth  = 860.0
	anchorColor = "#8c8c8c"
	barColor    = "#2f7fd6"
	goalColor   = "#b3432b"
)

// SVG draws the chart.
func (c *Bars) SVG() []byte {
	labels := 0.0
	for _, r := range c.Rows {
		labels = max(labels, textWidth(r.Label))
	}
	n := float64(len(c.Panels))
	begin := edgeMargin + labels + 10
	each := max(leastWidth, (chartWidth-begin-edgeMargin-(n-1)*panelGap)/n)
	for i := range c.Panels {
		each = max(each, textWidth(c.Panels[i].Title), leastBar+c.Panels[i].room())
	}
	width := begin + n*each + (n-1)*panelGap + edgeMargin
	height := panelHead + rowHeight*float64(len(c.Rows)) + edgeMargin
	p := New(int(width), int(height), c.Title)
	for i, r := range c.Rows {
		p.text(begin-10, panelHead+rowHeight*(float64(i)+0.5)+4, "end", r.Label)
	}
	for i := range c.Panels {
		c.panel(p, &c.Panels[i], begin+float64(i)*(each+panelGap), each)
	}
	return p.Bytes()
}

func (p *Panel) texts() []string {
	texts := p.Texts
	if texts == nil {
		for _, v := range p.Values {
			texts = append(texts, Number(v))
		}
	}
	return texts
}

// room is what the texts behind the bars take.
func (p *Panel) room() (width float64) {
	for _, text := range p.texts() {
		width = max(width, textWidth(text)+6)
	}
	return width
}

// panel draws bars from x on; the longest one leaves room for its text.
func (c *Bars) panel(p *Picture, panel *Panel, x, width float64) {
	texts, most := panel.texts(), panel.Goal
	for _, v := range panel.Values {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			most = max(most, v)
		}
	}
	if most <= 0 {
		most = 1
	}
	scale := (width - panel.room()) / most
	bottom := panelHead + rowHeight*float64(len(c.Rows))
	p.text(x, 20, "start", panel.Title)
	p.Printf(`<path class="axis" fill="none" d="M%.1f %.1f V%.1f"/>`+"\n", x, panelHead-2, bottom)
	for i, v := range panel.Values {
		y, color, end := panelHead+rowHeight*float64(i), barColor, x
		if c.Rows[i].Anchor {
			color = anchorColor
		}
		if !math.IsInf(v, 0) && !math.IsNaN(v) && v > 0 {
			end = x + v*scale
			p.Printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y+(rowHeight-barHeight)/2, v*scale, barHeight, color)
		}
		p.text(end+5, y+rowHeight/2+4, "start", texts[i])
	}
	if panel.Goal > 0 {
		at := x + panel.Goal*scale
		p.Printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2" stroke-dasharray="5 3"/>`+"\n", at, panelHead-2, at, bottom, goalColor)
	}
}

// Number is a value in at most three digits, or whole with separators.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return "–"
	case a >= 1000:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func thousands(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
