package paths

import (
	"cmp"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// readings returns the readings of a path, with ¦ for a slash within a segment.
func readings(t testing.TB, raw string) []string {
	t.Helper()
	var r Readings
	require.NoError(t, r.Read([]byte(raw)), raw)
	return list(&r)
}

func list(r *Readings) (all []string) {
	for i := range r.Len() {
		all = append(all, strings.ReplaceAll(string(r.At(i)), "\x00", "¦"))
	}
	return all
}

func TestReadings(t *testing.T) {
	f := func(raw string, want ...string) {
		t.Helper()
		require.ElementsMatch(t, want, readings(t, raw), raw)
	}
	// A single reading.
	f("/", "/")
	f("/a/b.c/d", "/a/b.c/d")
	f("/.well-known/x", "/.well-known/x")
	f("/a/...", "/a/...")
	f("/a..", "/a..")
	f("/%61pi/%2Dx%2e%5F", "/api/-x._")
	f("/caf%C3%A9/caf\xc3\xa9", "/café/café")
	f("/a%20b%3Fc%23%25", "/a b?c#%")
	f("/%", "/%")
	f("/%4/%zz", "/%4/%zz")
	f("/a=b&c,d:e@f(g)*!$'", "/a=b&c,d:e@f(g)*!$'")

	// One ambiguity.
	f("/@scope%2fpkg", "/@scope¦pkg", "/@scope/pkg")
	f("/fetch/https://example.com/x", "/fetch/https://example.com/x", "/fetch/https:/example.com/x")
	f("/cars;color=red;n=1/list", "/cars;color=red;n=1/list", "/cars/list")
	f("/a%3Bb", "/a;b", "/a")
	f(`/a\b`, `/a\b`, "/a/b")
	f("/a%5cb", `/a\b`, "/a/b")
	f("/a/b/", "/a/b/")
	f("/a/./b", "/a/./b", "/a/b")
	f("/a/b/..", "/a/b/..", "/a/", "/a")
	f("/.", "/.", "/")
	f("/a/%2e%2e/b", "/a/../b", "/b")
	f("/a/.%2E/b", "/a/../b", "/b")
	f("/a%2561", "/a%61", "/aa")
	f("/fetch/https%253A%252F%252Fexample.com", "/fetch/https%3A%2F%2Fexample.com",
		"/fetch/https:¦¦example.com", "/fetch/https://example.com", "/fetch/https:/example.com")

	// Two or more.
	f("/api/v/..%2f..%2fq", "/api/v/..¦..¦q", "/api/v/../../q", "/q")
	f("/api/v//../x", "/api/v//../x", "/api/v/../x", "/api/v/x", "/api/x")
	f("/x/..;/api/y", "/x/..;/api/y", "/x/../api/y", "/api/y")
	f("/;a/api/y", "/;a/api/y", "//api/y", "/api/y")
	f("/a%2fb/../c", "/a¦b/../c", "/a/b/../c", "/c", "/a/c")
	f(`/api;\x`, `/api;\x`, "/api", "/api;/x", "/api/x")
	f("/%3b%2f;%2f", "/;¦;¦", "/;/;/", "/;¦", "/;/", "///", "//", "/")
	f("/%2e/api%2f..", "/./api¦..", "/./api/..", "/api¦..", "/api/..", "/")
	f("//api/x", "//api/x", "/api/x", "/x")
	f("///h/x", "///h/x", "/h/x", "/x")
	f("//h", "//h", "/h", "/")
	f(`/\h/x`, `/\h/x`, "//h/x", "/h/x", "/x")
}

func TestNoReading(t *testing.T) {
	f := func(want error, list ...string) {
		t.Helper()
		for _, raw := range list {
			var r Readings
			require.ErrorIs(t, r.Read([]byte(raw)), want, raw)
		}
	}
	f(ErrForm, "", "*", "a", "http://a/b")
	f(ErrControl, "/\x00", "/a b", "/a\tb", "/\x7f", "/%00", "/a/%0d%0aX", "/%1F", "/%7f", "/%2500")
	f(ErrRoot, "/..", "/../", "/a/../..", "/a/../../b", "/%2e%2e/x", "/a/..%2f..%2f..%2fq", `/a\..\..\x`, "/a/..;/..;/x", "/%252e%252e/x", "/a//../../x")
	f(ErrTooMany, "/a//./"+strings.Repeat("b/", 2100), "/a%2fb//c;d/./e", `/a\b;c//d/../e%2f`)
}

func TestAppendKey(t *testing.T) {
	f := func(raw, want string) {
		t.Helper()
		var r Readings
		require.NoError(t, r.Read([]byte(raw)))
		for i := range r.Len() {
			require.Equal(t, want, string(AppendKey([]byte("x"), r.At(i))[1:]), "reading %q of %q", r.At(i), raw)
		}
	}
	f("/", "/")
	f("/a%20b/.c", "/a b/.c")
	f("/@scope%2fpkg", "/@scope/pkg")
	f("/fetch/https://example.com/x", "/fetch/https:/example.com/x")
	f("/cars;color=red/list;x", "/cars/list")
	f(`/a\b`, "/a/b")
	f("/x/../a", "/a")
	f("/x/%252e%252e/a", "/a")
	f("/x/..;/a", "/a")
	f("/a%2561", "/aa")
	require.Equal(t, "*", string(AppendKey(nil, []byte("*"))))
	require.Empty(t, AppendKey(nil, nil))
}

// Origins that ignore case or a slash at the end see one route in all of its spellings.
func TestAppendRoute(t *testing.T) {
	f := func(raw, want string) {
		t.Helper()
		var r Readings
		require.NoError(t, r.Read([]byte(raw)))
		for i := range r.Len() {
			require.Equal(t, want, string(AppendRoute([]byte("X"), r.At(i))[1:]), "reading %q of %q", r.At(i), raw)
		}
	}
	for n := range 64 {
		name := []byte("/signin")
		for i := range name[1:] {
			if n>>i&1 > 0 {
				name[1+i] -= 'a' - 'A'
			}
		}
		f(string(name), "/signin")
	}
	f("/", "/")
	f("/Login/", "/login")
	f("/.//%4cogin//;x=1", "/login")
	f("/%C3%89t%C3%A9/%F0%90%90%80", "/été/𐐨")
	f("/%FF%C3A", "/\xff\xc3a")
	f("/%E2%84%AA/%C8%BA/B", "/\u212a/\u023a/b")
	require.Empty(t, AppendRoute(nil, nil))
	reading, buf := []byte("/Some/Path"), make([]byte, 0, 64)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = AppendRoute(buf[:0], reading) }))
}

