package frames

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Open(Budget{Burst: 10, Rate: 2}, time.Now())
		allows := func(frames int) {
			t.Helper()
			for i := range frames {
				require.False(t, a.Spend(), "frame %d of %d", i, frames)
			}
			require.True(t, a.Spend(), "one more")
		}
		allows(10)
		time.Sleep(2 * time.Second)
		allows(3) // four, of which one pays for the excess
		a.Earn(5)
		allows(4)
		a.Earn(1000) // what is saved up is bounded
		allows(savedBursts*10 + 10)
		time.Sleep(time.Hour)
		require.False(t, a.Over())
		allows(10)
	})
}
