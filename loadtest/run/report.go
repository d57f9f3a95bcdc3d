package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"
)

// report is a whole run.
type report struct {
	Began     time.Time `json:"began"`
	Seconds   float64   `json:"seconds"`
	Form      string    `json:"form"`
	Lab       state     `json:"lab"`
	Scenarios []result  `json:"scenarios"`
}

func (r *report) good() bool {
	for _, s := range r.Scenarios {
		if len(s.Problems) > 0 {
			return false
		}
	}
	return true
}

// row is what the summary says of a region.
type row struct {
	traffic
	Over, Wrong, Retry int     // in phases with a bound of 0
	FaultOver          int     // in the others
	FaultWrong         int     //
	Worst, Bound       float64 // percent of the limit, in the others
	Fallback           int
}

func (r *result) rows(lab state) []row {
	var rows []row
	for _, region := range lab.Regions {
		w := row{traffic: traffic{Region: region.Name}, Fallback: r.Fallback[region.Name]}
		for _, t := range r.Traffic {
			if t.Region == region.Name {
				w.traffic = t
			}
		}
		for _, l := range r.Report {
			if l.Region != region.Name {
				continue
			}
			if b := r.bound(l); b != nil {
				w.FaultOver += l.Overadmitted
				w.FaultWrong += l.WronglyRefused
				w.Bound = max(w.Bound, b.Percent)
				if l.Worst != nil {
					w.Worst = max(w.Worst, l.Worst.Percent)
				}
				continue
			}
			w.Over += l.Overadmitted
			w.Wrong += l.WronglyRefused
			w.Retry += l.RetryWrong
		}
		rows = append(rows, w)
	}
	return rows
}

// print shows a scenario by region.
func (r *result) print(out io.Writer, lab state) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "   \tpassed\tlimited\tshed\tfailed\tp50 ms\tp95 ms\tover\twrong\tretry\tin the fault: over\twrong\tworst\tbound\t")
	for _, row := range r.rows(lab) {
		fault := "\t\t\t"
		if row.Bound > 0 {
			fault = fmt.Sprintf("%d\t%d\t%.0f %%\t%.0f %%", row.FaultOver, row.FaultWrong, row.Worst, row.Bound)
		}
		fmt.Fprintf(w, "   %s\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%d\t%d\t%d\t%s\t\n", row.Region, row.Passed, row.Limited, row.Shed, row.Failed, row.P50, row.P95, row.Over, row.Wrong, row.Retry, fault)
	}
	_ = w.Flush()
	for _, p := range r.Problems {
		fmt.Fprintln(out, "   FAILED:", p)
	}
	if r.MustFail && len(r.Problems) == 0 {
		fmt.Fprintln(out, "   good: the oracle found the rule that limits nothing")
	}
}

func (r *report) print(out io.Writer, folder string) {
	failed := 0
	for _, s := range r.Scenarios {
		if len(s.Problems) > 0 {
			failed++
		}
	}
	fmt.Fprintf(out, "%d of %d scenarios good, %.0f s; %s\n", len(r.Scenarios)-failed, len(r.Scenarios), r.Seconds, filepath.Join(folder, "report.html"))
}

// write writes both forms.
func (r *report) write(folder string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "report.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := r.html(&page); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "report.html"), page.Bytes(), 0o644)
}

func (r *report) html(out io.Writer) error {
	return template.Must(template.New("report").Funcs(template.FuncMap{
		"rows":  func(s result) []row { return s.rows(r.Lab) },
		"chart": chart,
		"good":  func(s result) bool { return len(s.Problems) == 0 },
		"join":  strings.Join,
	}).Parse(page)).Execute(out, r)
}

// Size of a chart.
const wide, high, left = 340, 110, 34

var kinds = []struct {
	name, colour string
	of           func(second) int
}{
	{"passed", "#2e7d5b", func(s second) int { return s.Passed }},
	{"limited", "#c98a1b", func(s second) int { return s.Limited }},
	{"shed", "#6a5acd", func(s second) int { return s.Shed }},
	{"failed", "#c0392b", func(s second) int { return s.Failed }},
}

