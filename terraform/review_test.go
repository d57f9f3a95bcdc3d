package terraform_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// REVIEW.md lists every resource and data source of the modules that terraform/aws
// uses, every action of a role, and nothing else.
func TestReview(t *testing.T) {
	text := read(t, "aws/REVIEW.md")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z0-9_.]+\\.[a-z0-9_]+)`").FindAllStringSubmatch(text, -1) {
		if regexp.MustCompile(`^((data|ephemeral)\.)?(aws|random|tls|archive)_`).MatchString(m[1]) {
			listed[m[1]] = true
		}
	}
	require.NotEmpty(t, listed)
	exists := map[string]bool{}
	all := allModules(t)
	for _, dir := range []string{"modules/global", "modules/region", "modules/dns", "modules/cloud-init"} {
		m := all[dir]
		for name := range m.resources {
			exists[name] = true
		}
		for name, b := range m.data {
			exists["data."+name] = true
			for _, statement := range b.Body.Blocks {
				actions, ok := statement.Body.Attributes["actions"]
				if !ok || b.Labels[0] != "aws_iam_policy_document" {
					continue
				}
				for _, action := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(m.text(actions.Expr.Range()), -1) {
					if action[1] != "sts:AssumeRole" {
						require.Contains(t, text, "`"+action[1]+"`", "%s: %s: an action of a role", dir, name)
					}
				}
			}
		}
		for name := range m.ephemeral {
			exists["ephemeral."+name] = true
		}
		for name := range m.resources {
			if strings.HasPrefix(name, "aws_vpc_security_group_") {
				require.Regexp(t, "\\| `.*"+regexp.QuoteMeta(name)+"`.* \\| "+strings.TrimPrefix(dir, "modules/")+" \\|", text, "who reaches whom by %s of %s", name, dir)
			}
		}
	}
	require.Equal(t, exists, listed, "terraform/aws/REVIEW.md and the modules")
}

// Each step by hand ends with its minutes of work, or of work + waiting. All work takes under an hour, and what
// takes long to wait for is started first.
func TestReviewTakesUnderAnHour(t *testing.T) {
	_, text, found := strings.Cut(read(t, "aws/REVIEW.md"), "\n## Confirm by hand\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	parts := regexp.MustCompile(`\n\d+\. `).Split(text, -1)
	require.Greater(t, len(parts), 25)
	work, longest, long := 0, 0, 0
	for i, step := range parts[1:] {
		m := regexp.MustCompile(`\[(\d+)(?: \+ (\d+))?\]\s*$`).FindStringSubmatch(step)
		require.NotNil(t, m, "step %d has no minutes", 1+i)
		minutes, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		work += minutes
		if wait, _ := strconv.Atoi(m[2]); wait >= 10 {
			require.Equal(t, long, i, "step %d waits %d minutes: start it before the short ones", 1+i, wait)
			long, longest = 1+i, max(longest, wait)
		}
	}
	require.Less(t, work, 60)
	require.Contains(t, strings.Join(strings.Fields(parts[0]), " "), fmt.Sprintf("%d minutes of work, while steps 1 to %d wait, the longest %d minutes.", work, long, longest))
}

// The bill's amounts are its counts times its prices, and its totals the sums of the amounts.
func TestReviewBill(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "aws/REVIEW.md"), "| a month of 730 hours, in dollars |")
	text, _, _ = strings.Cut(text, "\n\n")
	number := func(s string) float64 {
		n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
		require.NoError(t, err)
		return n
	}
	rows := strings.Split(text, "\n")[2:]
	require.Greater(t, len(rows), 10)
	var sums [2]float64
	for i, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), "|")
		for fleet := range sums {
			amount := cells[3+2*fleet]
			if i == len(rows)-1 {
				require.InDelta(t, number(amount), sums[fleet], 0.005, row)
				continue
			}
			prices, hourly := strings.CutSuffix(strings.TrimSpace(cells[1]), " an hour")
			each, counts, sum := strings.Split(prices, ";"), strings.Split(cells[2+2*fleet], ";"), 0.0
			for kind, count := range counts {
				if len(counts) == 1 {
					kind = min(fleet, len(each)-1) // a price for each fleet, or one
				}
				sum += number(count) * number(each[kind])
			}
			if hourly {
				sum *= 730
			}
			require.InDelta(t, sum, number(amount), 0.0051, row)
			sums[fleet] += number(amount)
		}
	}
}
