package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/console/access"
)

// endpoint is an address of the API and a valid request for it.
type endpoint struct {
	name, method, path, body string
	least                    access.Role
	token                    bool // the request must carry a token
}

func endpoints() []endpoint {
	list := []endpoint{
		{"session", "GET", Prefix + "/session", "", access.Reader, false},
		{"openapi.json", "GET", Prefix + "/openapi.json", "", access.Reader, false},
	}
	for _, o := range Operations() {
		path, body := o.request()
		list = append(list, endpoint{o.ID, o.Method, path, body, o.Least, o.Writes})
	}
	list = append(list, endpoint{"tokens", "GET", Prefix + "/tokens", "", access.Reader, false},
		endpoint{"tokens.create", "POST", Prefix + "/tokens", `{"name": "ci", "may": "reader", "days": 1}`, access.Reader, true},
		endpoint{"tokens.revoke", "POST", Prefix + "/tokens/ci/revoke", "", access.Reader, true})
	return append(list, endpoint{"logout", "POST", Prefix + "/logout", "", access.Reader, true})
}

// Every endpoint of a console with a login refuses callers who lack the session, role or token
// for it. docs/CONSOLE.md links the table.
func TestEndpoints(t *testing.T) {
	c := startTeam(t, "rate: {session: 100000, address: 1000000, login: 100000}\n") // the test exceeds the default rates
	handler := c.server.Config.Handler
	names := map[access.Role]string{access.Reader: "carol", access.Operator: "bob", access.Admin: "ana"}
	// as sends a request with a new session of a role, because logout ends the session.
	as := func(e endpoint, role access.Role, change ...func(*http.Request)) int {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if strings.HasSuffix(e.path, "/events") {
			cancel() // after the stream's first line
		}
		r := httptest.NewRequestWithContext(ctx, e.method, public+e.path, strings.NewReader(e.body))
		r.Header.Set("Content-Type", kindOf(e.body))
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if e.method == http.MethodPost {
			r.Header.Set("Origin", public)
		}
		if role != access.None {
			b := c.browser()
			c.login(b, names[role], "/")
			r.AddCookie(c.cookie(b))
			r.Header.Set(access.HeaderToken, c.session(b).Token)
		}
		for _, ch := range change {
			ch(r)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	other := c.browser()
	c.login(other, "ana", "/")
	ended := c.browser()
	c.login(ended, "ana", "/")
	replayed := c.cookie(ended).Value
	status, text := c.ask(ended, "POST", Prefix+"/logout", "", with(c.session(ended).Token))
	require.Equal(t, 200, status, text)
	cookie := func(value string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Del("Cookie")
			r.AddCookie(&http.Cookie{Name: "__Host-weir-session", Value: value})
		}
	}
	forged := damaged(replayed)
	table := "| endpoint | least role | nobody | a lesser role | the role | no token | another's token | another origin | another host | forged cookie | cookie after logout | expired cookie |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n"
	for _, e := range endpoints() {
		before := c.ran.changed()
		lesser := "–"
		if e.least > access.Reader {
			lesser = fmt.Sprint(as(e, e.least-1))
		}
		row := []any{e.name, e.least, as(e, access.None), lesser}
		bad := []any{
			as(e, e.least, func(r *http.Request) { r.Header.Del(access.HeaderToken) }),
			as(e, e.least, with(c.session(other).Token)),
			as(e, e.least, func(r *http.Request) {
				r.Header.Set("Origin", "https://evil.example")
				r.Header.Set("Sec-Fetch-Site", "cross-site")
			}),
			as(e, e.least, func(r *http.Request) { r.Host = "evil.example" }),
			as(e, e.least, cookie(forged)), as(e, e.least, cookie(replayed)),
		}
		value := func() (v string) {
			b := c.browser()
			c.login(b, names[e.least], "/")
			return c.cookie(b).Value
		}()
		c.ahead.Store(int64(9 * time.Hour))
		bad = append(bad, as(e, access.None, cookie(value)))
		c.ahead.Store(0)
		if e.token {
			require.Equal(t, before, c.ran.changed(), "%s did something for a stranger", e.name)
		}
		row = append(row, as(e, e.least))
		row = append(row, bad...)
		for i, cell := range row {
			table += fmt.Sprintf("| %v ", cell)
			refused := i == 2 || i == 3 && cell != "–" || i >= 7 || e.token && i >= 5
			if code := fmt.Sprint(cell); i >= 2 && refused {
				require.Contains(t, []string{"401", "403", "421"}, code, "%s, column %d", e.name, i)
			} else if i == 4 {
				require.Equal(t, "200", code, e.name)
			}
		}
		table += "|\n"
	}
	if *update {
		require.NoError(t, os.WriteFile("testdata/endpoints.txt", []byte(table), 0o644))
		return
	}
	written, err := os.ReadFile("testdata/endpoints.txt")
	require.NoError(t, err)
	require.Equal(t, table, string(written), "run go test ./internal/console -run TestEndpoints -update")
}

// The description lists each endpoint of the table.
func TestEndpointsAreDescribed(t *testing.T) {
	var d struct{ Paths map[string]map[string]any }
	require.NoError(t, json.Unmarshal(describe(Config{}), &d))
	for _, e := range endpoints() {
		path, _, _ := strings.Cut(strings.NewReplacer("/ams1/", "/{pop}/", "/ci/", "/{name}/").Replace(e.path), "?")
		require.True(t, e.name == "openapi.json" || d.Paths[path][strings.ToLower(e.method)] != nil, "%s", e.path)
	}
}
