package browser

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// counted are rules whose counts the edges of a region share.
var counted = `rules:
  - {id: per-client, match: {paths: [/]}, key: [client_ip], algorithm: fixed_window, limit: 100, window: ` + testenv.LongWindow() + `}
  - {id: busy, match: {paths: [/busy]}, key: [client_ip], algorithm: fixed_window, limit: 100000, window: ` + testenv.LongWindow() + `, consistency: leased}
  - {id: per-path, match: {paths: [/]}, key: [path], algorithm: fixed_window, limit: 500, window: ` + testenv.LongWindow() + `}
`

// The client page shows the counts of the region's Redis, whichever edges decided. A reset
// clears them there and on all edges. For a leased limit the page names the holders.
func TestCounts(t *testing.T) {
	l := start(t, "trusted_proxies: [127.0.0.0/8]")
	l.join(0, "ams1-2", "")
	l.registers()
	l.edges[2].WaitReady()
	l.run("rules", "apply", l.write("rules.yaml", counted), "--yes", "-m", "counts")
	const client, kept = "203.0.113.9", "weir:{203.0.113.9}:per-client:*"
	keys := func(region int) int {
		list, err := l.redis[region].Client().Keys(t.Context(), kept).Result()
		require.NoError(t, err)
		return len(list)
	}
	for i, n := range []int{30, 0, 20} { // ams1-1, iad1-1, ams1-2
		for range n {
			require.Equal(t, http.StatusOK, l.ask(i, client, "/"))
		}
	}
	b := launch(t)
	b.dress("light", 1280)
	l.enter(b)
	b.visit(l.url + "/client?client=" + client)
	left := func(region string) string {
		return "document.querySelector('[aria-label=\"Rules of the next request in " + region + "\"] tbody tr')?.cells[3].textContent"
	}
	b.sees(left("eu-west") + " === '50' && " + left("us-east") + " === '100'")
	require.Equal(t, []int{1, 0}, []int{keys(0), keys(1)}, "each region counts for itself")
	b.look("counts")

	// Both edges of the region refuse; other regions do not.
	for range 50 {
		require.Equal(t, http.StatusOK, l.ask(2, client, "/"))
	}
	require.Equal(t, []int{429, 200, 429}, []int{l.ask(0, client, "/"), l.ask(1, client, "/"), l.ask(2, client, "/")})
	b.click("Explain")
	b.has("refuse, 429")
	b.click("Reset per-client")
	b.click("Reset")
	b.has("The counter is reset")
	b.click("Close")
	require.Zero(t, keys(0)+keys(1))
	b.sees(left("eu-west") + " === '100' && " + left("us-east") + " === '100'")
	require.Equal(t, []int{200, 200, 200}, []int{l.ask(0, client, "/"), l.ask(1, client, "/"), l.ask(2, client, "/")}, "no edge remembers the refusal")
	b.click("Explain")
	b.sees(left("eu-west") + " === '98' && " + left("us-east") + " === '99'")

	// A rule whose key is not an address.
	b.eval(`(() => { const e = document.querySelector('select[name=kind]'); e.value = 'path'; e.dispatchEvent(new Event('change', {bubbles: true})); })()`)
	b.sees("document.querySelector('[name=secret]').type === 'text'")
	b.fill("[name=secret]", "/")
	b.click("Look up")
	b.sees("document.querySelector('[aria-label=\"Rules that count this key in eu-west\"] tbody tr')?.cells[0].textContent === 'per-path'")

	// Both edges of the region lease parts of a busy client's limit.
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, edge := range []int{0, 2} {
		all.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				l.ask(edge, "203.0.113.50", "/busy")
				<-tick.C
			}
		})
	}
	t.Cleanup(func() { stop(); all.Wait() })
	b.fill("[name=client]", "203.0.113.50")
	b.fill("[name=path]", "/busy")
	const held = "[...document.querySelectorAll('[aria-label$=\"in eu-west\"] tbody tr')].filter((r) => r.cells[0].textContent === 'busy').map((r) => r.cells[3].innerText)"
	require.Eventually(t, func() bool {
		b.click("Explain")
		return b.is(held + ".some((text) => /edges hold [1-9]/.test(text) && /ams1-1: [1-9]/.test(text) && /ams1-2: [1-9]/.test(text))")
	}, testenv.Patience, 200*time.Millisecond, "%s", lately{b})
	b.look("counts-leased")
}
