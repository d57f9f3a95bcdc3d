package ctl

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// Who may change some regions halts no rollout that runs in others, whichever way.
func TestHaltNeedsAllRegions(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.running(t)
	ana := f.converse(t, "rules", "apply", write(t, "next.yaml", rulesOf(2)), "--by", "ana", "--yes", "--waves", "1,rest", "--soak", "10m", "--interval", "100ms", "--min-requests", "0")
	ana.sees(t, " left")
	bounded := func(args ...string) error {
		p := f.program(strings.NewReader(""), &buffer{}, &buffer{})
		p.MayHalt = func(regions []string) error { return fmt.Errorf("bob may not change %s", strings.Join(regions, ", ")) }
		return run(t.Context(), p, append(args, "--fleet", f.file, "--yes", "--region", "eu-west", "--by", "bob"))
	}
	two, three := versionOf(rulesOf(2)), write(t, "three.yaml", rulesOf(3))
	for _, args := range [][]string{{"undo", "rules"}, {"undo", "rules", "--to", versionOf(rulesOf(1))}, {"rules", "apply", three}, {"rules", "apply", write(t, "two.yaml", rulesOf(2))}} {
		require.ErrorContains(t, bounded(args...), "nothing was changed: this would halt the rollout of "+two+", which ana runs: bob may not change eu-west, us-east", "%v", args)
	}
	require.Contains(t, f.good(t, "rules", "rollout").out, "its regionctl runs")
	require.Equal(t, two, f.current(t, "eu-west"))
	ana.cancel()
	require.Equal(t, term.StatusInterrupted, ana.end(t).status)
	require.NoError(t, bounded("undo", "rules"), "it does not run any more")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
}
