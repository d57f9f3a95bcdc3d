package ctl

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	commands "github.com/weir-edge/weir/internal/ctl/rules"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

func TestPromoted(t *testing.T) {
	t.Parallel()
	const document = `# The site's limits.
rules:
  # Everyone.
  - id: a
    key: [client_ip] # by address
    algorithm: token_bucket
    limit: 100
    burst: 20 # at once
    window: 1m
    experiment:
      share: 0.1
      name: half
      limit: 50 # half as much
      burst: 10
      tiers: {pro: 300}
  - {id: b, key: [path], limit: 5, window: 1s, storage: sorted_set, experiment: {share: 0.5, algorithm: fixed_window, limit: 4}}
`
	f := func(id string, tried bool, want string) {
		t.Helper()
		got, err := commands.Promoted([]byte(document), id, tried)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	begin, end := strings.Index(document, "    experiment:"), strings.Index(document, "  - {id: b")
	f("a", false, document[:begin]+document[end:])
	f("a", true, strings.NewReplacer("limit: 100", "limit: 50 # half as much", "burst: 20", "burst: 10").Replace(document[:begin])+"    tiers: {pro: 300}\n"+document[end:])
	f("b", false, document[:end]+"  - {id: b, key: [path], limit: 5, window: 1s, storage: sorted_set}\n")
	f("b", true, document[:end]+"  - {id: b, key: [path], limit: 4, window: 1s, algorithm: fixed_window}\n")

	json := `{"rules": [{"id": "a", "key": ["client_ip"], "limit": 9, "window": "1m", "experiment": {"share": 0.1, "limit": 7, "mode": "shadow"}}]}`
	got, err := commands.Promoted([]byte(json), "a", true)
	require.NoError(t, err)
	_, d, err := rules.LoadDocument(got)
	require.NoError(t, err)
	require.Equal(t, rules.Rule{ID: "a", Key: []string{"client_ip"}, Limit: 7, Window: "1m", Mode: "shadow"}, d.Rules[0])
}

const comparedRules = `rules:
  - {id: tried, key: [client_ip], limit: 10, window: 1m, experiment: {share: 0.1, limit: 5}} # why
  - {id: other, key: [client_ip], limit: 3, window: 1m}
`

// countsOf returns the counts of a node whose experiment refuses more.
func countsOf(t testing.TB, document string) adminapi.Experiment {
	set, err := rules.Load([]byte(document))
	require.NoError(t, err)
	e := adminapi.Experiment{
		Rule: "tried", Version: set.Rules()[0].Experiment.Version, Cut: 20, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Slices: make([]experiment.Counts, rules.Slices),
	}
	for i := range e.Slices {
		c := &e.Slices[i]
		*c = experiment.Counts{Checks: 100, Refused: 10 + int64(i%7), WaitMicros: 5_000_000, Asked: 90, TookMicros: 90_000, Answers: 80, Errors: int64(i % 3), Worst: 10}
		if i < e.Cut {
			c.Refused += 40
			c.Worst = 5
		}
	}
	return e
}

func tries(e adminapi.Experiment) func(*stub) {
	return func(s *stub) { s.experiment = e }
}

func (s *stub) tried(w http.ResponseWriter, _ *http.Request) {
	if s.experiment.Rule == "" {
		w.WriteHeader(http.StatusNotFound)
		reply(w, adminapi.Problem{Detail: "no experiment"})
		return
	}
	reply(w, s.experiment)
}

// The output has both variants side by side, from all edges of all regions. In the document,
// one variant replaces both.
func TestCompareAndPromote(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.publish(t, comparedRules, "ana", f.names...)
	counts := countsOf(t, comparedRules)
	unweighed := counts
	unweighed.MemoryError = "NOPERM MEMORY"
	f.edge(t, "eu-west", "ams1", "ams1-1", tries(unweighed))
	second := f.edge(t, "us-east", "iad1", "iad1-1", tries(counts))

	r := f.good(t, "rules", "compare", "tried")
	require.Contains(t, r.out, "rule tried, version "+counts.Version+": the experiment has 10.00% of the keys; all edges count since 2026-01-02 03:04:05\n")
	require.Regexp(t, `\n +BASE +EXPERIMENT +DIFFERENCE\nchecks +36000 +4000\nrefused +12\.\d+% +52\.\d+% +\+\d+\.\d+% +\(\+\d+\.\d+% to \+\d+\.\d+%\) +differs, p 0\.00\d\n`, r.out)
	require.Regexp(t, `\nworst window +10 +5 +-5 .*differs`, r.out)
	require.Regexp(t, `\nmemory +- +- +unknown\n`, r.out)
	require.Contains(t, r.out, "\neu-west: 1 edge: memory unknown: NOPERM MEMORY\n")
	require.Regexp(t, `\nwait +50 ms +50 ms +0 ms .*no difference found, p 1\.000\n`, r.out)
	c := parse[commands.Comparison](t, f.good(t, "rules", "compare", "tried", "-o", "json").out)
	require.Equal(t, commands.ComparedVariant{Checks: 36000, Slices: 180, Worst: 10}, c.Base)
	require.True(t, c.Enough && c.Measures[0].Differs)

	second.mu.Lock()
	second.experiment.Since = time.Date(2126, 1, 2, 3, 4, 5, 0, time.UTC)
	second.mu.Unlock()
	require.Contains(t, f.good(t, "rules", "compare", "tried").out, "; edges count from 2126-01-02 03:04:05 on, when no counter holds requests from before the experiment\n")

	second.mu.Lock()
	second.experiment.Version = "another"
	second.mu.Unlock()
	r = f.run(t, "rules", "compare", "tried")
	require.Equal(t, term.StatusPartial, r.status)
	require.Contains(t, r.out, "us-east: missing: node iad1-1 runs another version of the rule\n")
	require.Contains(t, r.errOut, "1 edge did not report")

	fails := func(saying string, args ...string) {
		t.Helper()
		r := f.run(t, append([]string{"rules", "compare"}, args...)...)
		require.Equal(t, term.StatusUsage, r.status, r.errOut)
		require.Contains(t, r.errOut, saying)
	}
	fails(`no rule "absent"`, "absent")
	fails("rule other has no experiment", "other")
	fails("--yes needs --promote VARIANT", "tried", "--yes")
	fails(`--promote "both": must be base or experiment`, "tried", "--promote", "both")

	r = f.runContext(t, t.Context(), "no\n", "rules", "compare", "tried", "--promote", "experiment")
	require.NotZero(t, r.status)
	require.Equal(t, versionOf(comparedRules), f.current(t, "eu-west"), "nothing without an answer")

	r = f.good(t, "rules", "compare", "tried", "--promote", "experiment", "--yes")
	require.Contains(t, r.errOut+r.out, "limit: 10 → 5")
	want := "rules:\n  - {id: tried, key: [client_ip], limit: 5, window: 1m} # why\n  - {id: other, key: [client_ip], limit: 3, window: 1m}\n"
	for _, region := range f.names {
		require.Equal(t, versionOf(want), f.current(t, region))
	}
	require.Contains(t, f.good(t, "rules", "history").out, "promote the experiment of tried")
	fails("rule tried has no experiment", "tried", "--promote", "base")

	f.publish(t, comparedRules, "ana", "us-east")
	f.good(t, "rules", "compare", "tried", "--promote", "base", "--yes", "--region", "us-east")
	require.Equal(t, versionOf(strings.Replace(want, "limit: 5", "limit: 10", 1)), f.current(t, "us-east"))
}
