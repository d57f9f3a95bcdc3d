package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newPool(t *testing.T, n int) *Pool {
	t.Helper()
	cfg := Config{FailAfter: 3, FailFor: 10 * time.Second}
	for range n {
		cfg.Upstreams = append(cfg.Upstreams, "http://127.0.0.1:1")
	}
	p, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestPickSpreads(t *testing.T) {
	p := newPool(t, 4)
	count := make([]int, 4)
	for range 400 {
		i, trial := p.pick(0, 0)
		require.False(t, trial)
		count[i]++
	}
	require.Equal(t, []int{100, 100, 100, 100}, count)

	p.ups[2].busy.Store(5)
	for range 400 {
		i, _ := p.pick(0, 0)
		require.NotEqual(t, 2, i, "its neighbor is less busy")
	}
	seen := uint64(0)
	for range 4 {
		i, _ := p.pick(seen, 0)
		require.Zero(t, seen&(1<<i))
		seen |= 1 << i
	}
	i, _ := p.pick(seen, 0)
	require.Equal(t, -1, i)
}

func TestHealthTimeline(t *testing.T) {
	const s = time.Second
	h := new(health)
	fail := func(now time.Duration, trial bool) { h.fail(now, trial, 3, 10*s) }
	fail(1*s, false)
	fail(2*s, false)
	require.False(t, h.resting(2*s), "two failures are not three")
	h.succeed()
	fail(3*s, false)
	fail(3*s, false)
	require.False(t, h.resting(3*s), "not consecutive")
	fail(4*s, false)
	require.True(t, h.resting(4*s))
	for range 50 {
		fail(5*s, false) // the other requests in flight
	}
	require.True(t, h.resting(14*s-1))
	require.False(t, h.resting(14*s), "they do not lengthen the rest")

	require.False(t, h.claim(14*s-1))
	require.True(t, h.claim(14*s))
	require.False(t, h.claim(14*s), "one trial only")
	require.True(t, h.resting(14*s))
	require.True(t, h.claim(15*s), "a trial that never reported is followed by another")
	now := 16 * s
	for _, want := range []time.Duration{20 * s, 40 * s, 80 * s, 160 * s, 160 * s, 160 * s} {
		fail(now, true)
		require.True(t, h.resting(now+want-1))
		require.False(t, h.resting(now+want))
		now += want
		require.True(t, h.claim(now))
	}
	h.succeed()
	require.False(t, h.resting(now))
	fail(now, false)
	fail(now, false)
	fail(now, false)
	require.False(t, h.resting(now+10*s), "the growth is forgotten")
}

func TestPickAvoidsTheResting(t *testing.T) {
	p := newPool(t, 3)
	rest := func(i int, until time.Duration) { p.ups[i].health.until.Store(int64(until)) }
	rest(1, 100)
	for range 30 {
		i, _ := p.pick(0, 50)
		require.NotEqual(t, 1, i)
	}
	rest(0, 90)
	rest(2, 110)
	for range 30 {
		i, trial := p.pick(0, 50)
		require.Equal(t, 0, i, "all rest: the one whose rest ends first")
		require.False(t, trial)
	}
	i, _ := p.pick(1<<0, 50)
	require.Equal(t, 1, i)

	i, trial := p.pick(0, 95)
	require.Equal(t, 0, i)
	require.True(t, trial)
	i, trial = p.pick(0, 95)
	require.False(t, trial, "one trial only")
	require.Equal(t, 1, i)

	one := newPool(t, 1)
	one.ups[0].health.until.Store(100)
	i, trial = one.pick(0, 50)
	require.Equal(t, 0, i, "the only one does not rest")
	require.False(t, trial)
}

func TestKindNames(t *testing.T) {
	require.Len(t, kindNames, int(KindUnsupported)+1)
	require.Equal(t, "unsupported", KindUnsupported.String())
	require.Equal(t, "unknown", Kind(99).String())
}
