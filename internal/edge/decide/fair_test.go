package decide

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// jain returns Jain's index of fairness (Jain, Chiu and Hawe, 1984): 1 if all clients get the same,
// 1/n if one gets everything.
func jain(clients []*client) float64 {
	var sum, squares float64
	for _, c := range clients {
		sum += c.good
		squares += c.good * c.good
	}
	return sum * sum / (float64(len(clients)) * squares)
}

// fairSettings are in proportion to those of the overload bench: the knee is at four times the
// origin's workers, and a cap bounds the queue.
const fairSettings = "signals: {inflight: {low: 0, high: 80}, cpu: off, sched_latency: off, upstream_wait: off}\n" +
	"classes: [{name: read, max_in_flight: 100}]\n"

// At twice what an origin can serve, by what full limits let pass, limits that follow load are
// compared with the shedder alone. If all limits at their floor still fill the origin, as much is
// served in time; otherwise a little less. Both ways more of it goes to clients that want little.
func TestLimitsUnderLoadAreFair(t *testing.T) {
	type result struct{ goodput, jain, light, heavy float64 }
	run := func(seed uint64, what, more string) (got result) {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, seed, "token_bucket", ", burst: 10"+more, fairSettings)
			light, heavy := s.add(80, 1), s.add(72, 14)
			require.InDelta(t, 2, (80*1+72*10)/s.capacity(), 0.01)
			for range 60 {
				s.second()
			}
			for _, c := range s.clients {
				c.good = 0
			}
			const measured = 120
			for range measured {
				s.second()
			}
			sum := func(list []*client) (sum float64) {
				for _, c := range list {
					sum += c.good / measured
				}
				return sum
			}
			got = result{(sum(light) + sum(heavy)) / s.capacity(), jain(s.clients), sum(light) / 80, sum(heavy) / 72}
			t.Logf("seed %d, %s: served in time %.3f of the capacity, Jain's index %.2f; a second, of a light client's 1: %.2f, of a heavy one's 14: %.2f", seed, what, got.goodput, got.jain, got.light, got.heavy)
		})
		return got
	}
	for seed := range uint64(3) {
		alone := run(seed, "the shedder alone", "")
		half := run(seed, "share 0.5", ", under_load: {from: 0.5, share: 0.5}")
		fifth := run(seed, "share 0.2", followsLoad)
		require.InDelta(t, alone.goodput, half.goodput, 0.005)
		require.InDelta(t, alone.goodput, fifth.goodput, 0.05)
		require.Greater(t, half.jain, 1.3*alone.jain)
		require.Greater(t, fifth.jain, half.jain)
		require.Greater(t, fifth.light, alone.light-0.01)
		require.Less(t, fifth.heavy, alone.heavy)
	}
}

// The origin and the clients of TestLimitsUnderLoadAreFair, with the default caps, which are ten
// times the knee, and with caps just above it. When a limit that follows load rises a step,
// clients bring as many requests at once as a second of the origin's work. Then they ask for about
// what is served, so patience lasts, and those that wait, wait on: only caps bound their number.
func TestCapsBoundWhatPatienceAllows(t *testing.T) {
	const knee = "signals: {inflight: {low: 0, high: 80}, cpu: off, sched_latency: off, upstream_wait: off}\n"
	const caps = "classes: [{name: critical, max_in_flight: 120}, {name: write, max_in_flight: 110}, {name: read, max_in_flight: 100}, {name: test, max_in_flight: 90}]\n"
	run := func(settings string) (goodput float64, most, busy int) {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, 0, "token_bucket", ", burst: 10, under_load: {from: 0.6, share: 0.2}", settings)
			s.add(80, 1)
			s.add(72, 14)
			const measured = 160
			for range measured {
				u := s.second()
				most = max(most, len(s.inFlight))
				if sh := s.Shedders[0].Status(); u >= sh.Settings.Start && sh.Level == 0 {
					busy++
				}
			}
			for _, c := range s.clients {
				goodput += c.good / measured / s.capacity()
			}
		})
		return goodput, most, busy
	}
	far, waiting, without := run(knee)
	near, fewer, none := run(knee + caps)
	t.Logf("default caps: served in time %.2f of the capacity, at most %d in flight, level 0 in %d busy seconds; caps near the knee: %.2f, %d and %d", far, waiting, without, near, fewer, none)
	require.Greater(t, near, far)
	require.Greater(t, near, 0.95)
	require.Greater(t, waiting, 200)
	require.LessOrEqual(t, fewer, 100)
	require.LessOrEqual(t, none, without)
}
