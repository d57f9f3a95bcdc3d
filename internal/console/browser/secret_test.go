package browser

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"
)

// secrets looks an API key up by its hash: the page never sends the key itself.
func secrets(l *lab, b *chromium) {
	const secret = "sk-4711-hunter2"
	for range 3 {
		r, err := http.NewRequest(http.MethodGet, "http://"+l.edges[0].Public+"/", nil)
		require.NoError(l.t, err)
		r.Header.Set("X-Api-Key", secret)
		resp, err := http.DefaultClient.Do(r)
		require.NoError(l.t, err)
		require.NoError(l.t, resp.Body.Close())
		require.Equal(l.t, http.StatusOK, resp.StatusCode)
	}
	b.click("Client")
	b.fill("[name=secret]", secret)
	b.click("Look up")
	const row = "document.querySelector('[aria-label=\"Rules that count this key in eu-west\"] tbody tr')"
	b.sees(row + "?.cells[0].textContent === 'per-key' && " + row + ".cells[3].textContent === '7'")
	hash := fmt.Sprintf("~%x", sha256.Sum256([]byte(secret)))[:33]
	b.sees("new URLSearchParams(location.search).get('key') === 'header:X-Api-Key=" + hash + "' && document.querySelector('[name=secret]').value === ''")
	b.look("client-key")
	b.mu.Lock()
	sent := strings.Join(b.sent, "\n")
	b.mu.Unlock()
	require.Contains(l.t, sent, hash[1:])
	require.NotContains(l.t, sent, secret)
	b.visit(l.url + "/client?key=header:X-Api-Key=" + hash)
	b.has("per-key")
	b.fill("[name=client]", "127.0.0.1")
	b.click("Explain")
	b.sees("location.search === '?client=127.0.0.1' && !" + row)
}
