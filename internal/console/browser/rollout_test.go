package browser

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// choose selects a rollout method.
func (c *chromium) choose(way string) {
	c.t.Helper()
	radio := "document.querySelector('input[name=how][value=" + way + "]')"
	c.sees(radio)
	c.eval(radio + ".click()")
}

// rollOut applies documents on the rules page, where the edges have a limit of 70: in shadow,
// in waves that are halted and rolled back, and with a canary.
func rollOut(l *lab, b *chromium) {
	b.t.Helper()
	// The limited share must stay within the bounds, so limits hardly change. In shadow mode,
	// new rules count and refuse no one: the page writes the mode into the document.
	b.click("Load the active version")
	b.sees("document.querySelector('#document').value.includes('limit: 70')")
	b.fill("#document", document(70, "enforce")+"  - {id: brandnew, key: [client_ip], limit: 1, window: 1m}\n")
	b.has("Good: 4 rules")
	b.click("Compare")
	b.choose("shadow")
	b.has("New here: brandnew")
	b.look("rollout-shadow")
	b.click("Roll out…")
	b.fill("dialog [name=message]", "a new rule, INC-5")
	b.click("Roll out")
	b.has("The rollout has begun")
	b.click("Close")
	b.sees("document.querySelector('#document').value.includes('limit: 1, window: 1m, mode: shadow}')")
	b.has("Every edge that could be asked runs it")
	require.Contains(l.t, l.run("rules", "show"), "mode: shadow}\\n\"")

	// In waves. After a reload the page still shows the rollout, which is halted.
	b.fill("#document", document(69, "enforce"))
	b.has("Good: 3 rules")
	b.choose("waves")
	b.fill("[name=soak]", "1m")
	b.fill("[name=requests]", "0")
	b.click("Roll out…")
	b.fill("dialog [name=message]", "step by step, INC-6")
	b.click("Roll out")
	b.has("The rollout has begun")
	b.click("Close")
	require.Eventually(l.t, func() bool { return l.limits() == "69 70" }, testenv.Patience, 50e6)
	b.visit(l.url + "/rules")
	b.has("step by step, INC-6")
	b.has("wave 1 of 2")
	b.sees("document.querySelector('.rollout progress')")
	b.look("rollout-running")
	b.click("Halt…")
	b.click("Halt")
	b.has("The rollout is halting")
	b.click("Close")
	b.has("halted after wave 1 of 2")
	require.Equal(l.t, "69 70", l.limits())
	b.look("rollout-halted")
	b.click("Roll back…")
	require.True(l.t, b.is("document.querySelector('dialog').innerText.includes('regionctl undo rules')"))
	b.click("Roll back")
	b.has("The regions run what they ran before the rollout")
	b.click("Close")
	require.Equal(l.t, "70 70", l.limits())

	// A canary that is promoted.
	b.click("Load the active version")
	b.sees("document.querySelector('#document').value.includes('limit: 70')")
	b.fill("#document", document(70, "enforce"))
	b.has("Good: 3 rules")
	b.choose("canary")
	b.sees("document.querySelector('select[name=site]').value === 'ams1'")
	b.fill("[name=bake]", "2s")
	b.fill("[name=requests]", "0")
	b.click("Roll out…")
	b.fill("dialog [name=message]", "one site first, INC-7")
	b.click("Roll out")
	b.click("Close")
	b.has("Every edge that could be asked runs it")
	require.Equal(l.t, "70 70", l.limits())
	require.NotContains(l.t, l.run("rules", "show"), "brandnew")
	b.look("rollout-done")
	require.Contains(l.t, strings.ReplaceAll(l.run("rules", "history"), "\n", ""), "one site first, INC-7")
}
