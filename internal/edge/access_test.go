package edge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/edge/accesslog"
)

func TestAccessLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "access.log")
	n := start(t, setup{
		rules: `rules: [{id: a, match: {paths: [/limited]}, key: ["query:token"], limit: 1, window: 1h}]`,
		config: func(c *config.Config) {
			c.AccessLog = &accesslog.Config{File: file, Format: accesslog.JSON, Headers: []string{"X-Plan"}}
		},
	})
	n.get("/limited?token=hunter2", "X-Plan: free")
	n.get("/limited?token=hunter2")
	n.get("/limited?token=other")
	n.get("/twice?token=a", "Authorization: hunter2")
	lines := func(name string) (all []map[string]any) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NotContains(t, string(text), "hunter2")
		for line := range strings.Lines(string(text)) {
			var l map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &l), line)
			all = append(all, l)
		}
		return all
	}
	eventually(t, "four lines", func() bool { return len(lines(file)) == 4 })
	got := lines(file)
	for i, want := range []float64{200, 429, 200, 200} {
		require.Equal(t, want, got[i]["status"])
		require.Equal(t, "127.0.0.1", got[i]["client"])
		require.Positive(t, got[i]["duration_ms"])
	}
	require.Equal(t, got[0]["target"], got[1]["target"], "rules count as they did")
	require.NotEqual(t, got[0]["target"], got[2]["target"])
	require.Equal(t, map[string]any{"X-Plan": []any{"free"}}, got[0]["headers"])

	require.NoError(t, os.Rename(file, file+".1"))
	n.reload <- syscall.SIGHUP
	eventually(t, "a new file", func() bool { _, err := os.Stat(file); return err == nil })
	n.get("/after")
	n.stop()
	require.Len(t, lines(file+".1"), 4)
	require.Len(t, lines(file), 1)
	require.Zero(t, n.metric("weir_access_log_dropped_total"))
}
