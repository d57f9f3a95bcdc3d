package edge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestShedTenths(t *testing.T) {
	f := func(level float64, classes int, want string) {
		t.Helper()
		e := &Edge{}
		e.shedLevel.Store(shedTenths(level, classes))
		require.Equal(t, want, e.levelMeta())
	}
	f(0, 4, "")
	f(0.1, 4, "") // less than a twentieth is nothing
	f(0.3, 4, "0.1")
	f(1.5, 4, "0.5")
	f(3, 4, "1.0")
	f(9, 4, "1.0")
	f(1, 1, "")
}
