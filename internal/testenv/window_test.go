package testenv

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLongWindow(t *testing.T) {
	end := time.Unix(744*3600*670, 0)
	for before := time.Duration(0); before < 31*24*time.Hour; before += 20 * time.Minute {
		now := end.Add(-before)
		width := longWindow(now) * 3600
		require.Equal(t, now.Unix()/width, now.Add(outlasts).Unix()/width, "%s", now)
		require.GreaterOrEqual(t, width, int64(700*3600))
	}
	require.EqualValues(t, 743, longWindow(end.Add(-time.Hour)))
}
