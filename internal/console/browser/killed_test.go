package browser

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// A console is killed (SIGKILL) during waves and during a canary. The next one shows the
// unfinished rollout: the completed waves, who began it, and that its process is gone. It can
// resume the rollout or roll it back.
func TestConsoleIsKilled(t *testing.T) {
	l := start(t)
	l.run("rules", "apply", l.write("rules.yaml", document(70, "enforce")), "--yes", "-m", "the first rules")
	b := launch(t)
	b.dress("light", 1280)
	l.enter(b)

	l.waves(b, 69, "INC-11")
	l.restart(b)
	b.has("ana@desk: step by step, INC-11")
	b.has("Abandoned: 1 of 2 waves done")
	b.has("The process that ran it is gone")
	const states = "[...document.querySelectorAll('[aria-label=\"How far the unfinished rollout is\"] tbody tr')].map((r) => [r.cells[0], r.cells[1], r.cells[4]].map((c) => c.textContent).join(' ')).join()"
	require.Equal(t, "1 eu-west changed,2 us-east as before", b.eval(states))
	require.Equal(t, "69 70", l.limits(), "each region keeps what it has")
	b.look("rollout-abandoned")
	b.click("Resume…")
	require.True(t, b.is("document.querySelector('dialog').innerText.includes('regionctl rules apply --resume')"))
	b.look("rollout-resume")
	b.click("Resume")
	b.has("The rollout continues")
	b.click("Close")
	b.has("Every edge that could be asked runs it")
	b.sees("/continues the rollout of .* which ana@desk began .* INC-11\\n[^]*wave 1 of 2 has it already, and is watched again/.test(document.querySelector('.rollout .log').textContent)")
	b.sees("document.querySelector('#document').value.includes('limit: 69')")
	require.Equal(t, "69 69", l.limits())
	require.Contains(t, l.run("rules", "rollout"), `"rollout": null`)
	require.Contains(t, l.run("rules", "history"), "step by step, INC-11")

	l.waves(b, 68, "INC-12")
	l.restart(b)
	b.has("Abandoned: 1 of 2 waves done")
	b.click("Roll back…")
	require.True(t, b.is("document.querySelector('dialog').innerText.includes('Roll back eu-west?')"))
	b.click("Roll back")
	b.has("The regions run what they ran before the rollout")
	b.click("Close")
	b.sees("!document.querySelector('.rollout')")
	require.Equal(t, "69 69", l.limits())

	// A site's edges follow a canary until it ends.
	l.edit(b, 67)
	b.choose("canary")
	b.sees("document.querySelector('select[name=site]').value === 'ams1'")
	b.fill("[name=bake]", "10m")
	l.begin(b, "one site first, INC-13")
	require.Eventually(t, func() bool { return l.limits() == "67 69" }, testenv.Patience, 50e6)
	l.restart(b)
	b.has("Abandoned: canary on ams1")
	b.has("The edges of ams1 run the canary until")
	b.look("rollout-abandoned-canary")
	b.click("Roll back…")
	require.True(t, b.is("document.querySelector('dialog').innerText.includes('End the canary on ams1?')"))
	b.click("Roll back")
	b.has("The regions run what they ran before the rollout")
	b.click("Close")
	b.sees("!document.querySelector('.rollout')")
	require.Eventually(t, func() bool { return l.limits() == "69 69" }, testenv.Patience, 50e6)
	l.run("audit", "verify")
}

// edit puts a document with this limit into the editor.
func (l *lab) edit(b *chromium, limit int) {
	b.visit(l.url + "/rules")
	b.sees("document.querySelector('#document')?.value.includes('limit: ')")
	b.fill("#document", document(limit, "enforce"))
	b.has("Good: 3 rules")
}

func (l *lab) begin(b *chromium, message string) {
	b.fill("[name=requests]", "0")
	b.click("Roll out…")
	b.fill("dialog [name=message]", message)
	b.click("Roll out")
	b.has("The rollout has begun")
	b.click("Close")
}

// waves begins a rollout in waves and returns while the first region bakes.
func (l *lab) waves(b *chromium, limit int, issue string) {
	before := l.limits()[3:]
	l.edit(b, limit)
	b.choose("waves")
	b.fill("[name=soak]", "20s") // ample for killing the console meanwhile
	l.begin(b, "step by step, "+issue)
	require.Eventually(l.t, func() bool { return l.limits() == l.limits()[:3]+before && l.limits() != before+" "+before }, testenv.Patience, 50e6)
}

// restart kills the console and opens the rules page of a new one.
func (l *lab) restart(b *chromium, how ...string) {
	b.mu.Lock()
	b.offline = true
	b.mu.Unlock()
	l.end(syscall.SIGKILL)
	l.open(append([]string{"--listen", "127.0.0.1:0"}, how...)...)
	l.enter(b)
	b.visit(l.url + "/rules")
}
