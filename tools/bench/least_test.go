package main

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// The baseline limits as exactly as weir: a cheaper one that admitted too many would be no
// baseline.
func TestLeast(t *testing.T) {
	l, err := startLeast(t.Context(), testenv.Redis(t, testenv.Options{}).Addr, 100, 3_600_000)
	require.NoError(t, err)
	var passed [3]atomic.Int64
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := range 150 {
				user := (caller + i) % len(passed)
				if l.passes([]byte{byte('a' + user)}) {
					passed[user].Add(1)
				}
			}
		})
	}
	callers.Wait()
	for i := range passed {
		require.EqualValues(t, 100, passed[i].Load())
	}
}
