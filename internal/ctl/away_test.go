package ctl

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
)

// Whether a PoP of a region that does not answer serves is unknown: it is not down.
func TestStatusOfARegionThatIsAway(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes", "--by", "ana")
	f.edge(t, "us-east", "iad1", "iad1-1")
	f.consuls["us-east"].Kill()

	r := f.run(t, "status", "-o", "json")
	require.Equal(t, term.StatusPartial, r.status, r.errOut)
	v := parse[struct {
		Regions []struct{ Pops []map[string]any }
	}](t, r.out)
	eu, us := v.Regions[0].Pops[0], v.Regions[1].Pops[0]
	require.Equal(t, []any{"ams1", false, 0.0}, []any{eu["pop"], eu["serving"], eu["passing"]})
	require.Equal(t, []any{"iad1", nil, nil}, []any{us["pop"], us["serving"], us["passing"]})

	require.Equal(t, term.StatusPartial, f.run(t, "drain", "iad1", "--message", "fire", "--yes", "--force", "--wait", "0").status)
	us = parse[struct {
		Regions []struct{ Pops []map[string]any }
	}](t, f.run(t, "status", "-o", "json").out).Regions[1].Pops[0]
	require.Equal(t, []any{"iad1", false, nil}, []any{us["pop"], us["serving"], us["passing"]}, "one region's drain is enough")
}

// A change may have been made in a region that does not answer, too.
func TestHistoryWithARegionAway(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes", "--by", "ana")
	f.consuls["us-east"].Kill()
	require.Regexp(t, ` ana .* eu-west, us-east\?`, f.run(t, "topology", "history").out)
	require.Regexp(t, ` ana .* eu-west, us-east\?`, f.run(t, "audit", "list").out)
	f.consuls["us-east"].Start()
	require.Regexp(t, ` ana .* all`, f.good(t, "topology", "history").out)
}
