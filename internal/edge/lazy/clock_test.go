package lazy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock is never early, and is exact once it is closed.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		for range 1000 {
			time.Sleep(Late / 7) // in the bubble, where a busy machine delays no ticker
			require.False(t, c.At(c.Tick()).Before(time.Now()))
			require.False(t, c.At(c.Tick()).After(time.Now().Add(Late)), "no more than a tick late")
		}
		c.Close()
		c.Close()
		synctest.Wait()
		require.Equal(t, time.Now(), c.At(c.Tick()), "exact")
	})
}
