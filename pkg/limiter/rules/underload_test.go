package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

func TestUnderLoad(t *testing.T) {
	set, err := Load([]byte(`
rules:
  - id: a
    key: [client_ip]
    limit: 100
    window: 1m
    tiers: {small: 3, big: 1000, all: unlimited}
    under_load: {from: 0.5, share: 0.2}
  - {id: b, key: [client_ip], algorithm: token_bucket, limit: 10, burst: 25, window: 1s, under_load: {from: 0, share: 0.5}}
`))
	require.NoError(t, err)
	a, b := set.Rules()[0], set.Rules()[1]
	f := func(l *limiter.Limit, utilization, want int64) {
		t.Helper()
		require.Equal(t, want, l.At(utilization).Limit)
	}
	for _, u := range []int64{-1, 0, 499, 515} {
		f(a.Limit, u, 100)
	}
	f(a.Limit, 516, 95)
	f(a.Limit, 750, 60)
	f(a.Limit, 984, 25)
	f(a.Limit, 985, 20)
	f(a.Limit, 1000, 20)
	f(a.Limit, 5000, 20)
	f(a.Tiers["small"], 1000, 1)
	f(a.Tiers["big"], 750, 600)
	require.Nil(t, a.LimitFor([]byte("all"), ""))

	require.Equal(t, int64(13), b.Limit.At(1000).Burst, "in proportion, rounded up")
	require.Equal(t, int64(5), b.Limit.Slowest, "a bucket drains at the lowest limit, too")

	seen := map[int64]bool{}
	for u := range int64(1001) {
		l := a.Limit.At(u)
		seen[l.Limit] = true
		require.Same(t, l, a.Limit.At(u), "a request makes no limit")
		require.Same(t, a.Limit, l.Full())
		require.GreaterOrEqual(t, l.Limit, int64(20))
		require.True(t, set.Holds(l))
		if gap := l.Gap(); l == a.Limit {
			require.Nil(t, gap)
		} else {
			require.Equal(t, 100-l.Limit, gap.Limit)
			require.Equal(t, time.Minute, gap.Window)
		}
	}
	require.Len(t, seen, limiter.LoadSteps+1)
}

// After a change of the document, refusals and leases survive only under unchanged limits.
func TestHoldsUnderLoad(t *testing.T) {
	load := func(share string) *Set {
		set, err := Load([]byte("rules: [{id: a, key: [client_ip], limit: 100, window: 1m, under_load: {from: 0.5, share: " + share + "}}]"))
		require.NoError(t, err)
		return set
	}
	before := load("0.2").Rules()[0].Limit
	same, other := load("0.2"), load("0.5")
	require.True(t, same.Holds(before.At(1000)))
	require.True(t, other.Holds(before))
	require.False(t, other.Holds(before.At(1000)))
}

func TestLimitsThatFollowLoadAreBounded(t *testing.T) {
	document := func(n int) []byte {
		var b strings.Builder
		b.WriteString("rules:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {id: r%d, key: [client_ip], limit: 100, window: 1m, tiers: {a: 5}, under_load: {from: 0.5, share: 0.2}}\n", i)
		}
		return []byte(b.String())
	}
	_, err := Load(document(1000))
	require.NoError(t, err)
	_, err = Load(document(1001))
	require.ErrorContains(t, err, "rules: have more than 2000 limits that follow load, including tiers; each is stored at every step; remove under_load where it matters least (got 2002)")
}
