package ctl

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// The history has a reset before an edge is asked, so a regionctl that dies cannot hide it. Where it
// cannot be written, nothing is reset.
func TestAResetIsRecordedFirst(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	recorded := make(chan string, 2)
	f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) {
		s.resetting = func() {
			changes, _, err := f.open["eu-west"].Documents(kinds.Acts.Name).History(t.Context(), 0)
			if err != nil || len(changes) == 0 {
				recorded <- "nothing"
				return
			}
			recorded <- changes[0].Message
		}
	})
	reset := []string{"limits", "reset", "--rule", "login", "--client", "203.0.113.7", "--yes", "--message", "INC-7"}
	f.good(t, reset...)
	require.Equal(t, "reset rule login for 203.0.113.7: INC-7", <-recorded)

	mute := f.faulty(t, "eu-west", func(w http.ResponseWriter, r *http.Request) bool {
		if !writes(r, "/acts/head") {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	require.Contains(t, mute.refused(t, term.StatusFailed, reset...), "nothing was reset")
	require.Empty(t, recorded, "no edge was asked")
	f.good(t, "audit", "verify")
}
