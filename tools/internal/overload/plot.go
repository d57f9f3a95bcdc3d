package overload

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
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

// Colors that stay distinct on white and on near-black, also for color-blind readers.
var colors = []string{"#8c8c8c", "#d98200", "#c44e9e", "#5a8f3c", "#2f7fd6", "#b3432b"}

const style = `<style>
  svg { font: 13px system-ui, sans-serif }
  .page { fill: #ffffff } .ink { fill: #1f2328 } .axis { stroke: #1f2328 } .grid { stroke: #d8dee4 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #e6edf3 } .axis { stroke: #e6edf3 } .grid { stroke: #30363d }
  }
</style>
`

func atLoad(load float64) float64 {
	load = min(mostLoad, max(leastLoad, load))
	return left + (width-left-right)*math.Log(load/leastLoad)/math.Log(mostLoad/leastLoad)
}

func atGoodput(goodput float64) float64 {
	return height - bottom - (height-top-bottom)*min(mostGoodput, goodput)/mostGoodput
}

// Plot writes the curves as an SVG picture that follows the reader's choice of light or
// dark.
func Plot(w io.Writer, curves []Curve) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title">`+"\n", width, height, width, height)
	b.WriteString(`<title id="title">Goodput against offered load, by contender</title>` + "\n" + style)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d"/>`+"\n", width, height)
	axes(&b)
	for i, curve := range curves {
		color := colors[i%len(colors)]
		line(&b, curve, color)
		at := top + 14 + 22*i
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2.5"/>`, width-right+16, at, width-right+40, at, color)
		fmt.Fprintf(&b, `<text class="ink" x="%d" y="%d">%s</text>`+"\n", width-right+48, at+4, escape(curve.Name))
	}
	if slices.ContainsFunc(curves, func(c Curve) bool { return len(c.Real) > 0 }) {
		at := top + 14 + 22*len(curves)
		fmt.Fprintf(&b, `<circle class="ink" cx="%d" cy="%d" r="4.5"/><text class="ink" x="%d" y="%d">real run</text>`+"\n", width-right+28, at, width-right+48, at+4)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func axes(b *strings.Builder) {
	for _, goodput := range []float64{0, 0.2, 0.4, 0.6, 0.8, 1} {
		fmt.Fprintf(b, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left, atGoodput(goodput), width-right, atGoodput(goodput))
		fmt.Fprintf(b, `<text class="ink" x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left-8, atGoodput(goodput)+4, goodput)
	}
	for _, load := range []float64{0.25, 0.5, 1, 2, 5, 10} {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, atLoad(load), top, atLoad(load), height-bottom)
		fmt.Fprintf(b, `<text class="ink" x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", atLoad(load), height-bottom+18, load)
	}
	fmt.Fprintf(b, `<path class="axis" fill="none" d="M%d %d V%d H%d"/>`+"\n", left, top, height-bottom, width-right)
	fmt.Fprintf(b, `<text class="ink" x="%d" y="%d" text-anchor="middle">offered load, as a multiple of capacity (logarithmic)</text>`+"\n", (left+width-right)/2, height-14)
	fmt.Fprintf(b, `<text class="ink" transform="translate(18 %d) rotate(-90)" text-anchor="middle">answered within %d ms, share of capacity</text>`+"\n", (top+height-bottom)/2, Deadline.Milliseconds())
}

func line(b *strings.Builder, curve Curve, color string) {
	if len(curve.Simulated) > 0 {
		var points []string
		for _, p := range curve.Simulated {
			points = append(points, fmt.Sprintf("%.1f,%.1f", atLoad(p.Offered), atGoodput(p.Goodput)))
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="2.5" stroke-linejoin="round" points="%s"/>`+"\n", color, strings.Join(points, " "))
	}
	for _, p := range curve.Real {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s"/>`+"\n", atLoad(p.Offered), atGoodput(p.Goodput), color)
	}
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func escape(text string) string { return escaper.Replace(text) }
