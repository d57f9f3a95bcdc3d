package unfinished

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// A running rollout first measures its canary's site, and only then begins the canary.
func TestCanaryOfRollout(t *testing.T) {
	f := func(want string, u Rollout) {
		t.Helper()
		u.Canary = "ams1"
		var b bytes.Buffer
		u.write(&b, term.Style{}, kinds.Rules, time.Unix(0, 0))
		require.Contains(t, b.String(), "\n  canary on ams1: "+want+"\n")
	}
	f("until 1970-01-01 00:01:00Z", Rollout{State: Runs, CanaryUntil: time.Unix(60, 0)})
	f("has not begun, or was ended", Rollout{State: Runs})
	f("has expired, was ended, or never began", Rollout{State: Abandoned})
}
