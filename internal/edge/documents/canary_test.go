package documents

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// A node's clock that is behind, or set back, does not prolong a canary.
func TestCanaryIsBoundByTheNodesOwnClock(t *testing.T) {
	f := newToyKeeper(t, Config[toy]{Kind: Kind[toy]{CanaryOf: "ams1"}})
	applied := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	pointer := func(document string, applied time.Time, lasts time.Duration) *consul.Pointer {
		p, expires := consul.NewPointer([]byte(document), "test", applied), applied.Add(lasts)
		p.ExpiresAt = &expires
		return &p
	}
	sees := func(p *consul.Pointer, now time.Time) {
		f.take(event[toy]{canary: true, resolution: &resolution[toy]{pointer: p}}, now)
	}
	behind := applied.Add(-time.Hour)
	require.False(t, f.canary.lives(behind))
	sees(pointer("a", applied, 5*time.Minute), behind)
	require.True(t, f.canary.lives(behind))
	require.Equal(t, time.Minute, f.nextLook(behind))
	require.True(t, f.canary.lives(behind.Add(5*time.Minute-1)))
	require.Equal(t, time.Second, f.nextLook(behind.Add(5*time.Minute-time.Second)))
	require.False(t, f.canary.lives(behind.Add(5*time.Minute)))

	// Seen again, even after it was gone, it is the same.
	sees(pointer("a", applied, 5*time.Minute), behind.Add(4*time.Minute))
	sees(nil, behind.Add(4*time.Minute))
	sees(pointer("a", applied, 5*time.Minute), behind.Add(4*time.Minute))
	require.False(t, f.canary.lives(behind.Add(5*time.Minute)))
	// Another one has its own expiry.
	sees(pointer("a", applied.Add(time.Second), 5*time.Minute), behind.Add(6*time.Minute))
	require.True(t, f.canary.lives(behind.Add(11*time.Minute-1)))
	require.False(t, f.canary.lives(behind.Add(11*time.Minute)))
	sees(pointer("a", applied, -time.Minute), behind)
	require.False(t, f.canary.lives(behind), "over before it began")

	// The wall clock counts too: a node that is ahead ends it early.
	ahead := applied.Add(4 * time.Minute)
	sees(pointer("b", applied, 5*time.Minute), ahead)
	require.True(t, f.canary.lives(ahead.Add(time.Minute-1)))
	require.False(t, f.canary.lives(ahead.Add(time.Minute)))
}