// chart draws the answers of a region, second by second, and where the phases begin.
func chart(s result, t traffic) template.HTML {
	var b strings.Builder
	top := 1
	for _, sec := range t.Each {
		for _, k := range kinds {
			top = max(top, k.of(sec))
		}
	}
	n := max(2, len(t.Each))
	x := func(i float64) float64 { return left + i*(wide-left-4)/float64(n-1) }
	y := func(v int) float64 { return high - 16 - float64(v)*(high-30)/float64(top) }
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="answers a second, %s">`, wide, high, template.HTMLEscapeString(t.Region))
	fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%d</text><text x="%d" y="%d" text-anchor="end">0</text><path class="axis" d="M%d %d H%d"/>`, left-4, y(top)+4, top, left-4, high-12, left, high-16, wide-4)
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%d s</text>`, wide-4, high-3, len(t.Each))
	for _, p := range s.Phases {
		at := x(min(float64(n-1), max(0, p.From.Sub(s.Began).Seconds())))
		fmt.Fprintf(&b, `<path class="phase" d="M%.1f 10 V%d"/><text x="%.1f" y="9">%s</text>`, at, high-16, at, template.HTMLEscapeString(p.Name))
	}
	for _, k := range kinds {
		any, line := false, ""
		for i, sec := range t.Each {
			any = any || k.of(sec) > 0
			line += fmt.Sprintf("%.1f,%.1f ", x(float64(i)), y(k.of(sec)))
		}
		if any {
			fmt.Fprintf(&b, `<polyline stroke="%s" points="%s"><title>%s</title></polyline>`, k.colour, strings.TrimSpace(line), k.name)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

const page = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>weir: load test</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:.6em 0;width:100%}th,td{padding:.2em .6em;text-align:right;border-bottom:1px solid #ddd}th:first-child,td:first-child{text-align:left}
.good{color:#2e7d5b}.bad{color:#c0392b}.charts{display:flex;flex-wrap:wrap;gap:12px}figure{margin:0}figcaption{font-size:13px}
svg{width:340px;height:110px}svg text{font-size:9px;fill:#555}polyline{fill:none;stroke-width:1.6}.axis{stroke:#999}.phase{stroke:#bbb;stroke-dasharray:3 3}
summary{cursor:pointer}.key span{margin-right:1em}
@media(prefers-color-scheme:dark){body{background:#16181a;color:#ddd}td,th{border-color:#333}svg text{fill:#aaa}}
</style>
<h1>Load test of three regions</h1>
<p>{{.Began.Format "2006-01-02 15:04:05Z07:00"}}, {{.Form}} form, {{printf "%.0f" .Seconds}} s, {{.Lab.Nodes}} edges a region.
An oracle saw every request and proves, for each region, rule and client, how far the limit was exceeded (<i>over</i>), which refusals had no reason (<i>wrong</i>),
and which Retry-After cannot be true. Where nothing is broken, the bound of all three is 0.</p>
<p class="key"><span style="color:#2e7d5b">passed</span><span style="color:#c98a1b">limited (429)</span><span style="color:#6a5acd">shed (503)</span><span style="color:#c0392b">failed</span></p>
<table><tr><th>scenario</th><th>verdict</th></tr>{{range .Scenarios}}<tr><td><a href="#{{.Name}}">{{.Name}}</a></td><td>{{if good .}}<b class="good">good</b>{{else}}<b class="bad">failed</b>{{end}}</td></tr>{{end}}</table>
{{range $s := .Scenarios}}<h2 id="{{.Name}}">{{.Name}} {{if good .}}<span class="good">good</span>{{else}}<span class="bad">failed</span>{{end}}</h2>
<p>{{.About}}; {{printf "%.0f" .Seconds}} s.{{if .MustFail}} <b>This one proves that a run can fail: it is good if the oracle objects.</b>{{end}}</p>
{{range .Problems}}<p class="bad">{{.}}</p>{{end}}
{{range .Repeated}}<p>An earlier attempt does not count: {{.}}</p>{{end}}
<div class="charts">{{range .Traffic}}<figure><figcaption>{{.Region}}: answers a second</figcaption>{{chart $s .}}</figure>{{end}}</div>
<table><tr><th>region</th><th>passed</th><th>limited</th><th>shed</th><th>failed</th><th>p50</th><th>p95</th><th>over</th><th>wrong</th><th>Retry-After wrong</th><th>in the fault: over</th><th>wrong</th><th>worst window</th><th>bound</th><th>decided without Redis</th></tr>
{{range rows .}}<tr><td>{{.Region}}</td><td>{{.Passed}}</td><td>{{.Limited}}</td><td>{{.Shed}}</td><td>{{.Failed}}</td><td>{{printf "%.1f" .P50}} ms</td><td>{{printf "%.1f" .P95}} ms</td><td>{{.Over}}</td><td>{{.Wrong}}</td><td>{{.Retry}}</td>
{{if .Bound}}<td>{{.FaultOver}}</td><td>{{.FaultWrong}}</td><td>{{printf "%.0f" .Worst}} %</td><td>{{printf "%.0f" .Bound}} %</td>{{else}}<td></td><td></td><td></td><td>0</td>{{end}}<td>{{.Fallback}}</td></tr>{{end}}</table>
{{range .Bounds}}<p><b>Bound of {{.Region}}, rule {{.Rule}}, phases {{join .Phases ", "}}: {{printf "%.0f" .Percent}} % of the limit.</b> {{.Why}}</p>{{end}}
{{range .Waits}}<p><b>{{.Metric}}: at most {{printf "%.0f" .Seconds}} s.</b> {{.Why}}</p>{{end}}
<details><summary>What the oracle says, and the thresholds</summary>
<table><tr><th>region</th><th>rule</th><th>phase</th><th>admitted</th><th>refused</th><th>no answer</th><th>unjudged</th><th>over</th><th>wrong</th><th>Retry-After wrong</th><th>worst window</th></tr>
{{range .Report}}<tr><td>{{.Region}}</td><td>{{.Rule}}</td><td>{{.Phase}}</td><td>{{.Admitted}}</td><td>{{.Refused}}</td><td>{{.Unknown}}</td><td>{{.Unjudged}}</td><td>{{.Overadmitted}}</td><td>{{.WronglyRefused}}</td><td>{{.RetryWrong}} of {{.RetryChecked}}</td><td>{{with .Worst}}{{.Key}}: {{.Excess}} over {{.Limit}} in {{.Window}}{{end}}</td></tr>{{end}}</table>
<table><tr><th>threshold</th><th></th><th></th></tr>{{range .Checks}}<tr><td>{{.Metric}}</td><td>{{.Expr}}</td><td>{{if .OK}}<span class="good">holds</span>{{else}}<span class="bad">does not hold</span>{{end}}</td></tr>{{end}}</table></details>
{{end}}</html>
`
