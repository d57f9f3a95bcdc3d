package tiers

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/behavior"
)

// failing is a policy by which wrong passwords count.
const failing = `
signals:
  failures: {weight: 30, at_least: 10, share: 0.5}
  presence: {weight: 0}
routes: {guessing: {weight: 0}}
`

// What somebody else wrote into Redis is left out.
func TestWordsThatAreNotRead(t *testing.T) {
	c := config.Dev("127.0.0.1:1")
	c.Policy.File = filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(c.Policy.File, []byte(failing), 0o600))
	k, err := Open(documents.Node{Log: slog.New(slog.DiscardHandler)}, c, metric.New(), t.Context().Done())
	require.NoError(t, err)
	s := &share{Evaluator: k, nodes: 2}
	require.False(t, s.use("short"))
	require.False(t, s.use(strings.Repeat("x", 64)))
	require.True(t, s.use(strings.Repeat("0a", 32)))
	s.divide(2)
	now := time.Now()
	for range 8 {
		k.Clients.Observe(7, now, &behavior.Event{Route: 1, Status: 401})
	}
	good := s.word(now)
	require.Greater(t, len(good), 7, "it is counted")
	f := func(word string, want bool) {
		t.Helper()
		var clients, routes behavior.Region
		s.read([]byte(word), &clients, &routes)
		require.Equal(t, want, clients.Len() > 0, "%q", word)
	}
	f(good, true)
	f("", false)
	f(good[:6], false)
	f("\x02"+good[1:], false)
	f(good[:1]+"ffff"+good[5:], false)
	f(good[:len(good)-1], false)
	f(good[:5]+"\xff\xff"+good[7:], false)
	f(good+strings.Repeat("x", 400<<10), false)
}
