package rules

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// keysOf returns the keys of the checks of a client's request, and whether it is in the
// experiment.
func keysOf(t testing.TB, set *Set, r *fake) (keys []string, placed []ExperimentCheck) {
	t.Helper()
	var m Match
	require.NoError(t, set.Match(r, 1, &m))
	for i := range m.Checks {
		keys = append(keys, string(m.Checks[i].Key))
	}
	return keys, m.InExperiments
}

func client(i int) *fake {
	return &fake{client: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), host: "a.example", path: "/p", method: "GET"}
}

const withExperiment = `
rules:
  - {id: plain, key: [path], limit: 9, window: 1s}
  - {id: a, key: [client_ip, path], limit: 100, window: 1m, tiers: {free: 10, staff: unlimited}, experiment: {share: %s, %s}}
`

func TestExperimentTakesItsShare(t *testing.T) {
	set := compiled(t, fmt.Sprintf(withExperiment, "0.1", "limit: 50, algorithm: token_bucket"))
	const clients = 20_000
	tried, seen := 0, map[int]int{}
	for i := range clients {
		keys, placed := keysOf(t, set, client(i))
		require.Len(t, placed, 1)
		require.Equal(t, 1, placed[0].Check)
		seen[placed[0].Slice]++
		ip := client(i).client
		if placed[0].Slice < 20 {
			tried++
			require.Equal(t, fmt.Sprintf("weir:{%s}:a:tb.x:/p", ip), keys[1])
			continue
		}
		require.Equal(t, fmt.Sprintf("weir:{%s}:a:rr:/p", ip), keys[1])
	}
	require.InDelta(t, clients/10, tried, 5*math.Sqrt(clients*0.1*0.9))
	require.Len(t, seen, Slices)
	for slice, n := range seen {
		require.InDelta(t, clients/Slices, n, 6*math.Sqrt(clients/Slices), "slice %d", slice)
	}
}

// A key's variant is a contract with other nodes and the next release.
func TestPlacesAreFixed(t *testing.T) {
	f := func(id, name string, clientNumber, want int) {
		t.Helper()
		set := compiled(t, fmt.Sprintf("rules: [{id: %s, key: [client_ip, path], limit: 5, window: 1s, experiment: {share: 0.1%s}}]", id, name))
		_, placed := keysOf(t, set, client(clientNumber))
		require.Equal(t, want, placed[0].Slice)
	}
	f("a", "", 1, 65)
	f("a", "", 2, 67)
	f("a", ", name: again", 1, 184)
	f("b", "", 1, 2)
}

// Neither a change of the rule's values nor a larger share moves a key out of the experiment.
// Other names and other rules draw independently.
func TestPlacesDependOnTheKeyAlone(t *testing.T) {
	load := func(id, rule string) *Set {
		return compiled(t, "rules: [{id: "+id+", key: [client_ip], window: 1m, "+rule+"}]")
	}
	one := load("a", "limit: 5, experiment: {share: 0.1, limit: 3}")
	same := []*Set{
		load("a", "limit: 7, algorithm: fixed_window, experiment: {share: 0.5}"),
		load("a", "limit: 7, match: {paths: ['/*']}, mode: shadow, experiment: {share: 0.1, mode: enforce, algorithm: leaky_bucket}"),
	}
	others := []*Set{load("b", "limit: 5, experiment: {share: 0.1, limit: 3}"), load("a", "limit: 5, experiment: {share: 0.1, name: n}")}
	both, tried := make([]int, len(others)), 0
	const clients = 20_000
	for i := range clients {
		_, placed := keysOf(t, one, client(i))
		for _, set := range same {
			_, again := keysOf(t, set, client(i))
			require.Equal(t, placed, again)
		}
		if placed[0].Slice >= 20 {
			continue
		}
		tried++
		for k, set := range others {
			if _, p := keysOf(t, set, client(i)); p[0].Slice < 20 {
				both[k]++
			}
		}
	}
	for k := range others {
		require.InDelta(t, float64(tried)/10, both[k], 5*math.Sqrt(float64(tried)*0.09), "independent of %d", k)
	}
}

