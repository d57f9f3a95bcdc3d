package turns

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A connection yields before most reads while others have requests, and before few if none has.
func TestYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const reads = 16 * probeEvery
	ran := func(other func(l *Listener)) int64 {
		var l Listener
		var c Conn
		var rounds atomic.Int64
		var over atomic.Bool
		var wait sync.WaitGroup
		wait.Go(func() {
			for !over.Load() {
				rounds.Add(1)
				other(&l)
				runtime.Gosched()
			}
		})
		for range reads {
			c.Yield(&l)
		}
		defer wait.Wait()
		over.Store(true)
		return rounds.Load()
	}
	require.Less(t, ran(func(*Listener) {}), int64(reads/waitEvery), "something else runs")
	var second Conn
	require.Greater(t, ran(second.Yield), int64(reads/waitEvery), "another connection has requests")
}