func TestAppendNormal(t *testing.T) {
	f := func(raw, want string) {
		t.Helper()
		got, err := AppendNormal([]byte("x"), []byte(raw))
		require.NoError(t, err)
		require.Equal(t, want, string(got[1:]))
	}
	f("/", "/")
	f("/%7ea/%2f%3b%c3%28", "/~a/%2F%3B%C3%28")
	f("/a/./b/../c//d", "/a/c//d")
	f("/a/%2e%2E/b/.", "/b/")
	f("/a//../b", "/a/b")
	f("/a%2f../b;x/%zz%4", "/a%2F../b;x/%zz%4")
	_, err := AppendNormal(nil, []byte("/a/../%2e%2e"))
	require.ErrorIs(t, err, ErrRoot)
	_, err = AppendNormal(nil, []byte("x"))
	require.ErrorIs(t, err, ErrForm)
}

// origins are the ways in which real programs read a path: the decoded path, or "" if refused.
var origins = map[string]func(raw string) string{
	"WSGI: decoded, nothing else":     decoded,
	"net/http: decoded, then cleaned": func(raw string) string { return clean(decoded(raw)) },
	"RFC 3986: dot segments removed as sent, then decoded": func(raw string) string {
		return decoded((&url.URL{Path: "/"}).ResolveReference(&url.URL{Path: raw}).Path)
	},
	"servlets: parameters cut, decoded, merged, dots removed": func(raw string) string {
		segments := strings.Split(raw, "/")
		for i, s := range segments {
			segments[i], _, _ = strings.Cut(s, ";")
		}
		return clean(decoded(strings.Join(segments, "/")))
	},
	"servlets: parameters cut, decoded, backslashes turned, merged, dots removed": func(raw string) string {
		segments := strings.Split(raw, "/")
		for i, s := range segments {
			segments[i], _, _ = strings.Cut(s, ";")
		}
		return clean(strings.ReplaceAll(decoded(strings.Join(segments, "/")), `\`, "/"))
	},
	"twice decoded": func(raw string) string { return decoded(decoded(raw)) },
	"backslashes turned": func(raw string) string {
		return clean(strings.ReplaceAll(decoded(raw), `\`, "/"))
	},
}

// clean keeps a trailing slash, like programs that distinguish the two paths.
func clean(p string) string {
	if c := path.Clean(p); c == "/" || !strings.HasSuffix(p, "/") {
		return c
	}
	return path.Clean(p) + "/"
}

func decoded(raw string) string {
	b, _ := tokenize(nil, []byte(raw))
	for i, c := range b {
		if c == keptSlash {
			b[i] = '/'
		}
	}
	settle(b)
	return string(b)
}

// checkReadingsOf checks what holds for every path.
func checkReadingsOf(t require.TestingT, raw string) {
	var r Readings
	if r.Read([]byte(raw)) != nil {
		return
	}
	require.LessOrEqual(t, r.Len(), Max)
	require.LessOrEqual(t, cap(r.buf)+cap(r.tokens)+cap(r.cut)+cap(r.step)+cap(r.reading)+cap(r.twice), 64*(len(raw)+16), "%q", raw)
	var all []string
	for i := range r.Len() {
		all = append(all, strings.ReplaceAll(string(r.At(i)), "\x00", "/"))
		require.Equal(t, byte('/'), r.At(i)[0], "%q", raw)
		require.NotContains(t, string(r.At(i)[1:]), "\x01", "%q", raw)
	}
	for name, read := range origins {
		if strings.Contains(name, "RFC") && (strings.Contains(raw, "//") || strings.ContainsAny(raw, "?#")) {
			continue // ResolveReference merges slashes, which RFC 3986 does not
		}
		require.Contains(t, all, read(raw), "%s reads %q", name, raw)
	}
}

// pieces are parts of hostile paths.
var pieces = []string{
	"/", "//", "a", "api", "v", ".", "..", "%2f", "%2F", "%2e", "%2E", ";", ";x=1", "%3b", `\`, "%5c", "%", "%zz", "%25", "%252f", "%252e", "%61", "\xff", " ", "%20", "%00",
}

func TestReadingsHoldWhatOriginsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkReadingsOf(t, "/"+strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 9).Draw(t, "pieces"), ""))
	})
}

// Programs that are omitted, because others read a path the same way, add no reading.
func TestEveryProgram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens, _ := tokenize(nil, []byte("/"+strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 9).Draw(t, "pieces"), "")))
		var some, every Readings
		var failed error
		for i := range 2 * 2 * 2 * orders * earliest * dotKinds {
			p := program{late: i%2 > 0, backslash: i/2%2 > 0, bare: i/4%2 > 0, strip: i / 8 % orders, merge: i / 8 / orders % earliest, dots: i / 8 / orders / earliest}
			failed = cmp.Or(failed, every.one(tokens, p))
		}
		if err := some.all(tokens); err != nil {
			require.Error(t, failed, "%v", err)
			return
		}
		require.NoError(t, failed)
		require.ElementsMatch(t, list(&every), list(&some))
	})
}

func FuzzReadings(f *testing.F) {
	for _, p := range pieces {
		f.Add("/a/" + p + "/b")
	}
	f.Fuzz(func(t *testing.T, raw string) { checkReadingsOf(t, raw) })
}

func TestReadAllocatesNothing(t *testing.T) {
	var r Readings
	raws := [][]byte{[]byte("/api/users/42"), []byte("/caf%C3%A9"), []byte("/@scope%2Fpkg"), []byte("/a/..;/b//c"), []byte("/fetch/https%253A%252F%252Fexample.com"),
		[]byte("/" + strings.Repeat("a%2f", 4000)), []byte("/" + strings.Repeat("%61", 100<<10))}
	read := func() {
		for _, raw := range raws {
			if err := r.Read(raw); err != nil {
				panic(err)
			}
		}
	}
	read()
	require.Zero(t, testing.AllocsPerRun(100, read))
	r.Reset()
	require.Zero(t, cap(r.buf), "large buffers are not kept")
}

func BenchmarkRead(b *testing.B) {
	for name, raw := range map[string]string{
		"plain":   "/api/users/42",
		"decoded": "/caf%C3%A9/42",
		"package": "/@scope%2Fpkg",
		"hostile": "/a/..;/b" + strings.Repeat("//", 250),
		"worst":   "/a%20" + strings.Repeat("//%25%2e", 1024) + "%2f",
	} {
		b.Run(name, func(b *testing.B) {
			var r Readings
			for b.Loop() {
				_ = r.Read([]byte(raw))
			}
		})
	}
}
