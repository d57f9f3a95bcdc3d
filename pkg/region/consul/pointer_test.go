package consul

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNewPointer(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	p := NewPointer([]byte("abc"), "ana", time.Date(2026, 3, 1, 12, 0, 0, 5, zone))
	require.Equal(t, Pointer{
		Version: "ba7816bf8f01", SHA256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		AppliedAt: time.Date(2026, 3, 1, 10, 0, 0, 5, time.UTC), AppliedBy: "ana",
	}, p)
	value, err := json.Marshal(p)
	require.NoError(t, err)
	require.Equal(t, `{"version":"ba7816bf8f01","sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",`+
		`"applied_at":"2026-03-01T10:00:00.000000005Z","applied_by":"ana"}`, string(value))
}

func TestPointerRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
		p := NewPointer(rapid.SliceOf(rapid.Byte()).Draw(t, "document"), rapid.String().Draw(t, "by"), at)
		if rapid.Bool().Draw(t, "canary") {
			expires := at.Add(time.Hour).UTC()
			p.ExpiresAt = &expires
			if rapid.Bool().Draw(t, "then") {
				then := NewPointer(rapid.SliceOf(rapid.Byte()).Draw(t, "after"), "", at)
				p.Successor = &Named{then.Version, then.SHA256}
			}
		}
		value, err := json.Marshal(Change{Pointer: p, Replaced: "0123456789ab", Message: rapid.String().Draw(t, "message")})
		require.NoError(t, err)
		back, err := ParsePointer(value)
		require.NoError(t, err, "a change is a pointer with more fields")
		require.Equal(t, p, back)
		_, err = parseChange(value)
		require.NoError(t, err)
	})
}

func TestParsePointerRefuses(t *testing.T) {
	const sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	good := `{"version":"ba7816bf8f01","sha256":"` + sum + `","applied_at":"2026-03-01T10:00:00Z","applied_by":"ana"}`
	const expires = `"expires_at":"2026-03-01T11:00:00Z",`
	_, err := ParsePointer([]byte(good))
	require.NoError(t, err)
	for _, row := range []struct{ value, want string }{
		{"", `is empty; a pointer is a JSON object with version and sha256`},
		{"{", `is not a JSON object with version and sha256: unexpected end of JSON input`},
		{"[]", `is not a JSON object with version and sha256: json: cannot unmarshal array into Go value of type consul.Pointer`},
		{`"ba7816bf8f01"`, `is not a JSON object with version and sha256: json: cannot unmarshal string into Go value of type consul.Pointer`},
		{good + good, `is not a JSON object with version and sha256: invalid character '{' after top-level value`},
		{"null", `sha256: must be 64 hex digits in lower case (got "")`},
		{"{}", `sha256: must be 64 hex digits in lower case (got "")`},
		{strings.Replace(good, `"version":"ba7816bf8f01"`, `"version":7`, 1), `version: must be a string (got a number)`},
		{strings.Replace(good, `"version":"ba7816bf8f01",`, "", 1), `version: must be 12 hex digits in lower case (got "")`},
		{strings.Replace(good, `:"ba7816bf8f01"`, `:"ba7816bf8f0"`, 1), `version: must be 12 hex digits in lower case (got "ba7816bf8f0")`},
		{strings.Replace(good, `:"ba7816bf8f01"`, `:"BA7816BF8F01"`, 1), `version: must be 12 hex digits in lower case (got "BA7816BF8F01")`},
		{strings.Replace(good, `:"ba7816bf8f01"`, `:"../../other1"`, 1), `version: must be 12 hex digits in lower case (got "../../other1")`},
		{strings.Replace(good, `:"ba7816bf8f01"`, `:"000000000000"`, 1), `version: must be the first 12 digits of sha256, ba7816bf8f01 (got 000000000000)`},
		{strings.Replace(good, sum, sum[1:], 1), `sha256: must be 64 hex digits in lower case (got "` + sum[1:] + `")`},
		{strings.Replace(good, "15ad", "15ag", 1), `sha256: must be 64 hex digits in lower case (got "` + sum[:60] + `15ag")`},
		{strings.Replace(good, `"2026-03-01T10:00:00Z"`, `"0001-01-01T00:00:00Z"`, 1), `applied_at: must be the time of the change, such as 2006-01-02T15:04:05Z`},
		{strings.Replace(good, `,"applied_at":"2026-03-01T10:00:00Z"`, ``, 1), `applied_at: must be the time of the change, such as 2006-01-02T15:04:05Z`},
		{strings.Replace(good, "2026-03-01T10", "1 March", 1), `applied_at: must be a time such as 2006-01-02T15:04:05Z (got "1 March:00:00Z")`},
		{strings.Replace(good, `"2026-03-01T10:00:00Z"`, `5`, 1), `applied_at: must be a time such as 2006-01-02T15:04:05Z (got 5)`},
		{strings.Replace(good, `"applied_by"`, `"then":{"version":"ba7816bf8f01","sha256":"`+sum+`"},"applied_by"`, 1), `then: requires expires_at, which is missing`},
		{strings.Replace(good, `"applied_by"`, expires+`"then":5,"applied_by"`, 1), `then: must be an object with version and sha256 (got a number)`},
		{strings.Replace(good, `"applied_by"`, expires+`"then":{"version":5},"applied_by"`, 1), `then.version: must be a string (got a number)`},
		{strings.Replace(good, `"applied_by"`, expires+`"then":{},"applied_by"`, 1), `then.sha256: must be 64 hex digits in lower case (got "")`},
		{strings.Replace(good, `"applied_by"`, expires+`"then":{"version":"../../other1","sha256":"`+sum+`"},"applied_by"`, 1), `then.version: must be 12 hex digits in lower case (got "../../other1")`},
		{strings.Replace(good, `"applied_by"`, `"expires_at":"soon","applied_by"`, 1), `expires_at: must be a time such as 2006-01-02T15:04:05Z (got "soon")`},
	} {
		p, err := ParsePointer([]byte(row.value))
		require.EqualError(t, err, row.want, "%s", row.value)
		require.Zero(t, p)
	}
}