// A variant in shadow mode decides alongside the rule, which stays enforced.
func TestShadowExperimentDecidesBeside(t *testing.T) {
	set := compiled(t, fmt.Sprintf(withExperiment, "0.5", "limit: 50, mode: shadow"))
	var m Match
	beside := 0
	for i := range 200 {
		require.NoError(t, set.Match(client(i), 1, &m))
		at := m.InExperiments[0]
		if at.Slice >= 100 {
			require.Len(t, m.Checks, 2)
			continue
		}
		beside++
		require.Len(t, m.Checks, 3)
		require.Equal(t, 2, at.Check)
		base, variant := m.Checks[1], m.Checks[2]
		require.Equal(t, []any{int64(100), false}, []any{base.Limit.Limit, base.Limit.Shadow})
		require.Equal(t, []any{int64(50), true}, []any{variant.Limit.Limit, variant.Limit.Shadow})
		ip := client(i).client
		require.Equal(t, fmt.Sprintf("weir:{%s}:a:rr:/p weir:{%s}:a:rr.x:/p", ip, ip), string(base.Key)+" "+string(variant.Key))
		require.True(t, m.Rules[2].IsVariant())
		require.Same(t, m.Rules[1], m.Rules[2].Base())

		m.Keep(func(i int) bool { return i != 1 })
		require.Equal(t, []ExperimentCheck{{1, at.Slice, at.Hash}}, m.InExperiments)
		require.Equal(t, variant, m.Checks[1])
	}
	require.Greater(t, beside, 50)
}

// Tiers of both variants apply; what only one variant exempts, the other still limits.
func TestExperimentWithTiers(t *testing.T) {
	set := compiled(t, fmt.Sprintf(withExperiment, "0.5", "mode: shadow, tiers: {free: 3, staff: 7}"))
	f := func(tier string, base, variant []int64) {
		t.Helper()
		for i := range 50 {
			r := client(i)
			r.tier = tier
			var m Match
			require.NoError(t, set.Match(r, 1, &m))
			var got []int64
			for k := 1; k < len(m.Checks); k++ {
				got = append(got, m.Checks[k].Limit.Limit)
			}
			if len(m.InExperiments) > 0 && m.InExperiments[0].Slice < 100 {
				require.Equal(t, variant, got)
				require.True(t, strings.HasSuffix(string(m.Checks[m.InExperiments[0].Check].Key), ":a:rr.x:/p"))
			} else {
				require.Equal(t, base, got)
			}
		}
	}
	f("free", []int64{10}, []int64{10, 3})
	f("", []int64{100}, []int64{100, 100})
	f("staff", nil, []int64{7})
	set = compiled(t, fmt.Sprintf(withExperiment, "0.5", "limit: 5"))
	f("staff", nil, nil)
}

// Whichever variant a key belongs to, a request that repeats what the rule reads is refused if
// one of them enforces.
func TestExperimentRefusesDuplicates(t *testing.T) {
	f := func(modes string, refused bool) {
		t.Helper()
		set := compiled(t, "rules: [{id: a, key: ['header:X-Key'], limit: 5, window: 1s, "+modes+"}]")
		var m Match
		err := set.Match(&fake{client: client(1).client, headers: map[string][]string{"X-Key": {"a", "b"}}}, 1, &m)
		require.Equal(t, refused, err != nil)
	}
	f("experiment: {share: 0.1, mode: shadow}", true)
	f("mode: shadow, experiment: {share: 0.1, mode: enforce}", true)
	f("mode: shadow, experiment: {share: 0.1}", false)
}

