// Package svg draws charts as SVG pictures that follow the reader's choice of light or
// dark.
package svg

import (
	"fmt"
	"strings"
)

// Colors stay distinct on white and on near-black, also for color-blind readers.
var Colors = []string{"#8c8c8c", "#d98200", "#c44e9e", "#5a8f3c", "#2f7fd6", "#b3432b"}

// Style defines the classes page, ink, axis and grid for both choices.
const style = `<style>
  svg { font: 13px system-ui, sans-serif }
  .page { fill: #ffffff } .ink { fill: #1f2328 } .axis { stroke: #1f2328 } .grid { stroke: #d8dee4 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .ink { fill: #e6edf3 } .axis { stroke: #e6edf3 } .grid { stroke: #30363d }
  }
</style>
`

// Picture is a picture under construction. Printf adds elements to it.
type Picture struct{ b strings.Builder }

// New begins a picture of that size; screen readers read the title.
func New(width, height int, title string) *Picture {
	p := &Picture{}
	p.Printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title">`+"\n", width, height, width, height)
	p.Printf(`<title id="title">%s</title>`+"\n", Escape(title))
	p.Printf("%s", style)
	p.Printf(`<rect class="page" width="%d" height="%d"/>`+"\n", width, height)
	return p
}

// Printf adds elements; text in them has to be escaped.
func (p *Picture) Printf(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

// Bytes ends the picture.
func (p *Picture) Bytes() []byte { return []byte(p.b.String() + "</svg>\n") }

// text adds a text; anchor is start, middle or end.
func (p *Picture) text(x, y float64, anchor, text string) {
	p.Printf(`<text class="ink" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, Escape(text))
}

func (p *Picture) grid(x1, y1, x2, y2 float64) {
	p.Printf(`<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x1, y1, x2, y2)
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// Escape returns text that may stand in an element or an attribute.
func Escape(text string) string { return escaper.Replace(text) }

// textWidth is at least how wide a text is at 13 px, in most fonts.
func textWidth(text string) float64 { return 7.3 * float64(len([]rune(text))) }
