package recent

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecent(t *testing.T) {
	var r Max
	r.See(3, 0)
	r.See(2, 1)
	require.EqualValues(t, 3, r.Value(halfMinute-1))
	require.EqualValues(t, 3, r.Value(halfMinute), "no new value since")
	r.See(1, halfMinute)
	require.EqualValues(t, 3, r.Value(2*halfMinute-1))
	r.See(1, 2*halfMinute)
	require.EqualValues(t, 1, r.Value(2*halfMinute))
	require.Zero(t, r.Value(4*halfMinute))
}
