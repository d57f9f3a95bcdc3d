package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// member logs a person in, and returns what sends their requests.
func (c *team) member(name string) func(method, path, body string) (int, string) {
	c.t.Helper()
	b := c.browser()
	c.login(b, name, "/")
	token := c.session(b).Token
	return func(method, path, body string) (int, string) {
		c.t.Helper()
		return c.ask(b, method, Prefix+path, body, with(token))
	}
}

// issue creates a token, and returns what sends requests with it.
func (c *team) issue(by func(method, path, body string) (int, string), want string) (token string, send func(method, path, body string) (int, string)) {
	c.t.Helper()
	status, text := by("POST", "/tokens", want)
	require.Equal(c.t, 200, status, text)
	var created CreatedToken
	require.NoError(c.t, json.Unmarshal([]byte(text), &created))
	return created.Token, func(method, path, body string) (int, string) {
		c.t.Helper()
		return c.ask(&http.Client{Transport: c.browser().Transport}, method, Prefix+path, body, with(created.Token))
	}
}

// A token does what its creator may, within its own bounds, until it expires or is revoked.
// Histories name it and its creator. Only its hash is stored.
func TestTokens(t *testing.T) {
	c := startTeam(t, "rate: {session: 1000, address: 10000, login: 1000}\n")
	ana, bob, carol := c.member("ana"), c.member("bob"), c.member("carol")
	drain := func(send func(method, path, body string) (int, string)) (int, string) {
		return send("POST", "/pops/ams1/drain", `{"reason": "x"}`)
	}
	refused := func(want int, saying string, status int, text string) {
		t.Helper()
		require.Equal(t, want, status, text)
		require.Contains(t, text, saying)
	}
	secret, ci := c.issue(bob, `{"name": "ci", "may": "operator", "days": 30}`)
	require.Regexp(t, `^weir\.[A-Z2-7]{26}$`, secret)
	status, text := drain(ci)
	require.Equal(t, 200, status, text)
	require.Equal(t, "token:ci (by bob@example.com)", c.ran.calls[0].user)
	status, text = ci("GET", "/fleet", "")
	require.Equal(t, 200, status, text)
	_, bounded := c.issue(ana, `{"name": "eu", "may": "admin", "regions": ["eu-west"], "kinds": ["rules"], "days": 90}`)
	status, text = bounded("POST", "/rules/apply", `{"document": "rules: []", "region": ["eu-west"]}`)
	require.Equal(t, 200, status, text)
	status, text = bounded("POST", "/rules/apply", `{"document": "rules: []"}`)
	refused(403, "token:eu (by ana@example.com) is admin for rules in eu-west; name only eu-west", status, text)
	status, text = drain(bounded)
	refused(403, "this needs the role operator for drain", status, text)

	// A token is a credential of machines: it creates none, and ends none.
	for _, path := range []string{"/tokens", "/tokens/ci/revoke"} {
		status, text = ci("POST", path, `{"name": "more", "may": "reader", "days": 1}`)
		refused(403, "a token can neither create tokens nor revoke them", status, text)
	}
	status, text = ci("GET", "/tokens", "")
	refused(403, "neither create tokens", status, text)
	for body, saying := range map[string]string{
		`{"name": "x", "may": "admin", "days": 1}`:                                                        "a token may do at most what you may, and you are operator (asked for admin)",
		`{"name": "x", "may": "operator", "days": 91}`:                                                    "days: must be 1 to 90",
		`{"name": "x", "may": "operator"}`:                                                                "days: must be 1 to 90",
		`{"name": "x y", "may": "operator", "days": 1}`:                                                   "name: must be 1 to 40 letters",
		`{"name": "x", "days": 1}`:                                                                        "may: must be reader, operator or admin",
		`{"name": "x", "may": "root", "days": 1}`:                                                         "may: must be reader, operator or admin",
		`{"name": "x", "may": "operator", "days": 1, "kinds": ["rule"]}`:                                  "did you mean rules?",
		`{"name": "x", "may": "operator", "days": 1, "regions": []}`:                                      "leave it out for all",
		`{"name": "x", "may": "operator", "days": 1, "by": "ana@example.com"}`:                            "unknown field",
		`{"name": "ci", "may": "operator", "days": 1}`:                                                    "has a token ci already",
		`{"name": "` + strings.Repeat("x", 70_000) + `"}`:                                                 "too large",
		`{"name": "x", "may": "operator", "days": 1, "regions": ["a` + strings.Repeat(`","a`, 64) + `"]}`: "at most 64",
	} {
		status, text = bob("POST", "/tokens", body)
		require.GreaterOrEqual(t, status, 400, body)
		require.Contains(t, text, saying)
	}
	status, text = c.ask(c.browser(), "POST", Prefix+"/tokens", `{"name": "x", "may": "reader", "days": 1}`)
	require.Equal(t, 401, status, text)

	// People see and revoke theirs, admins all.
	for send, want := range map[*func(string, string, string) (int, string)]string{&bob: `"ci"`, &ana: `"ci" "eu"`, &carol: ""} {
		status, text = (*send)("GET", "/tokens", "")
		require.Equal(t, 200, status, text)
		require.NotContains(t, text, "weir.")
		require.NotContains(t, text, "sha256")
		var list TokenList
		require.NoError(t, json.Unmarshal([]byte(text), &list))
		var names []string
		for _, one := range list.Tokens {
			names = append(names, fmt.Sprintf("%q", one.Name))
		}
		require.Equal(t, want, strings.Join(names, " "))
	}
	status, text = carol("POST", "/tokens/ci/revoke", "")
	refused(404, "you have no token", status, text)
	status, text = ana("POST", "/tokens/ci/revoke", "")
	require.Equal(t, 200, status, text)
	status, text = drain(ci)
	refused(401, "was revoked", status, text)

	// What is stored is of no use to its reader, and outlasts the console.
	file := filepath.Join(c.folder, "tokens.json")
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(kept), secret)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	c.start("[old.key]", "")
	status, text = bounded("GET", "/fleet", "")
	require.Equal(t, 200, status, text)
	require.NotContains(t, c.log.text(), secret)
	c.ahead.Store(int64(91 * 24 * time.Hour))
	status, text = bounded("GET", "/fleet", "")
	refused(401, "has expired", status, text)
}