// A variant with another algorithm does not inherit the fields of the rule's.
func TestMerge(t *testing.T) {
	f := func(rule, want string) {
		t.Helper()
		var d *Document
		_, d, err := LoadDocument([]byte("rules: [" + rule + "]"))
		require.NoError(t, err)
		_, w, err := LoadDocument([]byte("rules: [" + want + "]"))
		require.NoError(t, err)
		require.Equal(t, &w.Rules[0], d.Rules[0].Experiment.Merge(&d.Rules[0]))
	}
	f("{id: a, key: [path], limit: 9, window: 1m, storage: sorted_set, min_interval: 1s, experiment: {share: 0.1, algorithm: sliding_window}}",
		"{id: a, key: [path], limit: 9, window: 1m, algorithm: sliding_window}")
	f("{id: a, key: [path], limit: 9, window: 1m, storage: sorted_set, min_interval: 1s, experiment: {share: 0.1, algorithm: rolling_window, min_interval: 2s}}",
		"{id: a, key: [path], limit: 9, window: 1m, storage: sorted_set, min_interval: 2s, algorithm: rolling_window}")
	f("{id: a, key: [path], limit: 9, window: 1m, algorithm: token_bucket, burst: 3, count_denied: true, experiment: {share: 0.1, name: n, limit: 4, window: 20s, cost: 2, count_denied: false, tiers: {a: 3}, mode: shadow, on_store_failure: open, consistency: leased, under_load: {from: 0.5, share: 0.5}}}",
		"{id: a, key: [path], limit: 4, window: 20s, algorithm: token_bucket, burst: 3, cost: 2, tiers: {a: 3}, mode: shadow, on_store_failure: open, consistency: leased, under_load: {from: 0.5, share: 0.5}}")
	f("{id: a, key: [path], limit: 9, window: 1m, algorithm: token_bucket, burst: 3, experiment: {share: 0.1, algorithm: leaky_bucket, burst: 2}}",
		"{id: a, key: [path], limit: 9, window: 1m, algorithm: leaky_bucket, burst: 2}")
}

func TestSetKnowsTheLimitsOfExperiments(t *testing.T) {
	set := compiled(t, "rules: [{id: a, key: [client_ip], limit: 5, window: 1s, experiment: {share: 0.1, limit: 3, tiers: {t: 2}, cost: 'header:X-Cost', under_load: {from: 0.5, share: 0.5}}}]")
	variant := set.Rules()[0].Experiment.Variant
	for _, l := range []*limiter.Limit{set.Rules()[0].Limit, variant.Limit, variant.Limit.Floor(), variant.Tiers["t"]} {
		require.True(t, set.Holds(l))
	}
	require.False(t, compiled(t, "rules: [{id: a, key: [client_ip], limit: 5, window: 1s}]").Holds(variant.Limit))
	require.True(t, set.FollowsLoad())
	require.Equal(t, []*Compiled{set.Rules()[0], variant}, slices.Collect(set.Variants()))
	require.True(t, set.ReadsHeader("x-cost"))
}

func TestVersionOfAnExperiment(t *testing.T) {
	version := func(rule string) string {
		return compiled(t, "rules: [{id: a, key: [client_ip], window: 1s, "+rule+"}]").Rules()[0].Experiment.Version
	}
	one := version("limit: 5, experiment: {share: 0.1, limit: 3}")
	require.Len(t, one, 12)
	require.Equal(t, one, version("experiment: {limit: 3, share: 0.10}, limit: 5"))
	require.NotEqual(t, one, version("limit: 6, experiment: {share: 0.1, limit: 3}"))
	require.NotEqual(t, one, version("limit: 5, experiment: {share: 0.2, limit: 3}"))
}

func TestExperimentsAreBounded(t *testing.T) {
	document := func(n int) []byte {
		var b strings.Builder
		b.WriteString("rules:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {id: r%d, key: [client_ip], limit: 5, window: 1s, experiment: {share: 0.1}}\n", i)
		}
		return []byte(b.String())
	}
	_, err := Load(document(maxExperiments))
	require.NoError(t, err)
	_, err = Load(document(maxExperiments + 1))
	require.EqualError(t, err, "rules: have more than 20 experiments; every node counts each one separately; end some (got 21)")
}

func TestMatchingAnExperimentAllocatesNothing(t *testing.T) {
	for _, mode := range []string{"enforce", "shadow"} {
		set := compiled(t, fmt.Sprintf(withExperiment, "0.98", "limit: 50, algorithm: token_bucket, mode: "+mode))
		var m Match
		r := client(1)
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			if err := set.Match(r, 1, &m); err != nil || len(m.InExperiments) != 1 {
				t.Fatal(err)
			}
		}))
	}
}

func BenchmarkMatchExperiment(b *testing.B) {
	for _, c := range []struct{ name, rule string }{
		{"none", ""}, {"base", ", experiment: {share: 0.02, limit: 5}"}, {"experiment", ", experiment: {share: 0.98, limit: 5}"},
	} {
		set := compiled(b, "rules: [{id: a, key: [client_ip], limit: 9, window: 1s"+c.rule+"}]")
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var m Match
			r := client(1)
			for b.Loop() {
				if err := set.Match(r, 1, &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
