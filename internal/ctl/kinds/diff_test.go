package kinds

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

func documentOf(t *testing.T, text string) *RuleBook {
	t.Helper()
	d, err := fleet.ParseDocument(Rules, "rules.yaml", []byte(text))
	require.NoError(t, err)
	return RulesOf(d)
}

// ruleOf returns a document with one rule that adds these fields to the usual ones.
func ruleOf(fields string) string {
	if !strings.Contains(fields, "key:") {
		fields += ", key: [client_ip]"
	}
	if !strings.Contains(fields, "limit:") {
		fields += ", limit: 10"
	}
	if !strings.Contains(fields, "window:") {
		fields += ", window: 1m"
	}
	return "rules: [{id: a, " + strings.TrimPrefix(fields, ", ") + "}]"
}

func TestCompareByMeaning(t *testing.T) {
	same := func(old, now string) {
		t.Helper()
		d := compare(documentOf(t, ruleOf(old)), documentOf(t, ruleOf(now)))
		require.Empty(t, d.Changed)
		require.Equal(t, 1, d.Unchanged)
	}
	same("", "algorithm: rolling_window, mode: enforce, cost: 1, on_store_failure: local, count_denied: false, storage: ring")
	same("window: 60s", "window: 1m0s")
	same("match: {hosts: [A.example, b.example], methods: [GET, POST]}", "match: {hosts: [b.example, a.example], methods: [POST, GET]}")
	same("match: {clients: [10.1.2.3, 10.2.0.0/16]}", "match: {clients: [10.2.0.0/16, 10.1.2.3/32]}")
	same("match: {headers: {x-plan: free}}", "match: {headers: {X-Plan: free}}")
	same(`key: ["header:x-api-key"]`, `key: ["header:X-Api-Key"]`)
	same("algorithm: token_bucket", "algorithm: token_bucket, burst: 10")

	differs := func(old, now string, recount bool, want ...string) {
		t.Helper()
		d := compare(documentOf(t, ruleOf(old)), documentOf(t, ruleOf(now)))
		require.Len(t, d.Changed, 1)
		var got []string
		for _, f := range d.Changed[0].Fields {
			got = append(got, fmt.Sprintf("%s: %s → %s", f.Field, f.Old, f.New))
		}
		require.Equal(t, want, got)
		require.Equal(t, recount, d.Changed[0].Recount)
	}
	differs("limit: 10", "limit: 20", false, "limit: 10 → 20")
	differs("window: 1m", "window: 90s", false, "window: 1m → 1m30s")
	differs("", "description: slow down", false, "description: none → slow down")
	differs("match: {paths: [/a]}", "", false, "match.paths: [/a] → none")
	differs("", "match: {headers: {x-plan: free}}", false, `match.headers.X-Plan: none → "free"`)
	differs("", "match: {not: {clients: [10.0.0.0/8], headers: {x-a: b}}}", false, "match.not.clients: none → [10.0.0.0/8]", `match.not.headers.X-A: none → "b"`)
	differs("", "match: {clients: [10.0.0.0/8]}", false, "match.clients: none → [10.0.0.0/8]")
	differs("", "experiment: {share: 0.1, count_denied: true, mode: shadow}", false, "experiment: none → share 0.1, count_denied true, mode shadow")
	differs("experiment: {share: 0.1, name: n, tiers: {a: 3}}", "experiment: {share: 0.2}", false, "experiment: share 0.1, name n, tiers.a 3 → share 0.2")
	differs("", "tiers: {pro: 100, internal: unlimited}", false, "tiers.internal: none → unlimited", "tiers.pro: none → 100")
	differs("tiers: {pro: 100}", "tiers: {pro: 200}", false, "tiers.pro: 100 → 200")
	differs("", "mode: shadow, on_store_failure: closed, count_denied: true, min_interval: 50ms, cost: 2", false,
		"min_interval: none → 50ms", "cost: 1 → 2", "count_denied: false → true", "mode: enforce → shadow", "on_store_failure: local → closed")
	differs("", `cost: "header:x-cost"`, false, "cost: 1 → header:X-Cost")
	differs(`key: ["header:X-A"]`, `key: ["header:X-A"], missing: limit`, false, "missing: skip → limit")
	differs("", "key: [client_ip, path]", true, "key: [client_ip] → [client_ip, path]")
	differs("", "storage: sorted_set", true, "storage: ring → sorted_set")
	differs("", "algorithm: token_bucket", true, "algorithm: rolling_window → token_bucket", "burst: none → 10", "storage: ring → none")
	differs("algorithm: token_bucket", "algorithm: token_bucket, limit: 20", false, "limit: 10 → 20", "burst: 10 → 20")
}

func TestCompareDocuments(t *testing.T) {
	old := documentOf(t, `rules:
  - {id: a, key: [client_ip], limit: 1, window: 1m}
  - {id: b, key: [client_ip], limit: 1, window: 1m}
  - {id: gone, match: {paths: [/1, /2, /3, /4], methods: [POST]}, key: [], algorithm: concurrency, limit: 7, window: 1h, mode: shadow}
`)
	now := documentOf(t, `rules:
  - {id: b, key: [client_ip], limit: 1, window: 1m}
  - {id: fresh, key: [host, path], limit: 5, window: 1h, match: {headers: {X-Plan: free}, not: {methods: [GET]}}}
  - {id: a, key: [client_ip, path], limit: 2, window: 1m}
`)
	d := compare(old, now)
	require.Equal(t, []ruleSummary{{"fresh", "5 in 1h by host, path on X-Plan: free but not on GET (rolling_window)"}}, d.Added)
	require.Equal(t, []ruleSummary{{"gone", "7 at once for all together on POST /1|/2|/3|… (concurrency) mode shadow"}}, d.Removed)
	require.True(t, d.Reordered)
	require.Equal(t, 1, d.Unchanged)
	var b bytes.Buffer
	d.Write(&b, term.Style{}, 0)
	require.Equal(t, `  - gone   7 at once for all together on POST /1|/2|/3|… (concurrency) mode shadow
  + fresh  5 in 1h by host, path on X-Plan: free but not on GET (rolling_window)
  ~ a      key: [client_ip] → [client_ip, path]
           limit: 1 → 2
           its counts start over
  the order of the rules differs, which changes no decision
  1 added, 1 removed, 1 changed, 1 unchanged
`, b.String())
	b.Reset()
	d.Write(&b, term.Style{}, 1)
	require.Contains(t, b.String(), "  … and 2 more rules; regionctl rules diff shows all\n")
	b.Reset()
	d.Write(&b, term.Style{On: true}, 0)
	require.Contains(t, b.String(), "\x1b[31m- gone\x1b[0m   \x1b[31m7 at once")

	require.Equal(t, 3, len(compare(nil, now).Added))
	require.True(t, compare(now, now).empty())
}
