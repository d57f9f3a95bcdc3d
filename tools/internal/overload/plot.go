package overload

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weir-edge/weir/tools/internal/svg"
)

// Point is the goodput at an offered load; both are shares of Capacity.
type Point struct{ Offered, Goodput float64 }

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
	width, height            = 760, 440
	left, right, top, bottom = 64, 148, 40, 56 // margins
	leastLoad, mostLoad      = 0.25, 10.0
	mostGoodput              = 1.2
)

func atLoad(load float64) float64 {
	load = min(mostLoad, max(leastLoad, load))
	return left + (width-left-right)*math.Log(load/leastLoad)/math.Log(mostLoad/leastLoad)
}

func atGoodput(goodput float64) float64 {
	return height - bottom - (height-top-bottom)*min(mostGoodput, goodput)/mostGoodput
}

// Plot draws the curves.
func Plot(curves []Curve) []byte {
	p := svg.New(width, height, "Goodput against offered load, by contender")
	axes(p)
	for i, curve := range curves {
		color := svg.Colors[i%len(svg.Colors)]
		line(p, curve, color)
		at := top + 14 + 22*i
		p.Printf(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2.5"/>`, width-right+16, at, width-right+40, at, color)
		p.Printf(`<text class="ink" x="%d" y="%d">%s</text>`+"\n", width-right+48, at+4, svg.Escape(curve.Name))
	}
	if slices.ContainsFunc(curves, func(c Curve) bool { return len(c.Real) > 0 }) {
		at := top + 14 + 22*len(curves)
		p.Printf(`<circle class="ink" cx="%d" cy="%d" r="4.5"/><text class="ink" x="%d" y="%d">real run</text>`+"\n", width-right+28, at, width-right+48, at+4)
	}
	return p.Bytes()
}

func axes(p *svg.Picture) {
	for _, goodput := range []float64{0, 0.2, 0.4, 0.6, 0.8, 1} {
		p.Printf(`<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left, atGoodput(goodput), width-right, atGoodput(goodput))
		p.Printf(`<text class="ink" x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left-8, atGoodput(goodput)+4, goodput)
	}
	for _, load := range []float64{0.25, 0.5, 1, 2, 5, 10} {
		p.Printf(`<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, atLoad(load), top, atLoad(load), height-bottom)
		p.Printf(`<text class="ink" x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", atLoad(load), height-bottom+18, load)
	}
	p.Printf(`<path class="axis" fill="none" d="M%d %d V%d H%d"/>`+"\n", left, top, height-bottom, width-right)
	p.Printf(`<text class="ink" x="%d" y="%d" text-anchor="middle">offered load, as a multiple of capacity (logarithmic)</text>`+"\n", (left+width-right)/2, height-14)
	p.Printf(`<text class="ink" transform="translate(18 %d) rotate(-90)" text-anchor="middle">answered within %d ms, share of capacity</text>`+"\n", (top+height-bottom)/2, Deadline.Milliseconds())
}

func line(p *svg.Picture, curve Curve, color string) {
	if len(curve.Simulated) > 0 {
		var points []string
		for _, at := range curve.Simulated {
			points = append(points, fmt.Sprintf("%.1f,%.1f", atLoad(at.Offered), atGoodput(at.Goodput)))
		}
		p.Printf(`<polyline fill="none" stroke="%s" stroke-width="2.5" stroke-linejoin="round" points="%s"/>`+"\n", color, strings.Join(points, " "))
	}
	for _, at := range curve.Real {
		p.Printf(`<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s"/>`+"\n", atLoad(at.Offered), atGoodput(at.Goodput), color)
	}
}
