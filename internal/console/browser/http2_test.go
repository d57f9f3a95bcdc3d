package browser

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// loads sends more concurrent requests than a connection has streams, uploads more than a
// flow-control window, and exceeds a limit. It returns what the page saw.
const loads = `(async () => {
  const small = await Promise.all([...Array(150).keys()].map(async (i) => (await fetch("/n/" + i)).text()));
  const sent = "x".repeat(1 << 20);
  const echoed = await (await fetch("/echo", {method: "POST", body: sent})).text();
  const limited = [];
  for (let i = 0; i < 3; i++) {
    const r = await fetch("/limited");
    limited.push({status: r.status, retry: r.headers.get("retry-after"), left: r.headers.get("ratelimit"), body: await r.text()});
  }
  const entries = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  return JSON.stringify({
    wrong: small.filter((text, i) => text !== "n" + i).length, whole: echoed === sent, limited,
    entries: entries.length, protocols: [...new Set(entries.map((e) => e.nextHopProtocol))],
  });
})()`

// Over TLS, Chromium negotiates HTTP/2 with an edge.
func TestAnEdgeSpeaksHTTP2WithChromium(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<!doctype html><title>shop</title><p>welcome")
		case r.URL.Path == "/echo":
			_, _ = io.Copy(w, r.Body)
		default:
			_, _ = io.WriteString(w, strings.ReplaceAll(strings.TrimPrefix(r.URL.Path, "/"), "/", ""))
		}
	}))
	t.Cleanup(origin.Close)
	files, dir := testenv.Certificates(t), t.TempDir()
	rules, log := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "access.log")
	require.NoError(t, os.WriteFile(rules, []byte("rules: [{id: two, match: {paths: [/limited]}, key: [client_ip], algorithm: fixed_window, limit: 2, window: "+testenv.LongWindow()+"}]"), 0o600))
	edge := testenv.StartEdge(t, fmt.Sprintf("  tls: {cert_file: %q, key_file: %q}\n  http2: {tls: true}\nrules: {file: %q}\naccess_log: {file: %q}\nstore: {kind: memory}\nupstreams: [{url: %q}]\n",
		files.CertFile, files.KeyFile, rules, log, origin.URL))
	edge.WaitReady()

	c := launch(t)
	c.visit("https://" + edge.Public + "/")
	c.has("welcome")
	var saw struct {
		Wrong, Entries int
		Whole          bool
		Protocols      []string
		Limited        []struct {
			Status            int
			Retry, Left, Body string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(c.eval(loads).(string)), &saw))
	require.Zero(t, saw.Wrong)
	require.True(t, saw.Whole)
	require.GreaterOrEqual(t, saw.Entries, 150)
	require.Equal(t, []string{"h2"}, saw.Protocols)
	require.Len(t, saw.Limited, 3)
	require.Equal(t, 200, saw.Limited[1].Status)
	require.Contains(t, saw.Limited[1].Left, `"two";r=0`)
	require.Equal(t, 429, saw.Limited[2].Status)
	require.NotEmpty(t, saw.Limited[2].Retry)
	require.Contains(t, saw.Limited[2].Body, `"violated-policies":["two"]`)

	var lines []string
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(log)
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return err == nil && len(lines) >= 155
	}, testenv.Patience, 50*time.Millisecond)
	for _, line := range lines {
		require.Contains(t, line, " HTTP/2.0\" ")
	}
}