// A token's stream ends when it is revoked, and its rights with those of its creator.
func TestTokensOfLeavers(t *testing.T) {
	c := startTeam(t, "rate: {session: 1000, address: 10000, login: 1000}\n")
	bob := c.member("bob")
	_, ci := c.issue(bob, `{"name": "ci", "may": "operator", "days": 30}`)
	secret, _ := c.issue(bob, `{"name": "watch", "may": "reader", "days": 30}`)
	r, err := http.NewRequestWithContext(t.Context(), "GET", public+Prefix+"/fleet/events", nil)
	require.NoError(t, err)
	with(secret)(r)
	resp, err := (&http.Client{Transport: c.browser().Transport}).Do(r)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	status, text := bob("POST", "/tokens/watch/revoke", "")
	require.Equal(t, 200, status, text)
	c.body(resp) // until it ends

	c.roles = `[{who: {groups: ["*"]}, may: reader}]`
	c.start("[old.key]", "")
	status, text = ci("POST", "/pops/ams1/drain", `{"reason": "x"}`)
	require.Equal(t, 403, status, text)
	require.Contains(t, text, "token:ci (by bob@example.com) is reader")

	// A damaged file keeps the console from starting, and the tokens as they were.
	c.write("tokens.json", "{")
	require.ErrorContains(t, c.gate.Reload(), "tokens.file")
	status, text = c.member("bob")("POST", "/tokens", `{"name": "x", "may": "reader", "days": 1}`)
	require.Equal(t, 500, status, text)
	status, text = ci("GET", "/fleet", "")
	require.Equal(t, 200, status, text)
}
