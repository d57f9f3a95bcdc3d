package browser

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A region's Consul is frozen. The kill switch, its end and Restore say which regions answer,
// continue with those in one click, and then show what each region has.
func TestButtonsWithoutARegion(t *testing.T) {
	l := start(t)
	l.run("rules", "apply", l.write("rules.yaml", document(70, "enforce")), "--yes", "-m", "too strict")
	b := launch(t)
	b.dress("light", 1280)
	l.enter(b)
	b.mu.Lock()
	b.offline = true // refused requests are errors in the browser's log
	b.mu.Unlock()
	const results = "[...document.querySelectorAll('dialog [aria-label=\"What each region has\"] tbody tr')].map((r) => [r.cells[0], r.cells[1]].map((c) => c.textContent).join(' ')).join()"

	// The page has seen all regions answer. The click finds out, and one more continues.
	b.visit(l.url + "/shedder")
	b.has("all run the same")
	b.click("Kill switch…")
	b.fill("dialog [name=message]", "INC-2")
	t.Cleanup(l.consuls[1].Resume)
	l.consuls[1].Suspend()
	b.click("Switch off")
	b.has("Some regions do not answer")
	require.Equal(t, "eu-west not changed,us-east does not answer", b.eval(results))
	b.look("shedder-away")
	b.click("Continue with eu-west")
	b.has("Partly done")
	require.Equal(t, "eu-west applied,us-east does not answer", b.eval(results))
	b.look("shedder-partly")
	b.click("Close")

	// Now the page knows which region is away, and the first click continues without it.
	b.has("Shedding is off in eu-west")
	b.has("us-east does not answer")
	b.click("End temporary settings…")
	b.has("This continues with eu-west")
	b.click("End them in eu-west")
	b.has("Partly done")
	require.Equal(t, "eu-west applied,us-east does not answer", b.eval(results))
	b.click("Close")
	require.NotContains(t, l.run("shedder", "show", "--live", "--region", "eu-west"), `"off": true`)

	b.visit(l.url + "/rules")
	b.has("too strict")
	b.sees("[...document.querySelectorAll('[aria-label=\"Versions by region\"] tbody tr')].map((r) => r.cells[5].querySelector('.badge').textContent).join() === 'all run it,unknown'")
	b.eval("document.querySelector('[aria-label^=\"Restore version\"]').click()")
	b.has("This continues with eu-west")
	b.click("Restore in eu-west")
	b.has("Partly done")
	require.Equal(t, "eu-west applied,us-east does not answer", b.eval(results))
	b.click("Close")

	// The switch is on in one region when the other returns: both have a button.
	b.visit(l.url + "/shedder")
	b.has("us-east unknown")
	b.click("Kill switch…")
	b.fill("dialog [name=message]", "INC-3")
	b.click("Switch off in eu-west")
	b.has("Partly done")
	b.click("Close")
	l.consuls[1].Resume()
	l.consuls[1].WaitHealthy()
	b.has("Shedding is off in eu-west; us-east sheds")
	b.sees("[...document.querySelectorAll('button')].some((e) => e.textContent.startsWith('Kill switch'))")
	b.click("End temporary settings…")
	b.click("End them")
	b.has("They have ended")
	b.click("Close")
	b.sees("!document.body.innerText.includes('Shedding is off')")
	require.Equal(t, "1200 70", l.limits())
	require.False(t, b.is("window.ran"), "a script of a stranger ran")
}
