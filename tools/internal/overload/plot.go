package overload

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-edge/weir/tools/internal/svg"
)

// Point is what is answered at an offered load: of all requests, and of the critical ones.
// Offered and Goodput are shares of Capacity.
type Point struct{ Offered, Goodput, Critical float64 }

// Curve is a contender in the plot: a line through the simulated points, and a dot for
// each real run.
type Curve struct {
	Name      string
	Simulated []Point
	Real      []Point
}

// CurveLoads are the loads of the plot's lines.
func CurveLoads() []float64 {
	return []float64{0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.25, 1.5, 2, 3, 4, 5, 7, 10}
}

// The plot, in its own units.
const (
	width, height       = 760, 620
	left, right         = 48, 148 // margins
	tall                = 224     // a panel
	leastLoad, mostLoad = 0.25, 10.0
)

// panel shows one measure of all curves.
type panel struct {
	title string
	top   int
	most  float64 // the highest value
	of    func(Point) float64
}

var panels = []panel{
	{"critical requests answered within 500 ms, as a share of them", 40, 1, func(p Point) float64 { return p.Critical }},
	{"all requests answered within 500 ms, as a share of capacity", 324, 1.2, func(p Point) float64 { return p.Goodput }},
}

func atLoad(load float64) float64 {
	load = min(mostLoad, max(leastLoad, load))
	return left + (width-left-right)*math.Log(load/leastLoad)/math.Log(mostLoad/leastLoad)
}

func (p *panel) at(value float64) float64 {
	return float64(p.top) + tall*(1-min(p.most, value)/p.most)
}

// Plot draws the curves.
func Plot(curves []Curve) []byte {
	p := svg.New(width, height, "Critical requests and goodput against offered load, by contender")
	for i := range panels {
		panels[i].axes(p)
		for j, curve := range curves {
			panels[i].line(p, curve, stroke(j), color(j))
		}
	}
	p.Printf(`<text class="ink" x="%d" y="%d" text-anchor="middle">offered load, as a multiple of capacity (logarithmic)</text>`+"\n", (left+width-right)/2, height-18)
	legend := panels[0].top + 14
	for i, curve := range curves {
		at := legend + 22*i
		p.Printf(`<line x1="%d" y1="%d" x2="%d" y2="%d" %s/>`, width-right+16, at, width-right+40, at, stroke(i))
		p.Printf(`<text class="ink" x="%d" y="%d">%s</text>`+"\n", width-right+48, at+4, svg.Escape(curve.Name))
	}
	if slices.ContainsFunc(curves, func(c Curve) bool { return len(c.Real) > 0 }) {
		at := legend + 22*len(curves)
		p.Printf(`<circle class="ink" cx="%d" cy="%d" r="4.5"/><text class="ink" x="%d" y="%d">real run</text>`+"\n", width-right+28, at, width-right+48, at+4)
	}
	return p.Bytes()
}

// stroke returns a curve's attributes. Dashes leave visible what published and auto cover: none
// and weir.
func stroke(curve int) string {
	attributes := fmt.Sprintf(`stroke="%s" stroke-width="2.5"`, color(curve))
	if curve%3 == 2 {
		attributes += ` stroke-dasharray="7 6"`
	}
	return attributes
}

func color(curve int) string { return svg.Colors[curve%len(svg.Colors)] }

func (a *panel) axes(p *svg.Picture) {
	for _, value := range []float64{0, 0.2, 0.4, 0.6, 0.8, 1} {
		p.Printf(`<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left, a.at(value), width-right, a.at(value))
		p.Printf(`<text class="ink" x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left-8, a.at(value)+4, value)
	}
	for _, load := range []float64{0.25, 0.5, 1, 2, 5, 10} {
		p.Printf(`<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, atLoad(load), a.top, atLoad(load), a.top+tall)
		p.Printf(`<text class="ink" x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", atLoad(load), a.top+tall+18, load)
	}
	p.Printf(`<path class="axis" fill="none" d="M%d %d V%d H%d"/>`+"\n", left, a.top, a.top+tall, width-right)
	p.Printf(`<text class="ink" x="%d" y="%d">%s</text>`+"\n", left, a.top-14, a.title)
}

func (a *panel) line(p *svg.Picture, curve Curve, stroke, fill string) {
	if len(curve.Simulated) > 0 {
		var points []string
		for _, at := range curve.Simulated {
			points = append(points, fmt.Sprintf("%.1f,%.1f", atLoad(at.Offered), a.at(a.of(at))))
		}
		p.Printf(`<polyline fill="none" %s stroke-linejoin="round" points="%s"/>`+"\n", stroke, strings.Join(points, " "))
	}
	for _, at := range curve.Real {
		p.Printf(`<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s"/>`+"\n", atLoad(at.Offered), a.at(a.of(at)), fill)
	}
}
