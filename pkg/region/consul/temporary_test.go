package consul

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestTemporaryDocuments(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c, ctx := open(t, Config{Addr: server.Addr()}), t.Context()
	d := c.Documents("shedder").Temporary()
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	expires := at.Add(time.Hour)
	after := []byte("enabled: true\n")
	lasting := NewPointer(after, "ana", at)
	p := NewPointer([]byte("enabled: false\n"), "ana", at)
	p.ExpiresAt, p.Successor = &expires, &Named{lasting.Version, lasting.SHA256}

	_, err := d.LoadNamed(ctx, *p.Successor)
	require.ErrorIs(t, err, ErrMissing)
	_, err = d.Put(ctx, after)
	require.NoError(t, err)
	got, err := d.LoadNamed(ctx, *p.Successor)
	require.NoError(t, err)
	require.Equal(t, after, got)
	_, err = d.LoadNamed(ctx, Named{Version: "../../other1", SHA256: lasting.SHA256})
	require.EqualError(t, err, `version: must be 12 hex digits in lower case (got "../../other1")`)

	change := Change{Pointer: p, Message: "kill switch"}
	done, err := d.Activate(ctx, change, 0)
	require.NoError(t, err)
	require.True(t, done)
	now, index, err := d.Current(ctx)
	require.NoError(t, err)
	require.Equal(t, p, *now)
	changes, wrong, err := d.History(ctx, 0)
	require.NoError(t, err)
	require.Empty(t, wrong)
	require.Equal(t, []Change{change}, changes)

	p.Successor, p.AppliedAt = nil, p.AppliedAt.Add(time.Second)
	done, err = d.Activate(ctx, Change{Pointer: p}, index)
	require.NoError(t, err)
	require.True(t, done, "afterward, the configuration decides")

	p.Successor = &Named{Version: "0"}
	_, err = d.Activate(ctx, Change{Pointer: p}, 0)
	require.ErrorContains(t, err, "then.sha256: must be 64 hex digits")
	p.ExpiresAt, p.Successor = nil, &Named{lasting.Version, lasting.SHA256}
	_, err = d.Activate(ctx, Change{Pointer: p}, 0)
	require.EqualError(t, err, "then: requires expires_at, which is missing")

	p.ExpiresAt = &expires
	_, err = c.Documents("rules").Activate(ctx, Change{Pointer: p}, 0)
	require.EqualError(t, err, "expires_at: is for canaries; leave it out")
	_, err = c.Documents("rules").SetCanary(ctx, "ams1", p, 0)
	require.ErrorContains(t, err, "then: is not for canaries")
}