func TestParsePointerLeavesLaterFieldsAlone(t *testing.T) {
	p := NewPointer([]byte("abc"), "ana", time.Unix(1, 0))
	value := `{"note":{"a":1},"version":"` + p.Version + `","sha256":"` + p.SHA256 + `","applied_at":"1970-01-01T00:00:01Z","applied_by":"ana"}`
	got, err := ParsePointer([]byte(value))
	require.NoError(t, err)
	require.Equal(t, p, got)
}

func TestExpired(t *testing.T) {
	end := time.Unix(100, 0)
	require.False(t, Pointer{}.Expired(end))
	require.False(t, Pointer{ExpiresAt: &end}.Expired(end.Add(-1)))
	require.True(t, Pointer{ExpiresAt: &end}.Expired(end))
}

func TestActiveAt(t *testing.T) {
	end := time.Unix(100, 0)
	p := NewPointer([]byte("abc"), "ana", time.Unix(1, 0))
	own, after := &Named{p.Version, p.SHA256}, &Named{"0", "00"}
	require.Equal(t, own, p.ActiveAt(end), "it does not expire")
	p.ExpiresAt, p.Successor = &end, after
	require.Equal(t, own, p.ActiveAt(end.Add(-1)))
	require.Equal(t, after, p.ActiveAt(end))
	p.Successor = nil
	require.Nil(t, p.ActiveAt(end), "the configuration applies")
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "ams1", "eu-west-1", strings.Repeat("x", 64)} {
		require.NoError(t, CheckName(name))
	}
	for _, name := range []string{"", "A", "a/b", "..", "a.b", "a b", "ä", "a%2fb", "a\n", strings.Repeat("x", 65)} {
		require.ErrorContains(t, CheckName(name), "must be 1 to 64 lower-case letters, digits or -", "%q", name)
	}
}
