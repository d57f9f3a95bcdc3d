package ctl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A change of one region is taken back, and brought back, in that region only, although another
// region has the version that it had before.
func TestUndoOneRegionTwice(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.publish(t, rulesOf(1), "eve", f.names...)
	f.publish(t, rulesOf(2), "eve", f.names...)
	f.good(t, "rules", "apply", write(t, "three.yaml", rulesOf(3)), "--region", "us-east", "--yes")
	for _, want := range []int{2, 3} {
		r := f.good(t, "undo", "rules", "--yes")
		require.Equal(t, versionOf(rulesOf(want)), f.current(t, "us-east"), r.errOut)
		require.Equal(t, versionOf(rulesOf(2)), f.current(t, "eu-west"), r.errOut)
	}
}
