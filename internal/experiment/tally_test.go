package experiment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// tallyOf returns a tally of a rule with an experiment.
func tallyOf(t testing.TB, rule string) (*rules.Set, *Tally) {
	set, err := rules.Load([]byte("rules: [" + rule + "]"))
	require.NoError(t, err)
	return set, NewTally(set.Rules()[0], time.Unix(0, 0))
}

const plain = "{id: a, key: [client_ip], limit: 5, window: 8s, experiment: {share: 0.1, limit: 3}}"

func TestTally(t *testing.T) {
	_, tally := tallyOf(t, plain)
	at := time.Unix(1_000_000, 0)
	tally.Decided(3, &Check{Hash: 1, Key: []byte("k"), Cost: 2, At: at, Passed: true, Took: time.Millisecond})
	tally.Decided(3, &Check{Hash: 1, Key: []byte("k"), Cost: 1, At: at, Wait: 3 * time.Second, Took: 2 * time.Millisecond})
	tally.Decided(3, &Check{Hash: 1, Key: []byte("k"), Cost: 1, At: at, Wait: time.Second, Took: -1})
	tally.Decided(3, &Check{Hash: 1, Key: []byte("k"), Cost: 1, At: at, Failed: true, Passed: true})
	tally.Decided(150, &Check{Hash: 2, Key: make([]byte, longest+1), Cost: 7, At: at, Passed: true})
	tally.Answered(3, at, false)
	tally.Answered(3, at, true)
	list := tally.Counts()
	require.Equal(t, Counts{Checks: 3, Refused: 2, Failed: 1, WaitMicros: 4_000_000, Asked: 2, TookMicros: 3000, Answers: 2, Errors: 1, Worst: 2}, list[3])
	require.Equal(t, Counts{Checks: 1, Asked: 1, Worst: 7}, list[150])
	require.Equal(t, list[3], Sum(list, 20, true))
	require.Equal(t, list[150], Sum(list, 20, false))
	keys := tally.Keys()
	require.Equal(t, "k", string(keys[3]))
	require.Nil(t, keys[150], "too long to be remembered")
	list[3].Add(&Counts{Checks: 1, Worst: 9, Bytes: 5, Keys: 1})
	require.Equal(t, []int64{4, 9, 5}, []int64{list[3].Checks, list[3].Worst, list[3].Bytes})
}

// Counting begins where neither variant's counters hold requests from before the experiment.
func TestCountingBeginsWithTheWindow(t *testing.T) {
	f := func(rule string, want float64) {
		t.Helper()
		set, err := rules.Load([]byte("rules: [{id: a, key: [client_ip], limit: 10, " + rule + "}]"))
		require.NoError(t, err)
		const published = 1_000_003
		tally := NewTally(set.Rules()[0], time.Unix(published, 0))
		require.InDelta(t, want, tally.Since.Sub(time.Unix(published, 0)).Seconds(), 1e-6)
		before, at := tally.Since.Add(-time.Microsecond), tally.Since
		for _, at := range []time.Time{before, at} {
			tally.Decided(3, &Check{Hash: 1, Cost: 1, At: at, Passed: true})
			tally.Answered(3, at, true)
		}
		require.Equal(t, Counts{Checks: 1, Asked: 1, Worst: 1, Answers: 1, Errors: 1}, tally.Counts()[3])
	}
	f("algorithm: fixed_window, window: 10s, experiment: {share: 0.1}", 7)
	f("algorithm: fixed_window, window: 10s, experiment: {share: 0.1, window: 40s}", 37)
	f("algorithm: sliding_window, window: 10s, experiment: {share: 0.1}", 17)
	f("algorithm: rolling_window, window: 10s, experiment: {share: 0.1}", 10)
	f("algorithm: token_bucket, burst: 30, window: 10s, experiment: {share: 0.1}", 30)
	f("algorithm: token_bucket, burst: 5, window: 10s, tiers: {slow: 1}, experiment: {share: 0.1}", 10)
	f("algorithm: fixed_window, window: 10s, experiment: {share: 0.1, algorithm: token_bucket, burst: 20}", 20)
}

// The worst window is that of any eight parts in a row, of one key.
func TestWorstWindow(t *testing.T) {
	_, tally := tallyOf(t, plain)
	pass := func(key uint64, second float64, cost int64) int64 {
		at := time.UnixMicro(int64((1_000_000 + second) * 1e6))
		tally.Decided(0, &Check{Hash: key, Cost: cost, At: at, Passed: true})
		return tally.Counts()[0].Worst
	}
	require.EqualValues(t, 5, pass(1, 0, 5))
	require.EqualValues(t, 6, pass(1, 7.9, 1), "within eight seconds")
	require.EqualValues(t, 6, pass(1, 8, 4), "the first five are a window ago")
	require.EqualValues(t, 6, pass(2, 8, 6), "of one key, not of two")
	require.EqualValues(t, 9, pass(1, 14, 4))
	require.EqualValues(t, 9, pass(1, 1000, 1))
	require.EqualValues(t, 9, pass(1, 999, 7), "a little late")
	require.EqualValues(t, 9, pass(1, 0, 100), "long past")
	require.EqualValues(t, 10, pass(1, 1006, 2))
	for key := range uint64(10) { // some are followed, and the others do no harm
		require.EqualValues(t, 10, pass(100+key, 1006, 1))
	}
	require.EqualValues(t, 20, pass(500, 2000, 20), "there is room again")
}

func TestTallyAllocatesNothing(t *testing.T) {
	_, tally := tallyOf(t, plain)
	key := []byte("weir:{203.0.113.7}:per-client:rr.x")
	at := time.Now()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		tally.Decided(7, &Check{Hash: 9, Key: key, Cost: 1, At: at, Passed: true, Took: time.Millisecond})
		tally.Answered(7, at, true)
	}))
}

func BenchmarkDecided(b *testing.B) {
	_, tally := tallyOf(b, plain)
	key := []byte("weir:{203.0.113.7}:per-client:rr.x")
	at := time.Now()
	for _, passed := range []bool{true, false} {
		b.Run(map[bool]string{true: "passed", false: "refused"}[passed], func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tally.Decided(7, &Check{Hash: 9, Key: key, Cost: 1, At: at, Passed: passed, Took: time.Millisecond})
			}
		})
	}
}
