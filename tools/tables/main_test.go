package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

func TestRegenerate(t *testing.T) {
	out, err := regenerate([]byte("a\n<!-- make tables: x -->\nold\n<!-- end: x -->\nb\n"), "x", "new\n")
	require.NoError(t, err)
	require.Equal(t, "a\n<!-- make tables: x -->\nnew\n<!-- end: x -->\nb\n", string(out))
	_, err = regenerate([]byte("a"), "x", "new")
	require.ErrorContains(t, err, `no place for "x"`)
}

// The document has a place for every table.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/TABLES.md")
	require.NoError(t, err)
	for _, name := range []string{"overshoot", "memory", "times", "calls"} {
		_, err := regenerate(text, name, "")
		require.NoError(t, err)
	}
}
