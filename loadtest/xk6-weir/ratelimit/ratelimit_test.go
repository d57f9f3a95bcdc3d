package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	p, err := ParsePolicies([]string{`"per-client";q=100;w=60, "slow";q=2`, `"x\"y";q=1;w=3;pk=:Zm8=:;qu="requests"`})
	require.NoError(t, err)
	require.Equal(t, []Policy{
		{Name: "per-client", Quota: 100, Window: 60}, {Name: "slow", Quota: 2, Window: -1},
		{Name: `x"y`, Quota: 1, Window: 3},
	}, p)
	s, err := ParseStates([]string{`"per-client";r=42;t=18,	"slow"; r=0`})
	require.NoError(t, err)
	require.Equal(t, []State{{Name: "per-client", Remaining: 42, Reset: 18}, {Name: "slow", Reset: -1}}, s)
	s, err = ParseStates(nil)
	require.NoError(t, err)
	require.Empty(t, s)
}

func TestParseRefuses(t *testing.T) {
	for _, bad := range []string{
		`per-client;r=1`, `"a"`, `"a";r`, `"a";r="1"`, `"a";r=-1`, `"a";r=1,`, `"a";r=1 "b";r=2`, `"a`, `"a\x";r=1`,
		`"a";r=1;t=x`, `"a";=1`, `"a";r=`, "\"\x01\";r=1", `"a";r=1;t=1.5`, `"a";r=1;pk=:Zm`, `,`, `"a";r=1234567890123456`,
	} {
		_, err := ParseStates([]string{bad})
		require.ErrorContains(t, err, "RateLimit: ", bad)
	}
	for _, bad := range []string{`"a";w=1`, `"a";q=1;w=-1`, `a`} {
		_, err := ParsePolicies([]string{bad})
		require.ErrorContains(t, err, "RateLimit-Policy: ", bad)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 500, time.UTC)
	f := func(in string, want int64) { t.Helper(); require.Equal(t, want, RetryAfter(in, now), in) }
	f("7", 7)
	f("0", 0)
	f("Sat, 21 Nov 2026 09:00:10 GMT", 10)
	f("Sat, 21 Nov 2026 08:00:10 GMT", 0)
	f("", -1)
	f("-1", -1)
	f("1.5", -1)
	f("soon", -1)
}

func FuzzParse(f *testing.F) {
	f.Add(`"per-client";r=42;t=18`)
	f.Fuzz(func(t *testing.T, s string) {
		states, err := ParseStates([]string{s})
		if err == nil {
			for _, s := range states {
				require.GreaterOrEqual(t, s.Remaining, int64(0))
			}
		}
	})
}
