package global

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFaults(t *testing.T) {
	f := func(line string, counts, escrow bool) {
		t.Helper()
		l := limitOf(t, "%s", line)
		require.Equal(t, counts, CountsFault(l) == "", CountsFault(l))
		require.Equal(t, escrow, EscrowFault(l) == "", EscrowFault(l))
	}
	f("r fixed_window limit=10 window=60s", true, true)
	f("r sliding_window limit=10 window=60s", true, false)
	f("r token_bucket limit=10 window=60s burst=10", true, false)
	f("r token_bucket limit=10 window=1s burst=10", false, false)
	f("r fixed_window limit=10 window=1s", false, false)
	f("r leaky_bucket limit=10 window=60s burst=10", true, false)
	f("r rolling_window limit=10 window=60s", false, false)
	f("r concurrency limit=10 window=60s", false, false)
	f("r fixed_window limit=10 window=60s leased", true, true)
	f("r token_bucket limit=10 window=60s burst=10 leased", true, false)
	denied := limitOf(t, "r fixed_window limit=10 window=60s")
	denied.CountDenied = true
	require.NotEmpty(t, CountsFault(denied))
	require.NotEmpty(t, EscrowFault(denied))
}
