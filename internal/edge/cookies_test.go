package edge

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

// Whatever form a client gives its cookie, origins that find the session in it find it counted.
func TestCookieFormsAreNoBypass(t *testing.T) {
	n := start(t, setup{rules: `rules: [{id: session, key: ["cookie:session"], limit: 1, window: 1h}]`})
	status := func(cookie string) int {
		t.Helper()
		answers := n.raw(lines("GET / HTTP/1.1", "Host: x", "Cookie: "+cookie, "Connection: close"))
		require.Len(t, answers, 1, cookie)
		return answers[0].status
	}
	require.Equal(t, 200, status("session=abc"))
	for _, same := range []string{
		"session=abc", "session=abc,1", "session=abc, 2; x=1", "x=1,session=abc", "x=1, session=abc", `session="abc",1`, "%73ession=abc", "Session=abc", "session[0]=abc", "x=1;\tsession=abc", "session\t=abc", "session=abc\t; x=1", "x=1 session=abc", "x=1;\xa0session=abc\xa0", "x=1;\u00a0session=abc\u00a0",
		`session="abc"`, `session="abc"` + "\t", `session="\141bc"`, `session="abcZ`, "session=%61bc", "session=%61%62%63",
	} {
		require.Equal(t, 429, status(same), same)
	}
	require.Equal(t, 400, status("session=abc;\tsession=other"))
	require.Equal(t, 400, status("session=other;\tsession=abc"))
	require.Equal(t, 400, status("session=other session=abc")) // of which Python takes the last
	require.Equal(t, 400, status("session=other,session=abc"))
	require.Equal(t, 200, status("session=other"))
	require.Equal(t, 200, status("session=abc%2C1"), "an encoded comma is part of the value")
}

// Nor does white space around a header's value, of which Python and JavaScript strip more than HTTP does.
func TestHeaderFormsAreNoBypass(t *testing.T) {
	n := start(t, setup{rules: `
rules:
  - {id: key, match: {paths: [/key]}, key: ["header:X-Api-Key"], limit: 1, window: 1h}
  - {id: plan, match: {headers: {X-Plan: free}}, key: [], limit: 1, window: 1h}`})
	status := func(path, header string) int {
		t.Helper()
		answers := n.raw(lines("GET "+path+" HTTP/1.1", "Host: x", header, "Connection: close"))
		require.Len(t, answers, 1, header)
		return answers[0].status
	}
	require.Equal(t, 200, status("/key", "X-Api-Key: abc"))
	require.Equal(t, 200, status("/", "X-Plan: free"))
	for _, same := range []string{"%s", " \t%s\t ", "\xa0%s", "%s\xa0", "\x85%s \xa0\x85", "\u00a0%s\u2003"} {
		require.Equal(t, 429, status("/key", "X-Api-Key: "+fmt.Sprintf(same, "abc")), "%q", same)
		require.Equal(t, 429, status("/", "X-Plan: "+fmt.Sprintf(same, "free")), "%q", same)
	}
	require.Equal(t, 200, status("/key", "X-Api-Key: a\xa0bc"))
}

// Nor does a parameter whose name, end or encoding PHP, Rack, qs or ASP.NET read differently.
func TestParameterFormsAreNoBypass(t *testing.T) {
	n := start(t, setup{rules: `rules: [{id: key, key: ["query:api_key"], limit: 1, window: 1h}]`})
	require.Equal(t, 200, n.get("/?api_key=abc").status)
	for _, same := range []string{
		"api_key=abc", "%61pi_key=%61bc", "api.key=abc", "api+key=abc", "api[key=abc", "+api_key=abc", "api_key%00x=abc", "x=1;api_key=abc", "api_key=abc;1",
		"api_key[]=abc", "api_key[0]=abc", "api_key%5B%5D=abc", "api.key[1][y]=abc", "[api_key]=abc", "API_Key=abc", "%u0061pi_key=a%u0062%U0063",
	} {
		require.Equal(t, 429, n.get("/?"+same).status, same)
	}
	require.Equal(t, 400, n.get("/?api_key=other&api.key=abc").status)
	require.Equal(t, 400, n.get("/?api_key=other;api_key=abc").status)
	require.Equal(t, 400, n.get("/?api_key=other&api_key[]=abc").status)
	require.Equal(t, 400, n.get("/?[api_key]=abc&API_KEY=other").status)
	require.Equal(t, 200, n.get("/?api_key=other").status)
}

// A rule that reads a cookie changes none.
func TestOriginsGetCookiesAsSent(t *testing.T) {
	seen := make(chan []string, 1)
	origin := originOfBoth(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header["Cookie"] })
	for _, scheme := range []string{"http", "h2c"} {
		n := start(t, setup{rules: `rules: [{id: session, key: ["cookie:session"], limit: 9, window: 1h}]`, config: func(c *config.Config) {
			c.Upstreams = []config.Upstream{{URL: scheme + "://" + origin}}
		}})
		const sent = `prefs={"a":1}; session="abc"; path=a\b; bare`
		require.Equal(t, []int{200}, statuses(n.raw(lines("GET / HTTP/1.1", "Host: x", "Cookie: "+sent, "Connection: close"))))
		require.Equal(t, []string{sent}, <-seen, scheme)
	}
}
