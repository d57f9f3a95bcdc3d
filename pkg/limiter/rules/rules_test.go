package rules

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter"
)

// documents returns a folder's files by name.
func documents(t testing.TB, pattern string) map[string][]byte {
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files)
	out := make(map[string][]byte)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		out[filepath.Base(file)] = data
	}
	return out
}

func TestBadDocuments(t *testing.T) {
	docs := documents(t, "testdata/bad/*.yaml")
	require.GreaterOrEqual(t, len(docs), 60)
	told := make(map[string]string)
	for name, data := range docs {
		var want []string
		for line := range strings.Lines(string(data)) {
			if text, ok := strings.CutPrefix(line, "# error: "); ok {
				want = append(want, strings.TrimSuffix(text, "\n"))
			}
		}
		t.Run(name, func(t *testing.T) {
			set, err := Load(data)
			require.Nil(t, set)
			var errs field.Errors
			require.ErrorAs(t, err, &errs)
			require.Equal(t, strings.Join(want, "\n"), err.Error())
			require.Empty(t, told[err.Error()], "has the same message as another document")
			told[err.Error()] = name
			var one *field.Error
			require.ErrorAs(t, err, &one)
		})
	}
}

// parsed returns a document as written.
func parsed(t testing.TB, data []byte) *Document {
	doc := &Document{}
	_, errs := field.Load(data, doc, &field.Form{})
	require.NoError(t, errs.Err())
	return doc
}

func TestGoodDocuments(t *testing.T) {
	for name, data := range documents(t, "testdata/good/*.yaml") {
		t.Run(name, func(t *testing.T) {
			doc := parsed(t, data)
			set, err := Load(data)
			require.NoError(t, err)
			require.Len(t, set.Rules(), len(doc.Rules))
			require.Len(t, set.Version(), 12)

			// What was read can be written as JSON with the same meaning.
			written, err := json.MarshalIndent(doc, "", "\t")
			require.NoError(t, err)
			require.Equal(t, doc, parsed(t, written))
		})
	}
}

func TestRefusedBeforeReading(t *testing.T) {
	f := func(data, want string) {
		t.Helper()
		_, err := Load([]byte(data))
		require.EqualError(t, err, want)
	}
	f("", "document: is empty; write rules: [] for no rules")
	f("null", "document: is empty; write rules: [] for no rules")
	f("rules: [\xff]", "document: is not valid UTF-8; save it as UTF-8")
	f("rules: []\n# \x1b[2J", "document: contains the control character U+001B in line 2; remove it")
	f("rules: []\n\n# \u009b2J", "document: contains the control character U+009B in line 3; remove it")
	f("rules: []"+strings.Repeat(" ", MaxBytes), "document: is larger than 2097152 bytes (got 2097161); split the rules or shorten them")
	f(`{"rules": `+strings.Repeat("[", 900)+strings.Repeat("]", 900)+"}", "document: is nested more than 16 deep")
	f("rules:\n  "+strings.Repeat("- ", 100_000), "document: is nested more than 16 deep")
	f("rules: ["+strings.Repeat("a,", 600_000)+"]", "document: contains more than 500000 names and values (got 600002); split the rules or shorten them")
	f("%YAML 1.2\n---\nrules: []", `document: uses "%" in line 1: tags and directives are not accepted; remove it`)
	f("# a\u2028rules: []", "document: contains the control character U+2028 in line 1; remove it")
	for _, odd := range []string{"[\n- a, b: c", "], a, b: c", "}}, {a, b}", ", a", ": a", "- ]\n- , b: c"} {
		_, err := Load([]byte(odd))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "runtime error")
	}
	f(`{"rules": [], "rules": []}`, "rules: is written twice; keep one")
}

func TestTooManyRules(t *testing.T) {
	_, err := Compile(&Document{Rules: make([]Rule, MaxRules+1)})
	require.EqualError(t, err, "rules: has more than 10000 rules (got 10001); join rules that differ only in what they match")
}

func TestNoRules(t *testing.T) {
	set, err := Load([]byte("rules: []"))
	require.NoError(t, err)
	require.Empty(t, set.Rules())
	var m Match
	require.NoError(t, set.Match(&fake{}, 1, &m))
	require.Empty(t, m.Checks)
}

