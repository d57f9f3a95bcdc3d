package docs

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// All runbooks have one form: who is affected, one command that confirms the alert, one that
// mitigates it or why none does, the repair, and whom to call. Endpoints of nodes are documented ones.
func TestRunbooksHaveOneForm(t *testing.T) {
	require.NotEmpty(t, Runbooks())
	admin, err := os.ReadFile("reference/admin.md")
	require.NoError(t, err)
	form := []struct{ part, begins string }{
		{"Users", `\S`}, {"Confirm", "`[^`]+`[.,:] ?"}, {"Mitigate", "(`[^`]+`[.,:] ?|nothing: )"}, {"Repair", `\S`}, {"Call", `\S`},
	}
	for _, r := range Runbooks() {
		require.Contains(t, []string{"critical", "warning"}, r.Severity, r.Alert)
		parts := strings.Split("\n"+r.Text, "\n- **")
		require.GreaterOrEqual(t, len(parts), 1+len(form), r.Alert)
		for i, f := range form {
			require.Regexp(t, "^"+f.part+`:\*\* `+f.begins, parts[1+i], r.Alert)
		}
		if more := parts[1+len(form):]; len(more) > 0 {
			require.Len(t, more, 1, r.Alert)
			require.Regexp(t, "^Rehearse:\\*\\* `terraform/lab/scripts/", more[0], r.Alert)
		}
		for _, endpoint := range regexp.MustCompile(`/v1/[a-z]+`).FindAllString(r.Text, -1) {
			require.Regexp(t, `(?m)^[A-Z]+ +`+endpoint+`\b`, string(admin), r.Alert)
		}
		for _, word := range regexp.MustCompile(`\b(ADMIN|ROUTER|ZONE|MASTER|PROMETHEUS|rules\.yaml|topology\.yaml)\b`).FindAllString(r.Text, -1) {
			require.Contains(t, r.Legend, "`"+word+"`", r.Alert)
		}
		require.Regexp(t, "^(Replace the words in capitals.*shows it[.](\n\n- `|$)|$)", r.Legend, r.Alert)
		for i, text := range strings.Split(r.Text, "`") {
			require.False(t, i%2 == 1 && strings.Contains(text, "\n"), "%s: a command over two lines: %s", r.Alert, text)
		}
	}
}

// README's row of figures sums up the drills.
func TestREADMESumsUpTheDrills(t *testing.T) {
	drills, err := os.ReadFile("DRILLS.md")
	require.NoError(t, err)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\|[^|]+\|[^|]+\| (\d+) \| (\d+)(?:, and (\d+))?`).FindAllStringSubmatch(string(drills), -1)
	sum := map[int]int{}
	for _, row := range rows {
		for i, figure := range row[1:] {
			n, _ := strconv.Atoi(figure) // no second figure: 0
			sum[i] += n
		}
	}
	require.Contains(t, strings.ReplaceAll(string(readme), ",", ""), fmt.Sprintf("%d drills that break its parts | %d of %d:", len(rows), sum[1]+sum[2], sum[0]))
}
