package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFindCookie(t *testing.T) {
	f := func(want string, n int, lines ...string) {
		t.Helper()
		var value []byte
		found := 0
		for _, line := range lines {
			value, found = FindCookie([]byte(line), "session", value, found)
		}
		require.Equal(t, n, found, "%q", lines)
		require.Equal(t, want, string(value), "%q", lines)
	}
	f("a", 1, "session=a")
	f("a", 1, " session = a ;x")
	f("a", 1, "x=1;\tsession\t=\ta\t;y=2")
	f("a", 1, "x=1;\u00a0session\u2003=\u00a0a\u00a0; y=2") // Python strips Unicode's white space
	f("a", 1, "x=1;\xa0session=a\xa0; y=2")                 // JavaScript reads headers as Latin-1
	f("a", 1, "x=1 session=a y=2")                          // Python's SimpleCookie needs no semicolon
	f("a", 1, "x=y== session=a")
	f("a", 1, `session="a"`)
	f("a", 1, `session="aZ`)     // Express removes the first and the last byte
	f("a", 1, "x=1,session=a,b") // Perl's CGI splits at commas, as RFC 2109 says
	f("a", 1, "session=a, b")
	f("a", 1, `session="a",b`)
	f("a,b", 1, `session="a,b"`)
	f("a%2Cb", 1, "session=a%2Cb")
	f("a", 1, "%73ess%69on=a") // Perl's CGI and older PHP and Rack decode names
	f("a", 1, "x=%; session%00x=a")
	f("a", 1, "x=1; session[0][x]=a") // PHP
	f("a", 1, "x=1; SESSION=a")       // ASP.NET
	f("a b", 1, `session="a b" c`)
	f(`{"a":1}`, 1, `session={"a":1}`)
	f("caf\u00e9", 1, "session=caf\u00e9")
	f("\xe9", 1, "session=\xe9")
	f("=", 1, "session==;")
	f("", 1, "session=")
	f("", 1, `session="`)
	f("", 1, `session=""`)

	value, n := FindCookie([]byte("x=1; auth.token=a; auth token=b;auth[token=c; auth_token=d; x auth.token=e; x.auth_token=f"), "auth_token", nil, 0)
	require.Equal(t, "a", string(value))
	require.Equal(t, 5, n, "PHP turns these into auth_token")

	f("a", 2, "session=a; session=b")
	f("a", 2, "session=a session=b") // Python's SimpleCookie takes the second
	f("a", 2, "session=a,session=b")
	f("a", 2, "session=a; %53ession=b")
	f("a", 2, "session=a;\tsession=b")
	f("a", 2, "session=a", "session=b")

	for _, line := range []string{"", "session", "=session", ";;;", "[session]=a", "x[session]=a", "xsession=a", "session2=a", "x=session", "x-session=a"} {
		f("", 0, line)
	}
}

// A client must not get a second count by writing its cookie in another way.
func TestCookiesThatOriginsReadAlikeShareACount(t *testing.T) {
	want := HashOf("cookie:session", "a b/c=")
	for _, same := range []string{"a+b/c=", "a%20b%2Fc%3d", "%61%20b/c=", `\141 b/c=`, `a\ b/c=`, "a%2Bb/c="} {
		require.Equal(t, want, HashOf("cookie:session", same), same)
	}
	for _, other := range []string{"a b/c", "A b/c=", "a%2520b/c=", "a b/c=%"} {
		require.NotEqual(t, want, HashOf("cookie:session", other), other)
	}
	require.NotEqual(t, HashOf("header:X-Session", "a%20b"), HashOf("header:X-Session", "a b"))
}

// The time per byte must not grow with the length.
func BenchmarkFindCookie(b *testing.B) {
	for name, line := range map[string]string{
		"usual": "theme=dark; session=0123456789abcdef0123456789abcdef; lang=en", "equals": strings.Repeat("=", 1<<14) + "\t",
		"blanks": strings.Repeat("= \t", 1<<12), "semicolons": strings.Repeat("a= ;", 1<<12), "others": strings.Repeat("\xff", 1<<14) + "=",
		"commas": strings.Repeat("a=,", 1<<13), "encoded": strings.Repeat("%61", 1<<13) + "=", "found": strings.Repeat("session=a ", 1<<11),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				FindCookie([]byte(line), "session", nil, 0)
			}
		})
	}
}

func FuzzFindCookie(f *testing.F) {
	for _, line := range []string{"session=a", "a=b; session=\"c\\\"", "\xa0session\t=%61", `session="`, "session=a session=b", "x=1,%73ession[0]=\"a session=b\",c"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		value, n := FindCookie(line, "session", nil, 0)
		require.LessOrEqual(t, len(value), len(line))
		require.LessOrEqual(t, n, len(line)/len("session="))
		before := []byte("weir:{")
		require.LessOrEqual(t, len(appendCookie(before, value)), len(before)+len(value))
		require.Equal(t, "weir:{", string(before))
		_, m := FindCookie(append(append([]byte("x=1;\tsession="), value...), ';'), "session", nil, 0)
		require.Positive(t, m)
	})
}
