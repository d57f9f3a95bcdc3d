package replay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestActive(t *testing.T) {
	var a Active[string]
	a.Advance(1)
	require.Zero(t, a.Count("a"))
	a.Begin("a", 30)
	a.Begin("b", 20)
	a.Begin("a", 10)
	f := func(now, wantA, wantB int64) {
		t.Helper()
		a.Advance(now)
		require.Equal(t, wantA, a.Count("a"))
		require.Equal(t, wantB, a.Count("b"))
	}
	f(9, 2, 1)
	f(10, 1, 1) // a request has ended at its end
	f(29, 1, 0)
	f(30, 0, 0)
	require.Empty(t, a.counts, "keys without requests take no memory")
}
