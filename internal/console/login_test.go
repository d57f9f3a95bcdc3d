package console

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/console/access"
	"github.com/weir-edge/weir/internal/testenv"
)

// public is the console's address in the browser.
const public = "https://weir.example.com"

// team is a console with a login, and a real issuer.
type team struct {
	t      *testing.T
	ran    *recorder
	server *httptest.Server
	gate   *access.Access
	folder string
	issuer string
	roles  string
	log    *lockedBuffer
	ahead  atomic.Int64 // how far the console's clock is ahead
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

// startTeam starts a console whose configuration ends with more.
func startTeam(t *testing.T, more string) *team {
	t.Helper()
	c := &team{t: t, ran: &recorder{out: "{}"}, folder: t.TempDir(), issuer: testenv.Issuer(t, public+"/auth/callback"), log: &lockedBuffer{},
		roles: `[{who: {groups: ["*"]}, may: reader}, {who: {groups: [sre]}, may: operator}, {who: {groups: [leads]}, may: admin}]`}
	c.write("secret", "secret\n")
	c.write("new.key", strings.Repeat("1", 64))
	c.write("old.key", strings.Repeat("2", 64))
	c.start("[old.key]", more)
	return c
}

func (c *team) write(name, text string) {
	require.NoError(c.t, os.WriteFile(filepath.Join(c.folder, name), []byte(text), 0o600))
}

// start restarts the console with these session keys.
func (c *team) start(keys, more string) {
	c.t.Helper()
	c.write("console.yaml", "listen: 127.0.0.1:0\npublic: "+public+"\noidc: {issuer: \""+c.issuer+"\", client_id: weir, client_secret_file: secret}\n"+
		"roles: "+c.roles+"\nsession: {key_files: "+keys+"}\ntokens: {file: tokens.json}\n"+more)
	config, err := access.Load(filepath.Join(c.folder, "console.yaml"))
	require.NoError(c.t, err)
	c.gate, err = access.New(config, "console@host")
	require.NoError(c.t, err)
	c.gate.Now = func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
	c.gate.Log = slog.New(slog.NewTextHandler(c.log, nil))
	ctx, cancel := context.WithCancel(c.t.Context())
	s := New(ctx, Config{Do: c.ran.do, Access: c.gate, Origin: config.Origin(), Log: c.gate.Log}, place)
	server := httptest.NewTLSServer(s.Handler())
	c.server = server
	c.t.Cleanup(func() { cancel(); server.Close() })
}

// browser returns one person's browser: its cookie jar, and a dialer that resolves the
// console's name.
func (c *team) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	require.NoError(c.t, err)
	return &http.Client{Jar: jar, Timeout: testenv.Patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == "weir.example.com:443" {
				addr = c.server.Listener.Addr().String()
			}
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}}}
}

var hidden = regexp.MustCompile(`name="id" value="([^"]+)"`)

// login logs a person in as a browser would. It returns the final address and its body.
func (c *team) login(b *http.Client, name, to string) (*url.URL, string) {
	c.t.Helper()
	id, form := c.form(b, to)
	resp, err := b.PostForm(form, url.Values{"id": {id}, "username": {name}, "password": {"password"}})
	require.NoError(c.t, err)
	return resp.Request.URL, c.body(resp)
}

// form opens the issuer's login form.
func (c *team) form(b *http.Client, to string) (id, at string) {
	c.t.Helper()
	resp, err := b.Get(public + "/auth/login?to=" + url.QueryEscape(to))
	require.NoError(c.t, err)
	text := c.body(resp)
	found := hidden.FindStringSubmatch(text)
	require.NotNil(c.t, found, "%s: %s", resp.Request.URL, text)
	return found[1], c.issuer + "/login/username"
}

func (c *team) body(resp *http.Response) string {
	text, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, resp.Body.Close())
	return string(text)
}

// ask sends a request to the API and returns its answer.
func (c *team) ask(b *http.Client, method, path, body string, change ...func(*http.Request)) (int, string) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, public+path, strings.NewReader(body))
	require.NoError(c.t, err)
	r.Header.Set("Content-Type", "application/json")
	for _, ch := range change {
		ch(r)
	}
	resp, err := b.Do(r)
	require.NoError(c.t, err)
	return resp.StatusCode, c.body(resp)
}

