package testenv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

var kept []byte

func TestAllocatedIsExact(t *testing.T) {
	const size, times = 1024, 64
	wrong := 0 // an eighth of the times if the runtime's chunks of eight counted
	for range times {
		before := allocated()
		kept = make([]byte, size)
		if took := allocated() - before; took < size || took >= 2*size {
			wrong++
		}
	}
	require.Less(t, wrong, times/16, "other goroutines rarely allocate meanwhile")
}
