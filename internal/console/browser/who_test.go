package browser

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Fleet, Rules and Behavior name whom rules limit, whom a shadow rule would limit, and who is
// suspicious; each name leads to Client, and what clients send runs nowhere.
func TestWho(t *testing.T) {
	l := start(t, "trusted_proxies: [127.0.0.0/8]")
	l.run("rules", "apply", l.write("who.yaml", `rules:
  - {id: per-client, match: {paths: [/]}, key: [client_ip], limit: 3, window: 1h}
  - {id: per-key, match: {paths: [/key]}, key: ["header:X-Api-Key"], limit: 1, window: 1h}
  - {id: stricter, match: {paths: ["/<img*"]}, key: [path], limit: 1, window: 1h, mode: shadow}
`), "--yes")
	l.run("policy", "apply", l.write("policy.yaml", "{mode: shadow, signals: {presence: {weight: 100, at_least: 2, share: 0.1}}}"), "--yes")
	const secret = "sk-4711-hunter2"
	// Until the page has them: counts are forgotten after a while.
	limited := func() {
		for range 4 {
			l.ask(0, "203.0.113.7", "/")
			l.ask(0, "203.0.113.8", hostilePath)
			r, err := http.NewRequest(http.MethodGet, "http://"+l.edges[1].Public+"/key", nil)
			require.NoError(t, err)
			r.Header.Set("X-Forwarded-For", "203.0.113.9")
			r.Header.Set("X-Api-Key", secret)
			resp, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		}
	}
	b := launch(t)
	b.dress("light", 1280)
	l.enter(b)
	shows := func(page, table string, rows ...string) {
		t.Helper()
		b.visit(l.url + "/" + page)
		for _, row := range rows {
			require.Eventually(t, func() bool {
				limited()
				return b.is("[...document.querySelectorAll('[aria-label=\"" + table + "\"] tbody tr')].some((r) => new RegExp(" + literal(row) + ").test([...r.cells].map((c) => c.textContent).join(' | ')))")
			}, testenv.Patience, 500*time.Millisecond, "%s: %s: %s", page, row, lately{b})
		}
		b.look("who-" + page)
	}
	key := "header:X-Api-Key=" + rules.HashOf("header:X-Api-Key", secret)
	shows("fleet", "Refused clients", `^203\.0\.113\.7 \| per-client \| refused \| \d+ \| eu-west$`, `^`+key+`latest from 203\.0\.113\.9 \| per-key \| refused \| \d+ \| us-east$`)
	require.False(t, b.is("document.querySelector('[aria-label=\"Refused clients\"]').textContent.includes('stricter')"))
	shows("rules", "Refused clients", `^203\.0\.113\.7 \| per-client \|`, `^path=/%3Cimg.*latest from 203\.0\.113\.8 \| stricter \| would be refused \|`)
	shows("behavior", "Tiers and signals", `^203\.0\.113\.\d \| \w+ in shadow mode.* \| \d+ \| .*presence \|`)

	// A name leads to its page, and back to an edited document.
	b.visit(l.url + "/rules")
	b.fill("#document", "rules: []\n# edited\n")
	require.Eventually(t, func() bool {
		limited()
		return b.is("document.querySelector('[aria-label=\"Refused clients\"] a[href=\"/client?client=203.0.113.7\"]')")
	}, testenv.Patience, 500*time.Millisecond, "%s", lately{b})
	b.eval("document.querySelector('a[href=\"/client?client=203.0.113.7\"]').click()")
	b.has("refused in 1 of 2 regions eu-west")
	b.sees("location.search === '?client=203.0.113.7' && document.querySelector('h3').textContent.startsWith('eu-west')")
	b.look("who-client")
	b.eval("history.back()")
	b.sees("document.querySelector('#document')?.value.includes('# edited')")
	b.visit(l.url + "/client?" + fmt.Sprintf("key=%s", key))
	b.has("per-key")
	require.False(t, b.is("window.ran"), "a script of a stranger ran")
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.faults)
}
