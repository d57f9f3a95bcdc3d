package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

const callRules = `
rules:
  - {id: path, domain: edge, descriptors: [{key: path, value: /login}], key: [descriptor], limit: 10, window: 1m, algorithm: fixed_window, max_override: 1000}
  - {id: api, domain: edge, descriptors: [{key: path, value: "/api/*", not: ["/api/open/*", /api/status]}], key: [], limit: 10, window: 1m}
  - {id: any, domain: edge, descriptors: [{key: path, not: [/free]}], key: ["descriptor:path"], limit: 10, window: 1m, cost: 2}
  - {id: user, domain: edge, descriptors: [{key: path, descriptors: [{key: user, not: [root]}, {key: user, value: "a*"}]}], key: ["descriptor:user"], limit: 10, window: 1m}
  - {id: twice, domain: edge, descriptors: [{key: header, value: a, descriptors: [{key: header, value: b}]}], key: [descriptor], limit: 10, window: 1m, mode: shadow}
  - {id: off, domain: edge, descriptors: [{key: path}], key: [], limit: 10, window: 1m, mode: off}
  - {id: other, domain: elsewhere, descriptors: [{key: path}], key: [], limit: 10, window: 1m}
  - {id: http, key: [], limit: 10, window: 1m}
`

// described reads descriptors written path=/a,user=b; with a number of hits before a colon.
func described(text ...string) []Descriptor {
	var list []Descriptor
	for _, t := range text {
		d := Descriptor{Hits: 1}
		if hits, rest, ok := strings.Cut(t, ":"); ok {
			_, _ = fmt.Sscan(hits, &d.Hits)
			t = rest
		}
		for pair := range strings.SplitSeq(t, ",") {
			key, value, _ := strings.Cut(pair, "=")
			d.Pairs = append(d.Pairs, Pair{key, value})
		}
		list = append(list, d)
	}
	return list
}

func TestMatchCall(t *testing.T) {
	set, err := Load([]byte(callRules))
	require.NoError(t, err)
	var m Match
	f := func(domain, want string, descriptors ...string) {
		t.Helper()
		require.NoError(t, set.MatchCall(domain, described(descriptors...), 7, &m))
		var got []string
		for _, u := range m.Uses {
			got = append(got, fmt.Sprintf("%d:%s", u.Descriptor, m.Rules[u.Check].ID))
		}
		require.Equal(t, want, strings.Join(got, " "))
		require.Len(t, m.Rules, len(m.Checks))
	}
	f("edge", "0:path 0:any", "path=/login")
	f("edge", "0:any", "path=/login/") // exact
	f("edge", "0:api 0:any", "path=/api/x")
	f("edge", "0:any", "path=/api/open/x")
	f("edge", "0:any", "path=/api/status")
	f("edge", "", "path=/free")
	f("edge", "0:any", "path=")
	f("edge", "0:user", "path=/free,user=b")
	f("edge", "0:user", "path=/login,user=abel") // both forms fit, one check
	f("edge", "", "path=/login,user=root")
	f("edge", "", "path=/login,user=b,more=c")
	f("edge", "", "user=b")
	f("edge", "0:twice", "header=a,header=b")
	f("edge", "", "header=b,header=a")
	f("edge", "0:any 2:user", "path=/x", "nothing=1", "path=/x,user=b")
	f("elsewhere", "0:other", "path=/x")
	f("unknown", "", "path=/x")

	require.NoError(t, set.Match(&fake{}, 1, &m))
	require.Len(t, m.Checks, 1, "rules for calls do not count requests")
	require.Equal(t, "http", m.Rules[0].ID)
	require.Empty(t, m.Uses)
}

func TestCallKeys(t *testing.T) {
	set, err := Load([]byte(callRules))
	require.NoError(t, err)
	var m Match
	keys := func(descriptors ...string) (list []string) {
		t.Helper()
		require.NoError(t, set.MatchCall("edge", described(descriptors...), 7, &m))
		for _, c := range m.Checks {
			list = append(list, fmt.Sprintf("%d %s", c.Cost, c.Key))
		}
		return list
	}
	// printf %s /api/x | sha256sum | head -c 32
	require.Equal(t, []string{"1 weir:{*}:api:rr", "2 weir:{~1981b78cef05113874d5dcc82903a83a}:any:rr"}, keys("path=/api/x"))
	require.Equal(t, []string{"11 weir:{*}:api:rr", "6 weir:{~1981b78cef05113874d5dcc82903a83a}:any:rr"}, keys("3:path=/api/x", "100000:path=/api/y")[:2],
		"hits of one key add up, to just more than ever passes")
	require.Equal(t, []Use{{0, 0}, {0, 1}, {1, 0}, {1, 2}}, m.Uses)
	require.Equal(t, "0", keys("0:path=/api/x")[0][:1], "only looks")
	require.NotEqual(t, keys("header=a,header=b"), keys("path=/login"))

	// Entries cannot be shifted into each other.
	set, err = Load([]byte("rules: [{id: a, domain: edge, descriptors: [{key: a, descriptors: [{key: b}]}], key: [descriptor], limit: 1, window: 1s}]"))
	require.NoError(t, err)
	require.Len(t, keys("a=xb,b=", "a=x,b=b", "a=x,b=b"), 2)
}

