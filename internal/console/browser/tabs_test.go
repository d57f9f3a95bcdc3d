package browser

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Without HTTP/2, a browser has six connections to a host for all its tabs. Seven of them follow the
// rules, and the kill switch works in an eighth. When the tab that reads the feed is closed, the
// others continue.
func TestManyTabs(t *testing.T) {
	l := start(t)
	b := launch(t)
	l.enter(b)
	tabs := []*chromium{b}
	for range 6 {
		tabs = append(tabs, tab(t, b.at))
	}
	for _, c := range tabs {
		c.visit(l.url + "/rules")
		c.sees("document.querySelector('.fresh.good')")
	}
	last := tab(t, b.at)
	last.visit(l.url + "/shedder")
	last.has("all run the same")
	last.click("Kill switch…")
	last.fill("dialog [name=message]", "INC-2")
	last.click("Switch off")
	last.has("The shedder is off")
	last.visit(l.url + "/fleet")
	last.has("shedder off on 2")
	require.Contains(t, l.run("status"), `"shedder_off": true`)

	b.call("Page.close", nil, nil)
	l.run("rules", "apply", l.write("rules.yaml", document(4711, "enforce")), "--yes", "-m", "more")
	for _, c := range tabs[1:] {
		c.sees("document.querySelector('[aria-label=Rules]')?.innerText.includes('4,711')")
	}
	l.close()
	for _, c := range tabs[1:] {
		c.has("What you see is out of date")
	}
}
