package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/tools/internal/report"
)

// Requests that may lie in one window count only if they must.
func TestMost(t *testing.T) {
	at := func(ms ...int) (all []admitted) {
		for i := 0; i < len(ms); i += 2 {
			begin := time.Unix(0, 0)
			all = append(all, admitted{begin.Add(time.Duration(ms[i]) * time.Millisecond), begin.Add(time.Duration(ms[i+1]) * time.Millisecond)})
		}
		return all
	}
	require.Zero(t, most(nil, time.Second))
	require.Equal(t, 2, most(at(0, 1, 998, 999, 1001, 1002), time.Second))
	require.Equal(t, 1, most(at(0, 1, 999, 1000), time.Second), "it may have been decided a whole window later")
}

// The document has a place for every table.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/TABLES.md")
	require.NoError(t, err)
	for _, name := range []string{"overshoot", "memory", "times", "decisions", "calls", "nodes", "growth", "overlap"} {
		_, err := report.Regenerate(text, "tables", name, "")
		require.NoError(t, err)
	}
}
