package rules

import (
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
	f(`{paths: ["/x/*", "/a;b"]}`, `rule a: match.paths[1]: "/a;b" is "/a" to other origins, which the rule does not match, so every request for it gets 400; add "/a"`)
	f(`{paths: ["/login;*"]}`, `rule a: match.paths[0]: "/login;*" is "/login" to other origins, which the rule does not match, so every request for it gets 400; add "/login"`)
	f(`{paths: ["/a\\b"]}`, `rule a: match.paths[0]: "/a\\b" is "/a/b" to other origins, which the rule does not match, so every request for it gets 400; add "/a/b"`)
	f(`{paths: ["/a*"], not: {paths: ["/a;b"]}}`, `rule a: match.not.paths[0]: "/a;b" is "/a" to other origins, which the rule does not exempt, so every request for it gets 400; add "/a"`)
	f(`{not: {paths: [/a, "/a;b"]}}`)
	require.Empty(t, load(t, `rules: [{id: a, match: {paths: ["/a;b"]}, key: [], limit: 1, window: 1s, mode: off}]`).Warnings())
}
