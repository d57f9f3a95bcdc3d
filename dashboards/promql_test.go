package dashboards

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// querySelector is one selector of a query.
type querySelector struct {
	metric, matchers, window string // matchers with their braces, window with its brackets
	function                 string // the function called with nothing but the selector
}

var (
	selectors = regexp.MustCompile(`(\w+\()?\s*([a-zA-Z_:][\w:]*)(\{[^}]*\})(\[[^\]]*\])?`)
	labelSets = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	texts     = regexp.MustCompile(`"[^"]*"`)
	bare      = regexp.MustCompile(`([a-zA-Z_:][\w:]*)(\[[^\]]*\])?`)
	within    = regexp.MustCompile(`[\w$.\[]$`)
	keywords  = regexp.MustCompile(`^(and|or|unless|by|without|on|ignoring|group_left|group_right|bool|offset|sum|min|max|avg|count)$`)
)

// selectorsOf returns a query's selectors. promtool, not this, decides whether it is
// valid PromQL.
func selectorsOf(expr string) []querySelector {
	var list []querySelector
	for _, m := range selectors.FindAllStringSubmatch(expr, -1) {
		list = append(list, querySelector{metric: m[2], matchers: m[3], window: m[4], function: strings.TrimSuffix(m[1], "(")})
	}
	rest := expr
	for _, cut := range []*regexp.Regexp{selectors, labelSets, texts} {
		rest = cut.ReplaceAllString(rest, " ")
	}
	for _, m := range bare.FindAllStringSubmatchIndex(rest, -1) {
		name := rest[m[2]:m[3]]
		before, after := rest[:m[0]], strings.TrimSpace(rest[m[1]:])
		if keywords.MatchString(name) || strings.HasPrefix(after, "(") || within.MatchString(before) {
			continue // a function, a duration, a variable
		}
		a := querySelector{metric: name}
		if m[4] >= 0 {
			a.window = rest[m[4]:m[5]]
		}
		list = append(list, a)
	}
	return list
}

func TestSelectors(t *testing.T) {
	f := func(expr string, want ...querySelector) {
		t.Helper()
		require.Equal(t, want, selectorsOf(expr))
	}
	f(`sum by (a, b) (rate(x_total{job=~"$job"}[$__rate_interval])) / on (a) group_left sum by (a) (y{c="z(w"})`,
		querySelector{"x_total", `{job=~"$job"}`, "[$__rate_interval]", "rate"}, querySelector{"y", `{c="z(w"}`, "", ""})
	f(`max_over_time(l:m:n[1h] offset 5m) > 0 unless on (job) l:m:n == bool $start * 1e3`, querySelector{metric: "l:m:n", window: "[1h]"}, querySelector{metric: "l:m:n"})
	f(`time() - min by (a) (x{})`, querySelector{"x", "{}", "", ""})
	f(`vector(0)`)
}
