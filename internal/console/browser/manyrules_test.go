package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// With 9,600 rules in 67,000 lines, the page draws only what is near the window: it answers while the
// rules load, and while they are filtered, scrolled, edited and compared. The figures are in CONSOLE.
func TestManyRules(t *testing.T) {
	const rules, most = 9600, 6000 // elements of the page
	l := start(t)
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range rules {
		more, key := "", "client_ip"
		if i < 60 { // the first rows are high, the others low
			more = strings.Repeat(", one of many", 30)
		}
		if i == 9000 {
			key = "header:x-shop"
		}
		fmt.Fprintf(&text, "  - id: rule-%04d\n    description: of shop %d%s\n    match: {paths: [/%d/*]}\n    key: [%s]\n    limit: %d\n    window: 1m\n\n", i, i, more, i, key, 700+i%100)
	}
	l.run("rules", "apply", l.write("rules.yaml", text.String()), "--yes", "-m", "many")
	b := launch(t)
	b.dress("light", 1280)
	l.enter(b)
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `window.tasks = []; new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration))).observe({type: 'longtask', buffered: true})`}, nil)
	b.call("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, nil)
	worked := 0.0 // by the page's thread, not counting what other programs take
	small := func(doing string) {
		t.Helper()
		var metrics struct {
			Metrics []struct {
				Name  string
				Value float64
			}
		}
		b.call("Performance.getMetrics", nil, &metrics)
		before := worked
		for _, m := range metrics.Metrics {
			if m.Name == "TaskDuration" {
				worked = m.Value
			}
		}
		n := b.eval("document.getElementsByTagName('*').length").(float64)
		tasks := b.eval("((all) => `${all.length} tasks above 50 ms, the longest ${Math.round(Math.max(0, ...all))} ms, together ${Math.round(all.reduce((a, b) => a + b, 0))} ms`)(tasks.splice(0))")
		t.Logf("%s: %.0f elements; the page's thread worked %.1f s; %v", doing, n, worked-before, tasks)
		require.Less(t, n, float64(most), doing)
	}
	b.visit(l.url + "/rules")
	b.click("Load the active version") // while the rules load
	const rows = "[...document.querySelectorAll('[aria-label=Rules] tbody th')].map((e) => e.firstChild.textContent)"
	b.sees("document.querySelector('[aria-label=Rules] table')?.getAttribute('aria-rowcount') === '9601'")
	b.sees("document.querySelector('#document')?.value.includes('rule-9599')")
	b.has("Good: 9,600 rules")
	b.sees("document.querySelector('[aria-label=Rules] tbody td:last-child').textContent === '0'")
	small("loading")
	b.fill("input.filter", "rule-9599")
	b.sees(rows + ".join() === 'rule-9599'")
	b.fill("input.filter", "x-shop") // what it counts by
	b.sees(rows + ".join() === 'rule-9000'")
	b.fill("input.filter", "")
	b.sees(rows + "[0] === 'rule-0000'")
	small("filtering")

	for _, part := range []float64{0, 0.001, 0.004, 0.01, 0.5, 0.499, 0.99, 0.02, 0.002, 0} {
		b.eval(fmt.Sprintf("(() => { const of = document.querySelector('[aria-label=Rules] tbody').getBoundingClientRect(); scrollBy(0, of.top + %g * (of.height - innerHeight)); })()", part))
		b.sees("[60, innerHeight / 2, innerHeight - 5].every((y) => document.elementsFromPoint(innerWidth / 2, y).some((e) => e.closest('[aria-label=Rules] tr[aria-rowindex]')))")
		small(fmt.Sprintf("at %g of the rows", part))
	}
	b.eval("document.querySelector('[aria-label=Rules] tbody tr:last-child').scrollIntoView({block: 'end'})")
	b.sees(rows + ".at(-1) === 'rule-9599' && " + rows + "[0] !== 'rule-0000'")
	b.eval("(() => { const e = document.querySelector('.editor'); e.scrollTop = e.scrollHeight; })()")
	b.sees("document.querySelector('.gutter span:last-child').textContent === '67202'")
	b.sees("document.querySelector('.lens').innerText.includes('of shop 9599')")
	small("scrolling")
	b.look("rules-many")

	b.fill("#document", strings.Replace(text.String(), "[/9599/*]}\n    key: [client_ip]\n    limit: 799", "[/9599/*]}\n    key: [client_ip]\n    limit: no", 1))
	b.has("line 67199")
	b.sees("/limit: no +← /.test(document.querySelector('.lens').innerText)")
	b.fill("#document", strings.ReplaceAll(text.String(), "limit: 7", "limit: 8"))
	b.has("Good: 9,600 rules")
	b.click("Compare")
	b.has("limit: 700 → 800")
	b.has("… and 9,400 more")
	small("editing and comparing")
	b.click("Load the active version")
	b.sees("document.querySelector('#document').value.includes('limit: 799')")
	b.eval("scrollTo(0, 0)")
	b.sees(rows + "[0] === 'rule-0000'")
}
