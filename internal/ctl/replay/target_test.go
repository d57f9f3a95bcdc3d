package replay

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/pkg/paths"
)

// asNode parses a request target with fasthttp, like internal/edge.
func asNode(t *testing.T, method, target string) (*fasthttp.URI, bool) {
	t.Helper()
	if bytes.IndexByte([]byte(target), '#') >= 0 {
		return nil, false
	}
	// Only parsing from the wire checks the target's form.
	var wire fasthttp.RequestHeader
	if err := wire.Read(reader(method + " " + target + " HTTP/1.1\r\nHost: api.example.com\r\n\r\n")); err != nil || string(wire.RequestURI()) != target {
		return nil, false
	}
	b := []byte(target)
	for bytes.HasPrefix(b, []byte("//")) {
		b = b[1:]
	}
	u := &fasthttp.URI{}
	return u, u.Parse([]byte("api.example.com"), b) == nil
}

// compareTarget requires that a replay parses a target like a node.
func compareTarget(t *testing.T, method, target string) {
	t.Helper()
	e := &entry{method: []byte(method), host: []byte("api.example.com")}
	err := e.setTarget([]byte(target), &arena{})
	u, ok := asNode(t, method, target)
	if !ok {
		return // a node answers 400; the host of a URL is not examined here
	}
	require.NoError(t, err, "%q", target)
	require.Equal(t, strings.TrimLeft(string(u.PathOriginal()), "/"), strings.TrimLeft(string(e.path), "/"), "%q", target)
	require.Equal(t, string(u.QueryString()), string(e.query), "%q", target)
	if bytes.IndexByte(u.Host(), '%') < 0 && bytes.IndexByte(e.host, '%') < 0 { // an encoded host is not a host name
		require.True(t, equalFold(e.host, string(u.Host())), "host %q of %q", e.host, target)
	}
	asked := map[string]int{"a": 0, "full": 0}
	first := map[string]string{}
	for k, v := range u.QueryArgs().All() {
		if asked[string(k)]++; asked[string(k)] == 1 {
			first[string(k)] = string(v)
		}
	}
	for name, want := range asked {
		if name == "" { // no rule can name it
			continue
		}
		value, n := paths.AppendQuery(nil, e.query, name)
		require.Equal(t, want, n, "%q in %q", name, target)
		require.Equal(t, first[name], string(value), "%q in %q", name, target)
	}
}

var targets = []string{
	"/", "/a/b", "//a", "///a//b/", "/a/../b", "/..", "/../..", "/a/..", "/a/.", "/a/./b", "/./a", "/.", "/..a", "/a/.../b", "/a/b/../../c",
	"/%41%2f%2e%2E/x", "/%", "/%4", "/%zz", "/%2", "/a%2F..", "/a+b?c+d=e+f", "/x?a=1&a=2", "/x?%61=1&a", "/x?a=%+", "/x?full=%2B+&&=&=v&a==",
	"/x??a=1", "/x?a=1?b", "*", "http://Other.example:81/a//b?a=1", "http://h", "http://h?a=1", "https://u:p@h/x", "http:///x", "1http://h/", "h:443",
	"/a#b", "/a\x01", "/redirect?to=http://h/x", "//h/x?u=a://b", "/a;b=c/d", "/a\\..\\b", "/\xff%ff", "http://h/%2e%2e/a", "", "?a=1",
}

func TestTargetsAreReadAsANodeReadsThem(t *testing.T) {
	for _, target := range targets {
		compareTarget(t, "GET", target)
		compareTarget(t, "CONNECT", target)
	}
	e := &entry{method: []byte("GET")}
	require.NoError(t, e.setTarget([]byte("//a%2Fb/../c?q"), &arena{}))
	require.Equal(t, "//a%2Fb/../c", string(e.path))
	for target, want := range map[string]string{
		"/a#b": errFragment.Error(), "/a\x7f": errControl.Error(), "": "the target is empty", "h:443": `target "h:443" is neither a path nor a URL`,
	} {
		require.EqualError(t, e.setTarget([]byte(target), &arena{}), want)
	}
}

func FuzzTarget(f *testing.F) {
	for _, target := range targets {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) { compareTarget(t, "GET", target) })
}

func TestHeadersAreFoundInAnyCase(t *testing.T) {
	e := &entry{host: []byte("api.example.com")}
	for _, h := range [][2]string{{"x-API-key", "a"}, {"X-Api-Key", "b"}, {"User-Agent", "old"}, {"user-agent", "new"}, {"X_Api[Key", "c"}, {"Content-Type", ""}} {
		e.headers = append(e.headers, header{[]byte(h[0]), []byte(h[1])})
	}
	for name, want := range map[string]struct {
		value string
		n     int
	}{"X-Api-Key": {"a", 2}, "User-Agent": {"new", 1}, "Host": {"api.example.com", 1}, "X_api{Key": {"", 0}, "Content-Type": {"", 0}, "Via": {"", 0}} {
		value, n := e.Header(name)
		require.Equal(t, want.value, string(value), name)
		require.Equal(t, want.n, n, name)
	}
}
