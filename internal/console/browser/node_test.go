package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// A node without Consul has its own page. It shows the rules' counts, why a client is refused
// and how to admit it again, and what is shed, and can switch shedding off temporarily.
func TestANodeShowsItself(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	t.Cleanup(origin.Close)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte("rules: [{id: two, description: two a month, key: [client_ip], algorithm: fixed_window, limit: 2, window: "+testenv.LongWindow()+"}, {id: tight, key: [client_ip], algorithm: fixed_window, limit: 1, window: "+testenv.LongWindow()+", mode: shadow}]"), 0o600))
	edge := testenv.StartEdge(t, fmt.Sprintf("rules: {file: %q}\nstore: {kind: memory}\nupstreams: [{url: %q}]\n", rules, origin.URL))
	edge.WaitReady()
	ask := func() int {
		resp, err := http.Get("http://" + edge.Public + "/login")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	for _, want := range []int{200, 200, 429, 429} {
		require.Equal(t, want, ask())
	}

	b := launch(t)
	b.dress("light", 1280)
	b.visit("http://" + edge.Admin + "/")
	b.has("two a month")
	// What was allowed and limited; a rule in shadow mode limits nothing.
	b.sees("[...document.querySelectorAll('tr')].some((r) => r.innerText.match(/^two[^]*\\b2\\s+2\\s*$/))")
	b.sees("((r) => r.cells[5].textContent > 0 && r.cells[7].textContent === '0')([...document.querySelectorAll('[aria-label=Rules] tbody tr')].find((r) => r.cells[0].textContent === 'tight'))")
	b.has("inflight")
	b.fill("input.filter", "user_agent")
	b.has("No rule matches the filter")
	b.fill("input.filter", "client_ip") // what it counts by
	b.has("two a month")
	b.look("node")

	b.fill("input[name=client]", "127.0.0.1")
	b.fill("input[name=path]", "/login")
	b.click("Explain")
	b.has("weir:{127.0.0.1}:two")
	b.look("node-client")
	b.click("Reset two")
	b.has("-X DELETE")
	b.click("Reset")
	b.has("The counter is reset")
	b.click("Close")
	require.Equal(t, 200, ask())
	b.visit("http://" + edge.Admin + "/?client=127.0.0.1&path=%2Flogin") // like a link from a chat
	b.has("weir:{127.0.0.1}:two")

	b.click("Kill switch…")
	b.has("Switch the load shedder of this node off?")
	b.fill("dialog input", "soon")
	b.click("Switch off")
	b.has("Nothing was changed")
	b.click("Close")
	b.click("Kill switch…")
	b.click("Switch off")
	b.has("The shedder is off")
	b.click("Close")
	b.click("End temporary settings…")
	b.click("End them")
	b.has("They have ended")
	b.click("Close")
	b.has("Kill switch…")

	edge.Kill()
	b.has("What you see is out of date")
	b.look("node-gone")
	require.Equal(t, map[string]bool{"http://" + edge.Admin: true}, b.hosts)
}
