package consul

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// A rollout's record changes by compare-and-set. An unreadable one is replaced, and invalid
// fields are refused.
func TestRollout(t *testing.T) {
	t.Parallel()
	d := open(t, Config{Addr: testenv.StartConsul(t, testenv.ConsulOptions{}).Addr()}).Documents("rules")
	none, index, err := d.Rollout(t.Context())
	require.NoError(t, err)
	require.Nil(t, none)
	require.Zero(t, index)

	p := NewPointer([]byte("rules: []"), "ana", time.Now())
	at := time.Now().UTC().Round(0)
	r := Rollout{Named: Named{p.Version, p.SHA256}, By: "ana", Message: "why", BeganAt: at, SeenAt: at, Flags: []string{"--waves=1,rest"}, Waves: [][]string{{"eu-west"}, {"us-east"}}, Before: map[string]Named{"eu-west": {p.Version, p.SHA256}}}
	swapped := func(r Rollout, index uint64, want bool) {
		t.Helper()
		done, err := d.SetRollout(t.Context(), r, index)
		require.NoError(t, err)
		require.Equal(t, want, done)
	}
	swapped(r, 0, true)
	swapped(r, 0, false)
	got, index, err := d.Rollout(t.Context())
	require.NoError(t, err)
	require.Equal(t, &r, got)

	later := r
	later.SeenAt = at.Add(StaleAfter)
	require.True(t, later.SameRollout(got))
	swapped(later, index, true)
	done, err := d.EndRollout(t.Context(), index)
	require.NoError(t, err)
	require.False(t, done, "it has changed since")

	for path, spoil := range map[string]func(*Rollout){
		"version": func(r *Rollout) { r.Version = "" }, "began_at": func(r *Rollout) { r.BeganAt = time.Time{} },
		"waves": func(r *Rollout) { r.Waves = [][]string{{}} }, "before.eu-west.sha256": func(r *Rollout) { r.Before = map[string]Named{"eu-west": {}} },
		"waves[1]": func(r *Rollout) { r.Waves = [][]string{{"eu-west"}, {"\x1b[2J"}} }, "canary": func(r *Rollout) { r.Canary = "../current" },
	} {
		bad := r
		spoil(&bad)
		_, err := d.SetRollout(t.Context(), bad, 0)
		require.ErrorContains(t, err, path)
	}

	_, index, err = d.Rollout(t.Context())
	require.NoError(t, err)
	written, err := d.consul.CompareAndSwap(t.Context(), d.rolloutKey(), []byte("{"), index)
	require.NoError(t, err)
	require.True(t, written)
	_, index, err = d.Rollout(t.Context())
	require.ErrorContains(t, err, "delete the key")
	require.NotZero(t, index)
	swapped(r, index, true)
	_, index, err = d.Rollout(t.Context())
	require.NoError(t, err)
	done, err = d.EndRollout(t.Context(), index)
	require.NoError(t, err)
	require.True(t, done)
	_, index, err = d.Rollout(t.Context())
	require.NoError(t, err)
	require.Zero(t, index)
}
