package paths

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAppendQuery(t *testing.T) {
	f := func(want string, n int, query string) {
		t.Helper()
		value, found := AppendQuery([]byte("before:"), []byte(query), "api_key")
		require.Equal(t, n, found, query)
		require.Equal(t, "before:"+want, string(value), query)
	}
	f("a b", 1, "x=1&%61pi_key=a+%62&y")
	f("", 1, "api_key")
	f("a", 2, "api_key=a&api_key=b")
	f("a=", 1, "api_key=a=")
	for _, other := range []string{"", "&", "=", "api_key2=a", "api_key2[]=a", "x[api_key]=a", "[x][api_key]=a", "x_api_key=a", "apikey=a", "api-key=a", "x=api_key", "%00api_key=a"} {
		f("", 0, other)
	}

	// Rack before version 3 and Perl's CGI
	f("a", 1, "x=1;api_key=a")
	f("a", 1, "api_key=a;1")
	f("a", 2, "api_key=a;api_key=b")

	// PHP
	for _, same := range []string{"api.key=a", "api+key=a", "api%20key=a", "api[key=a", "+api_key=a", "%20+api%2ekey=a", "api_key%00=a", "api.key%00x=a"} {
		f("a", 1, same)
		f("b", 2, "api_key=b&"+same)
	}

	// PHP, Rack and qs; ASP.NET
	for _, same := range []string{"api_key[]=a", "api_key[0]=a", "api_key%5b0%5D[x]=a", "api.key[]=a", "api_key]=a", "[api_key]=a", "]api_key=a", "Api_KEY=a",
		"%u0061pi_key=%U0061"} {
		f("a", 1, same)
		f("b", 2, "api_key=b&"+same)
	}
	f("\u20ac%u20a%uzzzz%u", 1, "api_key=%u20ac%u20a%uzzzz%u")
	f("a", 1, "api_key[size]=b&api_key=a&api_key[number]=c") // other parameters
}

func TestSameName(t *testing.T) {
	require.True(t, SameName([]byte("a.b"), "a.b"))
	require.True(t, SameName([]byte("a\x00b"), "a\x00b"))
	require.True(t, SameName([]byte("a[b]"), "a[b]"))
	require.False(t, SameName([]byte("a_b"), "a.b"))
	require.False(t, SameName([]byte("a^b"), "a~b"), "which differ as letter cases do")
	require.False(t, SameName(nil, "a"))
	require.Zero(t, testing.AllocsPerRun(10, func() { SameName([]byte(" api.key\x00x"), "api_key") }))
}
