package traefik

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/ctl/replay"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

var update = flag.Bool("update", false, "write testdata/shop.*")

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o600))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestTranslate(t *testing.T) {
	text, err := os.ReadFile("testdata/shop.yaml")
	require.NoError(t, err)
	got, err := Translate("shop.yaml", text)
	require.NoError(t, err)
	document, err := yaml.Marshal(got.Document)
	require.NoError(t, err)
	golden(t, "testdata/shop.rules.yaml", string(document))
	golden(t, "testdata/shop.report", strings.Join(got.Report, "\n")+"\n")
	_, err = rules.Load(document)
	require.NoError(t, err)

	// TOML says the same.
	var any map[string]any
	require.NoError(t, yaml.Unmarshal(text, &any))
	var b bytes.Buffer
	require.NoError(t, toml.NewEncoder(&b).Encode(any))
	again, err := Translate("shop.toml", b.Bytes())
	require.NoError(t, err)
	require.Equal(t, got.Document, again.Document)
}

func TestRefused(t *testing.T) {
	f := func(want, name, text string) {
		t.Helper()
		_, err := Translate(name, []byte(text))
		require.EqualError(t, err, want)
	}
	const routed = "http: {routers: {r: {rule: \"Host(`a`)\", middlewares: [m]}}, middlewares: {m: %s}}"
	f("a.yaml: is empty", "a.yaml", "")
	f("a.yaml: holds more than one document; import them one by one", "a.yaml", "{}\n---\n{}\n")
	f("a.yaml: http.middlewares.m.inFlightReq.amount: must be at least 1 (got 0)", "a.yaml", fmt.Sprintf(routed, "{inFlightReq: {}}"))
	f("a.yaml: http.middlewares.m.rateLimit.average: must be at least 0 (got -1)", "a.yaml", fmt.Sprintf(routed, "{rateLimit: {average: -1}}"))
	f(`a.yaml: http.middlewares.m.rateLimit.period: must be a duration such as 1m (got "1 fortnight")`, "a.yaml", fmt.Sprintf(routed, "{rateLimit: {average: 1, period: 1 fortnight}}"))
	f(`a.toml: toml: line 1: expected '.' or '=', but got '\n' instead`, "a.toml", "http\n")
}

// The rules decide as the model wherever the import says that they do: at times at which no
// request is early by less than Traefik lets it wait.
func TestRulesDecideAsTraefik(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 60 {
		var b bytes.Buffer
		b.WriteString("http:\n  middlewares:\n")
		for i := range 3 {
			source := []string{"", ", sourceCriterion: {requestHost: true}", ", sourceCriterion: {requestHeaderName: X-Api-Key}", ", sourceCriterion: {ipStrategy: {ipv6Subnet: 64}}"}[r.IntN(4)]
			fmt.Fprintf(&b, "    m%d: {rateLimit: {average: 1, burst: %d%s}}\n", i, 1+r.IntN(2), source)
		}
		b.WriteString("  routers:\n")
		for i := range 1 + r.IntN(3) {
			rule := []string{"Host(`a.example`)", "PathPrefix(`/api`)", "Host(`a.example`) && PathPrefix(`/api`)", "Method(`POST`)", "Host(`a.example`) || Host(`b.example`)", "ClientIP(`203.0.113.0/24`)"}[r.IntN(6)]
			fmt.Fprintf(&b, "    r%d: {rule: %q, middlewares: [m%d]}\n", i, rule, r.IntN(3))
		}
		got, err := Translate("t.yaml", b.Bytes())
		require.NoError(t, err, b.String())
		if strings.Contains(strings.Join(got.Report, "\n"), "also count here") || strings.Contains(strings.Join(got.Report, "\n"), "takes all") {
			continue
		}
		var log bytes.Buffer
		for i := range 300 { // each second is whole: nothing is early by half of one
			fmt.Fprintf(&log, `{"time":%d,"client":"%s","host":"%s","method":"%s","path":"%s","headers":{"X-Api-Key":"%s"}}`+"\n", 1_800_000_000_000+int64(i/4)*1000,
				[]string{"203.0.113.1", "198.51.100.2", "2001:db8::1", "2001:db8::2"}[r.IntN(4)], []string{"a.example", "b.example", "c.example"}[r.IntN(3)],
				[]string{"GET", "POST"}[r.IntN(2)], []string{"/", "/api", "/api/x"}[r.IntN(3)], []string{"", "k1", "k2"}[r.IntN(3)])
		}
		set, err := rules.Compile(got.Document)
		require.NoError(t, err)
		proof, err := replay.Prove(t.Context(), replay.Config{Candidate: set}, &log, func(q *replay.Request) bool {
			is := got.Model.Refuses(q)
			if is {
				refused++
			}
			return is
		})
		require.NoError(t, err)
		document, err := yaml.Marshal(got.Document)
		require.NoError(t, err)
		require.Empty(t, proof.Disagreements, "%s\n%s\n%v", b.String(), document, got.Report)
	}
	require.Greater(t, refused, 500)
}

// Where they differ, the proof says so.
func TestProofFindsWhatWaits(t *testing.T) {
	got, err := Translate("t.yaml", []byte("http: {routers: {r: {rule: \"Host(`a`)\", middlewares: [m]}}, middlewares: {m: {rateLimit: {average: 10}}}}"))
	require.NoError(t, err)
	require.Contains(t, got.Report[0], "Traefik lets a request wait for up to 50ms that comes early")
	set, err := rules.Compile(got.Document)
	require.NoError(t, err)
	log := `{"time":1800000000000,"client":"203.0.113.1","host":"a","path":"/"}
{"time":1800000000060,"client":"203.0.113.1","host":"a","path":"/"}
`
	proof, err := replay.Prove(t.Context(), replay.Config{Candidate: set}, strings.NewReader(log), got.Model.Refuses)
	require.NoError(t, err)
	require.EqualValues(t, 1, proof.OnlyRules)
	require.EqualValues(t, 2, proof.Disagreements[0].Line)
	require.True(t, proof.Disagreements[0].ByRules)
}
