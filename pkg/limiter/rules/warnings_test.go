package rules

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWarnings(t *testing.T) {
	f := func(match string, want ...string) {
		t.Helper()
		s := load(t, "rules: [{id: a, match: "+match+", key: [], limit: 1, window: 1s}]")
		require.Equal(t, want, s.Warnings())
	}
	f("{}")
	f(`{paths: [/login, "/login;*", "/api/*", "/100%", "/a b"]}`)
	f(`{paths: ["/a;b/*", "/a/*"]}`)
	f(`{paths: ["/x/*", "/a;b"]}`, `rule a: match.paths[1]: other origins read "/a;b" as "/a", which the rule does not match, so every request for it gets 400; add "/a"`)
	f(`{paths: ["/login;*"]}`, `rule a: match.paths[0]: other origins read "/login;*" as "/login", which the rule does not match, so every request for it gets 400; add "/login"`)
	f(`{paths: ["/a\\b"]}`, `rule a: match.paths[0]: other origins read "/a\\b" as "/a/b", which the rule does not match, so every request for it gets 400; add "/a/b"`)
	f(`{paths: ["/a*"], not: {paths: ["/a;b"]}}`, `rule a: match.not.paths[0]: other origins read "/a;b" as "/a", which the rule does not exempt, so every request for it gets 400; add "/a"`)
	f(`{not: {paths: [/a, "/a;b"]}}`)
	f(`{not: {paths: ["/a;b"]}}`, `rule a: match.not.paths[0]: other origins read "/a;b" as "/a", which the rule does not exempt, so every request for it gets 400; add "/a"`)
	f(`{paths: ["/.*", "/a..*"]}`)
	f(`{paths: ["/a;b/*"]}`, `rule a: match.paths[0]: other origins read "/a;b/*" as "/a/*", which the rule does not match, so every request for it gets 400; add "/a/*"`)
	f(`{paths: [/b, "/..;/a"]}`, `rule a: match.paths[1]: every request for "/..;/a" gets 400: the path leaves its root by dot segments; send the intended path`)
	require.Empty(t, load(t, `rules: [{id: a, match: {paths: ["/a;b"]}, key: [], limit: 1, window: 1s, mode: off}]`).Warnings())
}

func TestMatcherWarnings(t *testing.T) {
	f := func(leads []int, conditions []Conditions, want ...string) {
		t.Helper()
		m, err := NewMatcher(conditions)
		require.NoError(t, err)
		require.Equal(t, want, m.Warnings(leads, 0, func(i int) string { return fmt.Sprintf("[%d]", i) }))
	}
	on := func(paths ...string) Conditions { return Conditions{Paths: paths} }
	const elsewhere = `[0].paths[1]: other origins read "/a;b" as "/a", which leads elsewhere, so every request for it gets 400; add "/a"`
	f(nil, nil)
	f([]int{1}, []Conditions{on("/b", "/a;b")}, elsewhere)
	f([]int{1, 2}, []Conditions{on("/b", "/a;b"), on("/a")}, elsewhere)
	f([]int{0}, []Conditions{on("/a;b")})              // where it would go anyway
	f([]int{1, 1}, []Conditions{on("/a;b"), on("/a")}) // by another condition
	f([]int{1, 1}, []Conditions{on("/a;b"), {Methods: []string{"GET"}}})
	f([]int{2, 1}, []Conditions{on("/a*"), on("/a;b")}) // which the first one takes
}
