package replay

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
)

func TestNumbersAsPeopleReadThem(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		require.Equal(t, want, count(n))
	}
	require.Equal(t, "1 request", plural(1, "request"))
	require.Equal(t, "1,000 requests", plural(1000, "request"))
	require.Equal(t, "33.33%", percent(1, 3))
	require.Equal(t, "0.00%", percent(0, 0))
	for d, want := range map[time.Duration]string{time.Hour: "1h", time.Minute: "1m", 90 * time.Minute: "1h30m", 61 * time.Second: "1m1s", 0: "0s", 10 * time.Second: "10s", 24 * time.Hour: "24h"} {
		require.Equal(t, want, term.Short(d.String()))
	}
}

// A client's bytes must not control the terminal.
func TestTextIsPrintable(t *testing.T) {
	x := &Example{Line: 3, Time: time.Unix(0, 0).UTC(), Client: "203.0.113.7", Method: "GET", Path: "/\x1b[31m\u202e\xff"}
	require.Equal(t, `line 3, 00:00:00, 203.0.113.7 GET "/\x1b[31m\u202e\xff"`, x.String())
	require.Equal(t, "/café", printable("/café"))
}

func TestALongPathIsCut(t *testing.T) {
	line := `{"time":1795168800.5,"client":"203.0.113.7","path":"/` + strings.Repeat("x", 1000) + `"}`
	r := run(t, Config{Candidate: load(t, `rules: [{id: all, key: [], limit: 1, window: 1m}]`)}, line, line)
	require.Len(t, r.Candidate.Rules[0].First.Path, 200)
}

func TestTextOfManyRulesIsShort(t *testing.T) {
	doc := "rules:\n"
	for i := range 30 {
		doc += fmt.Sprintf("  - {id: r%d, match: {methods: [M%d]}, key: [], limit: 1, window: 1m}\n", i, i)
	}
	const line = `{"time":1795168800.5,"client":"203.0.113.7","host":"a.example","path":"/","method":"M25"}`
	got := text(t, run(t, Config{Candidate: load(t, doc)}, line, line))
	require.Contains(t, got, "r25   enforce       2        1       0        1\nr0 ")
	require.Contains(t, got, "and 10 more rules, which limited nothing\n")
	require.Contains(t, got, "no request was counted by rules r0, r1, r2, r3, r4 and 24 more: none matches\n")

	require.Contains(t, text(t, run(t, Config{Candidate: load(t, "rules: []")}, line)), "\nno rules\n")
}

func TestTextSaysWhatARuleWas(t *testing.T) {
	const doc = `rules: [{id: all, key: [], algorithm: concurrency, limit: 1, window: 1m, mode: %s}]`
	lines := []string{`{"time":1795168800.5,"client":"203.0.113.7","path":"/","duration":9}`, `{"time":1795168801.5,"client":"203.0.113.7","path":"/","duration":9}`}
	for mode, want := range map[string]string{
		"off": "all   enforce       2          off        1       0        1\n", "shadow": "all   enforce       2  1 in shadow        1       0        1\n",
	} {
		got := text(t, run(t, Config{Candidate: load(t, fmt.Sprintf(doc, "enforce")), Running: load(t, fmt.Sprintf(doc, mode))}, lines...))
		require.Contains(t, got, want)
		require.Contains(t, got, "by all (1 at once)\n")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("pipe closed") }

func TestWriteTextFailsWithItsWriter(t *testing.T) {
	r := run(t, Config{Candidate: load(t, "rules: []")}, `{"time":1795168800,"client":"203.0.113.7","path":"/"}`)
	require.EqualError(t, r.WriteText(broken{}), "pipe closed")
}