func (c *team) session(b *http.Client) (s Session) {
	c.t.Helper()
	status, text := c.ask(b, "GET", Prefix+"/session", "")
	require.Equal(c.t, 200, status, text)
	require.NoError(c.t, json.Unmarshal([]byte(text), &s))
	return s
}

func with(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(access.HeaderToken, token) }
}

// cookie returns the session cookie.
func (c *team) cookie(b *http.Client) *http.Cookie {
	at, _ := url.Parse(public)
	for _, k := range b.Jar.Cookies(at) {
		if k.Name == "__Host-weir-session" {
			return k
		}
	}
	return nil
}

func (c *team) give(b *http.Client, name, value string) {
	at, _ := url.Parse(public)
	b.Jar.SetCookies(at, []*http.Cookie{{Name: name, Value: value, Path: "/", Secure: true}})
}

// People log in at a real issuer. Its claims determine their roles and their names in
// histories. A logout ends the session everywhere.
func TestLogin(t *testing.T) {
	c := startTeam(t, "")
	b := c.browser()
	status, text := c.ask(b, "GET", Prefix+"/fleet", "")
	require.Equal(t, 401, status)
	require.Contains(t, text, `"login":"/auth/login"`)
	status, _ = c.ask(b, "GET", "/fleet", "")
	require.Equal(t, 200, status, "the page is the same for everyone")

	at, _ := c.login(b, "bob", "/client?client=203.0.113.7&path=%2Flogin")
	require.Equal(t, public+"/client?client=203.0.113.7&path=%2Flogin", at.String())
	bob := c.session(b)
	require.Equal(t, []any{"bob@example.com", "operator", "admin"}, []any{bob.User, bob.Role, bob.Needs["rules.apply"]})
	require.InDelta(t, 8, time.Until(bob.Until).Hours(), 0.5)
	status, text = c.ask(b, "POST", Prefix+"/pops/ams1/drain", `{"reason": "x"}`, with(bob.Token))
	require.Equal(t, 200, status, text)
	require.Equal(t, "bob@example.com", c.ran.calls[0].user)
	require.Contains(t, c.log.text(), "user=bob@example.com")

	// An admin, a person without a group, and one whose address is not verified.
	admin := c.browser()
	c.login(admin, "ana", "/rules")
	require.Equal(t, "admin", c.session(admin).Role)
	reader := c.browser()
	at, _ = c.login(reader, "carol", "//evil.example/")
	require.Equal(t, public+"/", at.String(), "a login leads to no other host")
	require.Equal(t, "reader", c.session(reader).Role)
	_, text = c.login(c.browser(), "eve", "/")
	require.Contains(t, text, "has not verified the address eve@example.com")

	// A logout also ends the session's streams and copies of its cookie.
	copied := c.cookie(b).Value
	follower := c.browser()
	c.give(follower, "__Host-weir-session", copied)
	require.Equal(t, "bob@example.com", c.session(follower).User)
	status, text = c.ask(b, "POST", Prefix+"/logout", "", with("another"))
	require.Equal(t, 403, status, text)
	status, text = c.ask(b, "POST", Prefix+"/logout", "", with(bob.Token))
	require.Equal(t, 200, status, text)
	require.Nil(t, c.cookie(b))
	for _, person := range []*http.Client{b, follower} {
		status, text = c.ask(person, "GET", Prefix+"/session", "")
		require.Equal(t, 401, status, text)
	}
	require.NotContains(t, c.log.text(), copied)
	require.NotContains(t, c.log.text(), "code=")
}

