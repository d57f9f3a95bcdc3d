package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/tools/internal/report"
)

// The document has a place for every table.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/BENCHMARKS.md")
	require.NoError(t, err)
	for _, name := range []string{"proxy", "leased", "forward", "refuse", "shed", "rls", "rls-refuse", "store-uniform-64", "store-uniform-512", "store-zipf-64", "store-zipf-512", "hot", "memory", "swap"} {
		_, err := report.Regenerate(text, "bench", name, "")
		require.NoError(t, err)
	}
}

func TestAnUnknownPartIsRefused(t *testing.T) {
	require.ErrorContains(t, run(t.Context(), options{only: "proxy,refused"}), `there is no part "refused"; choose from proxy, leased, forward`)
}

func TestRatios(t *testing.T) {
	require.Equal(t, "0.912 ± 0.004", ratioText(0.912, 0.004))
	require.Equal(t, "123 ± 1.5", ratioText(123.4, 1.5))
}
