package replay

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

const benchCandidate = `
rules:
  - {id: per-client, key: [client_ip], limit: 100, window: 1m}
  - {id: api, match: {paths: ["/api/*"]}, key: ["header:X-Api-Key"], missing: limit, algorithm: token_bucket, limit: 50, window: 10s}
  - {id: login, match: {paths: [/login]}, key: [client_ip], algorithm: sliding_window, limit: 5, window: 1m, mode: shadow}
  - {id: at-once, key: [client_ip], algorithm: concurrency, limit: 4, window: 30s}
  - {id: all, key: [], algorithm: fixed_window, limit: 100000, window: 1m}
`

const benchRunning = `
rules:
  - {id: per-client, key: [client_ip], limit: 200, window: 1m}
  - {id: all, key: [], algorithm: fixed_window, limit: 100000, window: 1m}
`

// BenchmarkReplay replays a million lines of 100,000 clients against two documents: one
// iteration is an operator's wait.
func BenchmarkReplay(b *testing.B) {
	const lines = 1_000_000
	for _, f := range []struct {
		name  string
		write func(*bytes.Buffer, *sample)
	}{{"json", asJSON}, {"combined", asCombined}} {
		log, err := io.ReadAll(newTraffic(lines, 100_000, f.write))
		require.NoError(b, err)
		b.Run(f.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(log)))
			for b.Loop() {
				r, err := Run(b.Context(), Config{Candidate: load(b, benchCandidate), Running: load(b, benchRunning)}, bytes.NewReader(log))
				require.NoError(b, err)
				require.EqualValues(b, lines, r.Requests)
			}
			b.ReportMetric(float64(b.N)*lines/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