// Sessions survive a restart of the console, and a new key as long as the old one is listed.
func TestKeyRotation(t *testing.T) {
	c := startTeam(t, "")
	b := c.browser()
	c.login(b, "ana", "/")
	c.start("[new.key, old.key]", "")
	require.Equal(t, "ana@example.com", c.session(b).User)
	later := c.browser()
	c.login(later, "bob", "/")
	c.start("[new.key]", "")
	require.Equal(t, "bob@example.com", c.session(later).User)
	status, text := c.ask(b, "GET", Prefix+"/session", "")
	require.Equal(t, 401, status)
	require.Contains(t, text, "its key was removed")
	c.write("new.key", "short")
	require.ErrorContains(t, c.gate.Reload(), "must have 32 random bytes")
	require.Equal(t, "bob@example.com", c.session(later).User, "what cannot be read stays as it was")
	c.write("new.key", strings.Repeat("3", 64))
	require.NoError(t, c.gate.Reload())
	status, _ = c.ask(later, "GET", Prefix+"/session", "")
	require.Equal(t, 401, status)
}

// An issuer's answer is accepted once, in time, and only from the browser that began the login.
func TestForgedLogins(t *testing.T) {
	c := startTeam(t, "")
	b := c.browser()
	var callback *url.URL
	b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Host == "weir.example.com" && r.URL.Path == "/auth/callback" {
			callback = r.URL
			return http.ErrUseLastResponse
		}
		return nil
	}
	c.login(b, "ana", "/")
	require.NotNil(t, callback)
	refused := func(b *http.Client, query func(url.Values), saying string) {
		t.Helper()
		u := *callback
		q := u.Query()
		query(q)
		u.RawQuery = q.Encode()
		resp, err := b.Get(u.String())
		require.NoError(t, err)
		text := c.body(resp)
		require.Equal(t, 403, resp.StatusCode, text)
		require.Contains(t, text, saying)
		require.Nil(t, c.cookie(b))
	}
	same := func(url.Values) {}
	saved := func() (value string) {
		for _, k := range b.Jar.Cookies(callback) {
			if k.Name == "__Host-weir-login" {
				value = k.Value
			}
		}
		return value
	}()
	victim := c.browser()
	refused(victim, same, "begun no login here") // the attacker's answer in the victim's browser
	c.form(victim, "/")
	refused(victim, same, "to another login")
	refused(b, func(q url.Values) { q.Set("state", "x") }, "to another login")
	c.give(b, "__Host-weir-login", saved)
	refused(b, func(q url.Values) { q.Set("iss", "https://evil.example") }, "another issuer")
	forged := c.browser()
	c.give(forged, "__Host-weir-login", damaged(saved))
	refused(forged, same, "begun no login here")
	c.give(forged, "__Host-weir-login", saved)
	refused(forged, func(q url.Values) { q.Set("code", "x") }, "did not accept the code")
	c.give(forged, "__Host-weir-login", saved)
	refused(forged, same, "used before")

	text := c.log.text()
	require.Contains(t, text, "login failed")
	require.NotContains(t, text, callback.Query().Get("code"))

	// A login cookie is not accepted as a session cookie.
	c.give(forged, "__Host-weir-session", saved)
	status, body := c.ask(forged, "GET", Prefix+"/session", "")
	require.Equal(t, 401, status, body)
	status, _ = c.ask(c.browser(), "GET", "/auth/login", "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Mode", "no-cors") })
	require.Equal(t, 403, status)
}

// damaged returns a cookie with one character changed.
func damaged(cookie string) string {
	half := len(cookie) / 2
	other := "A"
	if cookie[half:half+1] == other {
		other = "B"
	}
	return cookie[:half] + other + cookie[half+1:]
}

// Callers that exceed a rate must wait.
func TestRate(t *testing.T) {
	c := startTeam(t, "rate: {session: 20, address: 60, login: 5}\n")
	b := c.browser()
	c.login(b, "ana", "/")
	count := func(path string, want int) (n int) {
		for range want + 100 {
			if status, text := c.ask(b, "GET", path, ""); status == 429 {
				require.Contains(t, text, "in a minute; wait")
				return n
			}
			n++
		}
		return n
	}
	require.LessOrEqual(t, count(Prefix+"/session", 20), 40, "twice the limit, if a minute ended meanwhile")
	status, _ := c.ask(b, "GET", "/fleet", "")
	require.Equal(t, 200, status, "the limit of a session is not that of its address")
	require.LessOrEqual(t, count("/auth/callback", 5), 10)
	require.LessOrEqual(t, count("/fleet", 60), 120)
}
