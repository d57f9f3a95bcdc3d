package edge

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

// Chromium fetches 200 answers, some of a megabyte, on one connection: none of the budgets for frames stops it.
func TestChromiumSpeaksHTTP2(t *testing.T) {
	files, large := testenv.Certificates(t), make([]byte, 1<<20)
	n := start(t, setup{
		rules: "rules: []",
		origin: func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/":
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, `<body>waiting<script>
Promise.all([...Array(200).keys()].map(i => fetch(i % 20 ? '/small?' + i : '/large?' + i).then(r => r.arrayBuffer()))).then(all => {
  const h2 = performance.getEntriesByType('resource').filter(e => e.initiatorType === 'fetch' && e.nextHopProtocol === 'h2').length
  document.body.textContent = all.reduce((n, b) => n + b.byteLength, 0) + ' bytes, ' + h2 + ' by h2'
})</script>`)
			case "/large":
				_, _ = w.Write(large)
			default:
				_, _ = w.Write(large[:10])
			}
		},
		config: func(c *config.Config) { c.Listen.TLS, c.Listen.HTTP2.TLS = &config.TLS{Pair: pairOf(files)}, true },
	})
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--ignore-certificate-errors",
		"--user-data-dir="+t.TempDir(), "--timeout=110000", "--virtual-time-budget=20000", "--dump-dom", "https://"+n.public+"/").Output()
	require.NoError(t, err, "chromium is required: apt-get install chromium")
	require.Contains(t, string(out), "10487660 bytes, 200 by h2")
	for _, reason := range []string{"resets", "control_frames", "window_updates", "empty_data", "closed_streams", "protocol"} {
		require.Zero(t, n.metric(`weir_http2_refused_total{reason="`+reason+`"}`), reason)
	}
}
