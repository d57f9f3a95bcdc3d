package limits

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// A policy in shadow changes nothing, so what it would do is not told as done.
func TestBehaviorInShadow(t *testing.T) {
	f := func(mode, want string) {
		t.Helper()
		var b bytes.Buffer
		writeBehavior(&b, term.Style{}, &adminapi.Behavior{Tier: "blocked", Score: 90, Mode: mode, PolicyVersion: "v1", Limits: 0.2, RefusedFor: "34.5s"})
		require.Contains(t, b.String(), want)
	}
	f("enforce", "policy v1), limits × 0.2, refused for 34.5s\n")
	f("shadow", "policy v1), if enforced: limits × 0.2, refused for 34.5s\n")
}
