package envoy

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

var update = flag.Bool("update", false, "write testdata/*.rules.yaml")

func TestTranslate(t *testing.T) {
	text, err := os.ReadFile("testdata/messaging.yaml")
	require.NoError(t, err)
	doc, report, err := Translate([]File{{"messaging.yaml", text}})
	require.NoError(t, err)
	require.Equal(t, []string{
		"messaging.yaml: descriptors[1].detailed_metric: cannot be kept: metrics name rules (weir_decisions_total), never values",
		"messaging.yaml: descriptors[2].rate_limit.replaces: cannot be kept: a request that matches this limit and promo must pass both",
		"messaging.yaml: descriptors[6].rate_limit.unit: 1 year is longer than a window may be, 744h; the limit is left out",
		"messaging.yaml: descriptors[7].rate_limit.requests_per_unit: 0 cannot be kept: a limit is at least 1; the limit is left out, refuse such requests in Envoy's routes",
	}, report)
	got, err := yaml.Marshal(doc)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("testdata/messaging.rules.yaml", got, 0o600))
	}
	want, err := os.ReadFile("testdata/messaging.rules.yaml")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	set, err := rules.Load(got)
	require.NoError(t, err)
	require.Len(t, set.Rules(), 5)
}

func TestRefused(t *testing.T) {
	f := func(want string, texts ...string) {
		t.Helper()
		var files []File
		for i, text := range texts {
			files = append(files, File{fmt.Sprintf("%c.yaml", 'a'+i), []byte(text)})
		}
		_, _, err := Translate(files)
		require.EqualError(t, err, want)
	}
	f("a.yaml: is empty", "")
	f("a.yaml: domain: is empty", "descriptors: []")
	f("a.yaml: yaml: unmarshal errors: line 2: field limits not found in type envoy.config", "domain: a\nlimits: 5\n")
	f("a.yaml: holds more than one document; import one file for each domain", "domain: a\n---\ndomain: b\n")
	f("b.yaml: the domain a is in a.yaml, too; import one of them, or join them", "domain: a", "domain: a")
	f("a.yaml: descriptors[0].key: is empty", "{domain: a, descriptors: [{value: b}]}")
	f(`a.yaml: descriptors[1]: repeats key "b" and value ""`, "{domain: a, descriptors: [{key: b}, {key: b}]}")
	f(`a.yaml: descriptors[0].rate_limit.unit: must be second, minute, hour, day, week, month or year (got "fortnight")`, "{domain: a, descriptors: [{key: b, rate_limit: {unit: fortnight, requests_per_unit: 1}}]}")
	f("a.yaml: descriptors[0].rate_limit.unit: must not be given with unlimited", "{domain: a, descriptors: [{key: b, rate_limit: {unit: day, unlimited: true}}]}")
	f("a.yaml: descriptors[0].rate_limit: requests_per_unit must be 0 to 4294967295 and unit_multiplier at least 1 (got -1 and 1)", "{domain: a, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: -1}}]}")
}

// follow finds a descriptor's limit as the reference service documents: at each level the exact
// entry, else the first with a matching prefix, else the entry for any value.
func follow(list []entry, pairs []rules.Pair) *entry {
	var found *entry
	for i := range list {
		if e := &list[i]; e.Key == pairs[0].Key && e.Value == pairs[0].Value && e.Value != "" {
			found = e
		}
	}
	for i := range list {
		if start, open := strings.CutSuffix(list[i].Value, "*"); found == nil && open && list[i].Key == pairs[0].Key && strings.HasPrefix(pairs[0].Value, start) {
			found = &list[i]
		}
	}
	for i := range list {
		if found == nil && list[i].Key == pairs[0].Key && list[i].Value == "" {
			found = &list[i]
		}
	}
	if found == nil || len(pairs) == 1 {
		return found
	}
	return follow(found.Descriptors, pairs[1:])
}

// For random configurations and descriptors, the service's entry and the imported rule are the
// same.
func TestRulesFollowTheSameEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	values := []string{"", "", "x", "xy", "xyz", "a", "x*", "xy*", "*", "a*"}
	number := int64(0)
	var level func(depth int) []entry
	level = func(depth int) (list []entry) {
		seen := map[string]bool{}
		for range 1 + r.IntN(6) {
			e := entry{Key: string(rune('k' + r.IntN(2))), Value: values[r.IntN(len(values))]}
			if seen[e.Key+e.Value] {
				continue
			}
			seen[e.Key+e.Value] = true
			switch r.IntN(4) {
			case 0: // an exception
			case 1:
				e.RateLimit = &limit{Unlimited: true}
			default:
				number++
				e.RateLimit = &limit{Unit: "day", RequestsPerUnit: number}
			}
			if depth < 3 && r.IntN(2) == 0 {
				e.Descriptors = level(depth + 1)
			}
			list = append(list, e)
		}
		return list
	}
	matched := 0
	for range 300 {
		c := config{Domain: "d", Descriptors: level(1)}
		text, err := yaml.Marshal(c)
		require.NoError(t, err)
		doc, _, err := Translate([]File{{"d.yaml", text}})
		require.NoError(t, err, "%s", text)
		set, err := rules.Compile(doc)
		require.NoError(t, err)
		var m rules.Match
		for range 100 {
			d := rules.Descriptor{Hits: 1}
			for range 1 + r.IntN(3) {
				d.Pairs = append(d.Pairs, rules.Pair{Key: string(rune('k' + r.IntN(2))), Value: []string{"", "x", "xy", "xyz", "xyzz", "a", "ab", "q"}[r.IntN(8)]})
			}
			require.NoError(t, set.MatchCall("d", []rules.Descriptor{d}, 1, &m))
			var want []int64
			if e := follow(c.Descriptors, d.Pairs); e != nil && e.RateLimit != nil && !e.RateLimit.Unlimited {
				want = append(want, e.RateLimit.RequestsPerUnit)
				matched++
			}
			var got []int64
			for _, check := range m.Checks {
				got = append(got, check.Limit.Limit)
			}
			require.Equal(t, want, got, "%v in\n%s", d.Pairs, text)
		}
	}
	require.Greater(t, matched, 3000)
}