func TestOverrides(t *testing.T) {
	set, err := Load([]byte(callRules))
	require.NoError(t, err)
	var m Match
	f := func(path string, limit int64, window time.Duration) limiter.Check {
		t.Helper()
		d := described("path=" + path)
		d[0].Limit, d[0].Window = limit, window
		require.NoError(t, set.MatchCall("edge", d, 7, &m))
		require.True(t, set.Holds(m.Checks[0].Limit))
		return m.Checks[0]
	}
	plain := string(f("/login", 10, time.Minute).Key)
	same := f("/login", 10, time.Minute)
	rule, _ := set.Rule("path")
	require.Same(t, rule.Limit, same.Limit)
	more := f("/login", 500, time.Minute)
	require.Equal(t, int64(500), more.Limit.Limit)
	require.Equal(t, plain, string(more.Key), "a client whose limit rises keeps its count")
	require.Same(t, more.Limit, f("/login", 500, time.Minute).Limit)
	require.Equal(t, int64(1000), f("/login", 1<<32-1, time.Minute).Limit.Limit, "the bound")
	hour := f("/login", 10, time.Hour)
	require.Equal(t, time.Hour, hour.Limit.Window)
	require.Equal(t, plain+":w3600000", string(hour.Key), "another window counts apart")
	none := f("/login", 0, time.Minute)
	require.Greater(t, none.Cost, none.Limit.MaxCost(), "0 passes nothing")
	require.Equal(t, int64(10), f("/x", 500, time.Minute).Limit.Limit, "the rule allows no other")
	require.False(t, set.Holds(rule.overridden(1001, time.Minute)))

	d := described("path=/login", "path=/login")
	d[0].Limit, d[0].Window = 20, time.Minute
	require.EqualError(t, set.MatchCall("edge", d, 7, &m), "descriptors[1].limit: differs from that of another descriptor that counts by the same key; send only one of them")
	require.Empty(t, m.Checks)
	d = described("path=/login")
	d[0].Limit, d[0].Window = 20, 900*time.Hour
	require.EqualError(t, set.MatchCall("edge", d, 7, &m), "descriptors[0].limit: window: must be at most 744h0m0s (got 900h0m0s)")

	for i := range int64(2 * maxStated) {
		f("/login", 1+i%1000, time.Duration(1+i)*time.Second)
	}
	require.LessOrEqual(t, len(rule.overrides.made), maxStated)
}

func TestTooManyDescriptors(t *testing.T) {
	f := func(want string, list ...Entry) {
		t.Helper()
		_, err := Compile(&Document{Rules: []Rule{{ID: "a", Domain: "edge", Descriptors: list, Key: []string{}, Limit: 1, Window: "1s"}}})
		require.EqualError(t, err, want)
	}
	deep := Entry{Key: "a"}
	for range maxEntries {
		deep = Entry{Key: "a", Descriptors: []Entry{deep}}
	}
	f("rules[0].descriptors[0].descriptors[0].descriptors[0].descriptors[0].descriptors[0].descriptors[0].descriptors: is nested more than 6 deep", deep)
	f("rules[0].descriptors[128]: expands to more than 128 forms of descriptors; split the rule", slices.Repeat([]Entry{{Key: "a"}}, 200)...)
}

func TestMatchCallAllocatesNothing(t *testing.T) {
	set, err := Load([]byte(callRules))
	require.NoError(t, err)
	var m Match
	d := described("path=/api/x", "path=/login,user=abel", "header=a,header=b", "path=/login")
	d[3].Limit, d[3].Window = 77, time.Hour
	allocs := testing.AllocsPerRun(100, func() {
		if set.MatchCall("edge", d, 7, &m) != nil || len(m.Checks) != 6 {
			panic(len(m.Checks))
		}
	})
	require.LessOrEqual(t, allocs, dropped)
}

// manyChecks are rules that all match each descriptor of a call, by different keys.
func manyChecks(t testing.TB, n int) *Set {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {id: r%d, domain: edge, descriptors: [{key: user}], key: [descriptor], limit: 100, window: 1m}\n", i)
	}
	set, err := Load([]byte(b.String()))
	require.NoError(t, err)
	return set
}

func manyUsers(different int) []Descriptor {
	d := make([]Descriptor, 64)
	for i := range d {
		d[i] = Descriptor{Pairs: []Pair{{"user", fmt.Sprint("u", i%different)}}, Hits: 1}
	}
	return d
}

// However many checks a call has, those with equal keys become one.
func TestMatchCallMergesManyChecks(t *testing.T) {
	set := manyChecks(t, 20)
	var m Match
	for _, different := range []int{64, 1, 7, 33} {
		require.NoError(t, set.MatchCall("edge", manyUsers(different), 7, &m))
		require.Len(t, m.Checks, 20*different)
		require.Len(t, m.Uses, 20*64)
		costs := map[string]int64{}
		for i := range m.Checks {
			costs[string(m.Checks[i].Key)] += m.Checks[i].Cost
		}
		require.Len(t, costs, 20*different, "keys differ")
		var total int64
		for _, c := range costs {
			total += c
		}
		require.EqualValues(t, 20*64, total)
		for _, u := range m.Uses {
			require.Equal(t, m.Checks[u.Check].Limit.Rule, m.Rules[u.Check].ID)
		}
	}
	d := manyUsers(32)
	allocs := testing.AllocsPerRun(20, func() {
		if set.MatchCall("edge", d, 7, &m) != nil {
			panic("match")
		}
	})
	require.LessOrEqual(t, allocs, 20*64*dropped)
}

// The time of a call grows with its checks, not with their square: compare the lines.
func BenchmarkMatchCall(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		set, d := manyChecks(b, n), manyUsers(64)
		b.Run(fmt.Sprint("checks=", 64*n), func(b *testing.B) {
			b.ReportAllocs()
			var m Match
			for b.Loop() {
				if err := set.MatchCall("edge", d, 7, &m); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(64*n), "ns/check")
		})
	}
}
