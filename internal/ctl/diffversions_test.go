package ctl

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
)

func TestDiffOfVersions(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	text := func(limit int, more string) string {
		return fmt.Sprintf("rules: [{id: a, key: [client_ip], limit: %d, window: 1m}%s]", limit, more)
	}
	first := f.publish(t, text(10, ", {id: gone, key: [client_ip], limit: 1, window: 1s}"), "ana", f.names...).Version
	second := f.publish(t, text(20, ""), "bob", f.names...).Version
	third := f.publish(t, text(20, " "), "bob", f.names...).Version
	diff := func(args ...string) string { return f.good(t, append([]string{"rules", "diff"}, args...)...).out }

	require.Equal(t, fmt.Sprintf(`from %s to %s
  - gone  1 in 1s by client_ip (rolling_window)
  ~ a     limit: 10 → 20
  0 added, 1 removed, 1 changed, 0 unchanged
`, first, second), diff("--from", first[:6], "--to", second))
	require.Contains(t, diff("--from", second, "--to", first), "+ gone")
	require.Equal(t, fmt.Sprintf("from %s to %s\n  the text differs, but no rule does\n", second, third), diff("--from", second))
	require.Equal(t, fmt.Sprintf("from %s to %s\n  no difference\n", third, third), diff("--from", third))
	require.Contains(t, diff("--from", "none", "--to", first), "2 added, 0 removed")
	require.Contains(t, diff(write(t, "next.yaml", text(30, "")), "--from", first, "--region", "us-east"), "limit: 10 → 30")
	require.Equal(t, term.StatusFailed, f.run(t, "rules", "diff", "--from", first, "--exit-code").status)

	var r struct {
		From, To   string
		Same       bool
		Difference kinds.Difference
	}
	require.NoError(t, json.Unmarshal([]byte(diff("--from", first, "--to", second, "-o", "json")), &r))
	require.Equal(t, []string{first, second}, []string{r.From, r.To})
	require.Equal(t, "gone", r.Difference.Removed[0].Rule)

	for _, c := range []struct{ args, says string }{
		{"", "FILE is missing; name a document, or versions of the history with --from and --to"},
		{"--to " + first, "FILE is missing"},
		{"next.yaml --from " + first + " --to " + second, "--to: next.yaml is already what is compared; leave one of them out"},
		{"--from abc", `version "abc": must be 4 to 12 digits`},
		{"--from " + first + " --to ffffffffffff", `version "ffffffffffff": no region has it`},
	} {
		r := f.run(t, append([]string{"rules", "diff"}, strings.Fields(c.args)...)...)
		require.Equal(t, term.StatusUsage, r.status, c.args)
		require.Contains(t, r.errOut, c.says)
	}
}
