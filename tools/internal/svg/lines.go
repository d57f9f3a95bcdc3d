package svg

import (
	"fmt"
	"math"
	"strings"
)

// Lines is a chart of curves: several panels side by side, in which a curve of the same
// name has the same color.
type Lines struct {
	Title  string
	Panels []Plane
}

// Plane is a panel whose horizontal axis has the given places, evenly spaced.
type Plane struct {
	Title  string // of the vertical axis
	Under  string // title of the horizontal axis
	Places []string
	Curves []Curve
}

// Curve has a value for each place; those that are not finite are left out.
type Curve struct {
	Name   string
	Values []float64
}

const (
	planeWidth, planeHeight = 250.0, 210.0
	planeLeft, planeTop     = 46.0, 34.0
	planeBottom             = 46.0
	legendLine              = 22.0
)

// SVG draws the chart, with its legend below.
func (c *Lines) SVG() []byte {
	var names []string
	seen := map[string]int{}
	for _, plane := range c.Panels {
		for _, curve := range plane.Curves {
			if _, ok := seen[curve.Name]; !ok {
				seen[curve.Name] = len(names)
				names = append(names, curve.Name)
			}
		}
	}
	width := edgeMargin + (planeLeft+planeWidth+panelGap)*float64(len(c.Panels))
	height := planeTop + planeHeight + planeBottom + legendLine*float64(len(names)) + edgeMargin
	p := New(int(width), int(height), c.Title)
	for i := range c.Panels {
		c.Panels[i].draw(p, edgeMargin+planeLeft+(planeLeft+planeWidth+panelGap)*float64(i), seen)
	}
	for i, name := range names {
		y := planeTop + planeHeight + planeBottom + legendLine*(float64(i)+0.5)
		p.Printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="2.5"/>`+"\n", edgeMargin+planeLeft, y, edgeMargin+planeLeft+24, y, color(i))
		p.text(edgeMargin+planeLeft+32, y+4, "start", name)
	}
	return p.Bytes()
}

// color leaves the gray of anchors out.
func color(i int) string { return Colors[(4+5*i)%len(Colors)] }

func (plane *Plane) draw(p *Picture, x float64, colors map[string]int) {
	most := 0.0
	for _, curve := range plane.Curves {
		for _, v := range curve.Values {
			if !math.IsInf(v, 0) && !math.IsNaN(v) {
				most = max(most, v)
			}
		}
	}
	step := tick(most)
	top := step * math.Ceil(most/step)
	if top == 0 {
		top = step
	}
	at := func(v float64) float64 { return planeTop + planeHeight*(1-v/top) }
	for v := 0.0; v <= top+step/2; v += step {
		p.grid(x, at(v), x+planeWidth, at(v))
		p.text(x-6, at(v)+4, "end", Number(v))
	}
	xOf := func(i int) float64 { return x + planeWidth*(float64(i)+0.5)/float64(len(plane.Places)) }
	for i, name := range plane.Places {
		p.text(xOf(i), planeTop+planeHeight+18, "middle", name)
	}
	p.Printf(`<path class="axis" fill="none" d="M%.1f %.1f V%.1f H%.1f"/>`+"\n", x, planeTop, planeTop+planeHeight, x+planeWidth)
	p.text(x-planeLeft+10, 18, "start", plane.Title)
	p.text(x+planeWidth/2, planeTop+planeHeight+38, "middle", plane.Under)
	for _, curve := range plane.Curves {
		var points []string
		c := color(colors[curve.Name])
		for i, v := range curve.Values {
			if math.IsInf(v, 0) || math.IsNaN(v) {
				continue
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", xOf(i), at(v)))
			p.Printf(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", xOf(i), at(v), c)
		}
		p.Printf(`<polyline fill="none" stroke="%s" stroke-width="2.5" stroke-linejoin="round" points="%s"/>`+"\n", c, strings.Join(points, " "))
	}
}

// tick returns a round distance of at most six grid lines.
func tick(most float64) float64 {
	if most <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(most/5)))
	for _, m := range []float64{1, 2, 5, 10} {
		if most/(m*unit) <= 5 {
			return m * unit
		}
	}
	return 10 * unit
}
