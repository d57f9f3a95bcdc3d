package decide

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// lowering is a decider whose requests want something, with a count of those.
func lowering(t testing.TB, document string) (d *Decider, wanted *int) {
	t.Helper()
	d, _ = decider(t, document, calm)
	wanted = new(int)
	d.UnderLoad = NewUnderLoad(1, func() int { return 1 }, func(int) { *wanted++ })
	return d, wanted
}

func (d *Decider) verdict(t testing.TB, target string) Verdict {
	t.Helper()
	r := &Request{}
	d.ask(t, r, "192.0.2.1", []byte(target), nil)
	v := d.Decide(r)
	r.Permit.Done()
	return v
}

// A refusal under a lowered limit is remembered for a second at most, and what the full limit
// would refuse too is not wanted.
func TestWhatALoweredLimitRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, wanted := lowering(t, "rules: [{id: a, key: [client_ip], algorithm: fixed_window, limit: 100, window: 1h, under_load: {from: 0.5, share: 0.2}}, "+
			"{id: b, match: {paths: [/b]}, key: [], algorithm: fixed_window, limit: 1, window: 1h}]")
		d.UnderLoad.Set(0, limiter.FullLoad)
		for range 20 {
			require.Equal(t, Pass, d.verdict(t, "/"))
		}
		require.Equal(t, Limited, d.verdict(t, "/"))
		require.Equal(t, 1, *wanted)
		d.UnderLoad.Set(0, 0)
		require.Equal(t, Pass, d.verdict(t, "/b"), "the limit rose")
		require.Equal(t, Limited, d.verdict(t, "/b"))
		require.Equal(t, 1, *wanted, "a rule that is not lowered refused it")
		d.UnderLoad.Set(0, limiter.FullLoad)
		require.Equal(t, Limited, d.verdict(t, "/b"))
		require.Equal(t, 1, *wanted, "it would be refused anyway")

		// A flood: of 80 an hour beyond, a tenth at once and the rest evenly.
		for range 1000 {
			require.Equal(t, Limited, d.verdict(t, "/"))
		}
		require.Equal(t, 8, *wanted)
		for range 60 {
			time.Sleep(time.Minute / 2)
			require.Equal(t, Limited, d.verdict(t, "/"))
		}
		require.LessOrEqual(t, *wanted, 8+40)
		require.Greater(t, *wanted, 8+20)
	})
}

func TestMemoryHoldsATickUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := lowering(t, "rules: [{id: a, key: [client_ip], algorithm: token_bucket, limit: 3600, burst: 10, window: 1h, under_load: {from: 0.5, share: 0.1}}]")
		at := func(utilization int64) { d.UnderLoad.Set(0, utilization) }
		at(limiter.FullLoad)
		require.Equal(t, Pass, d.verdict(t, "/"))
		require.Equal(t, Limited, d.verdict(t, "/"), "one in ten seconds")
		at(0)
		for range 9 {
			require.Equal(t, Pass, d.verdict(t, "/"))
		}
		require.Equal(t, Limited, d.verdict(t, "/"), "one per second")
		time.Sleep(limiter.LoadTick)
		require.Equal(t, Pass, d.verdict(t, "/"))
	})
}

// Choosing a lower limit, and telling what is wanted, allocate nothing.
func TestLoweringAllocatesNothing(t *testing.T) {
	for name, limit := range map[string]string{"pass": "1000000", "refuse": "10"} {
		d, _ := lowering(t, "rules: [{id: all, key: [client_ip], limit: "+limit+", algorithm: fixed_window, window: 1h, under_load: {from: 0.5, share: 0.1}}]")
		d.UnderLoad.Set(0, limiter.FullLoad)
		r, target := &Request{}, []byte("/")
		var last Verdict
		decide := func() {
			d.ask(t, r, "192.0.2.1", target, nil)
			if last = d.Decide(r); last != Pass {
				d.Refuse(r, last)
			}
			r.Permit.Done()
			r.Reset()
		}
		for range 3 {
			decide()
		}
		require.Equal(t, name == "refuse", last == Limited)
		require.LessOrEqual(t, testing.AllocsPerRun(2000, decide), 0.0, name)
	}
}