func TestDefaults(t *testing.T) {
	set, err := Load([]byte(`rules:
  - {id: a, key: [], limit: 10, window: 1m}
  - {id: b, key: [client_ip], limit: 10, window: 1m, algorithm: token_bucket, tiers: {pro: 25, all: unlimited}, mode: off}
  - {id: c, key: [], limit: 10, window: 1m, algorithm: leaky_bucket, burst: 5, tiers: {pro: 25}, mode: shadow, on_store_failure: closed}
  - {id: d, key: [], limit: 10, window: 1m, algorithm: leaky_bucket}
`))
	require.NoError(t, err)
	a, ok := set.Rule("a")
	require.True(t, ok)
	require.Equal(t, limiter.RollingWindow, a.Algorithm)
	require.Equal(t, int64(1), a.Cost)
	require.Equal(t, Enforce, a.Mode)
	require.Equal(t, limiter.Local, a.Limit.OnFailure)
	require.Equal(t, limiter.Ring, a.Limit.Storage)

	b, _ := set.Rule("b")
	require.Equal(t, int64(10), b.Limit.Burst, "the limit")
	require.Equal(t, int64(25), b.LimitFor([]byte("pro"), MildestRisk).Burst)
	require.Nil(t, b.LimitFor([]byte("all"), MildestRisk))
	require.Same(t, b.Limit, b.LimitFor([]byte("other"), MildestRisk))
	require.Equal(t, Off, b.Mode)
	require.Equal(t, 1, b.Index)

	c, _ := set.Rule("c")
	require.Equal(t, int64(13), c.LimitFor([]byte("pro"), MildestRisk).Burst, "12.5, rounded up")
	require.True(t, c.LimitFor([]byte("pro"), MildestRisk).Shadow)
	require.Equal(t, limiter.Closed, c.LimitFor([]byte("pro"), MildestRisk).OnFailure)

	d, _ := set.Rule("d")
	require.Zero(t, d.Limit.Burst)

	_, ok = set.Rule("e")
	require.False(t, ok)
}

func TestNames(t *testing.T) {
	require.Equal(t, "enforce shadow off", fmt.Sprint(Enforce, " ", Shadow, " ", Off))
	set, err := Load([]byte("rules: [{id: a, key: [client_ip, 'header:x-api-key', 'cookie:Sid'], limit: 1, window: 1s}]"))
	require.NoError(t, err)
	require.Equal(t, "[client_ip header:X-Api-Key cookie:Sid]", fmt.Sprint(set.Rules()[0].Key))
}

func TestVersion(t *testing.T) {
	set, err := Load([]byte("rules: []"))
	require.NoError(t, err)
	require.Equal(t, "00eb8a0ecfec", set.Version(), "printf 'rules: []' | sha256sum | head -c 12")
	other, err := Load([]byte("rules: [] "))
	require.NoError(t, err)
	require.NotEqual(t, set.Version(), other.Version())
}

// TestExamplesInDocs loads every yaml block of RULES.
func TestExamplesInDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/RULES.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	examples := 0
	for ; found; _, rest, found = strings.Cut(rest, "```yaml\n") {
		block, _, closed := strings.Cut(rest, "```")
		require.True(t, closed)
		_, err := Load([]byte(block))
		require.NoError(t, err, block)
		examples++
	}
	require.GreaterOrEqual(t, examples, 10)
	for _, a := range limiter.Algorithms() {
		require.Contains(t, string(page), "### "+a.String())
	}
}

func TestProblemsAreBounded(t *testing.T) {
	_, err := Load([]byte("rules:\n" + strings.Repeat("- {id: x, limits: 1}\n", 1_500)))
	var all field.Errors
	require.ErrorAs(t, err, &all)
	require.Len(t, all, 1_000+1)
	require.ErrorContains(t, all[1_000], "document: has ")
	require.ErrorContains(t, all[1_000], " more problems; fix these first")
}

func FuzzLoad(f *testing.F) {
	for _, folder := range []string{"good", "bad"} {
		for _, data := range documents(f, "testdata/"+folder+"/*.yaml") {
			f.Add(data)
		}
	}
	r := &fake{
		client: netip.MustParseAddr("203.0.113.7"), host: "API.example.com:8080", path: "/api/v1/users", method: "GET",
		headers: map[string][]string{"X-Plan": {"free"}, "X-Cost": {"7"}}, tier: "pro", trusted: true,
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Load(data)
		if err != nil {
			require.NotEmpty(t, err.Error())
			require.Nil(t, set)
			return
		}
		var m Match
		if err := set.Match(r, 1, &m); err != nil {
			t.Fatal(err) // r repeats nothing
		}
		for i := range m.Checks {
			require.True(t, strings.HasPrefix(string(m.Checks[i].Key), "weir:{"), fmt.Sprintf("%q", m.Checks[i].Key))
			require.LessOrEqual(t, m.Checks[i].Cost, m.Checks[i].Limit.MaxCost())
		}
	})
}
