package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/console"
	"github.com/weir-edge/weir/internal/console/access"
	"github.com/weir-edge/weir/pkg/region/consul"
)

var ticketIn = regexp.MustCompile(`url=(http://[^"#]+)/fleet#ticket=(\w+)"`)

// Only the user who started a console without --config can use it, by files that others cannot
// read. The page of one file opens it once; then the file has another.
func TestOnlyTheStartingUserOpensAConsole(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	ctx, cancel := context.WithCancel(t.Context())
	out, printed := io.Pipe()
	ended := make(chan error, 1)
	p := f.program(strings.NewReader(""), printed, io.Discard)
	go func() {
		ended <- run(ctx, p, []string{"console", "--listen", "127.0.0.1:0", "--fleet", f.file, "-o", "json"})
	}()
	var at struct {
		URL, Page string
		TokenFile string `json:"token_file"`
	}
	require.NoError(t, json.NewDecoder(out).Decode(&at))
	go func() { _, _ = io.Copy(io.Discard, out) }()
	taken := strings.TrimPrefix(at.URL, "http://")
	another := f.program(strings.NewReader(""), io.Discard, io.Discard)
	require.ErrorContains(t, run(ctx, another, []string{"console", "--listen", taken, "--fleet", f.file}), "--listen: listen tcp "+taken+": bind: address already in use; stop the program that uses it ")
	ask := func(method, path string, headers ...string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, at.URL+console.Prefix+path, http.NoBody)
		require.NoError(t, err)
		for _, h := range headers {
			if name, value, is := strings.Cut(h, ": "); is {
				r.Header.Set(name, value)
			}
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Empty(t, resp.Cookies())
		return resp.StatusCode, string(text)
	}
	for _, path := range []string{"/session", "/fleet", "/fleet/events", "/rules/document", "/openapi.json"} {
		for _, token := range []string{"", access.HeaderToken + ": guessed"} {
			status, text := ask("GET", path, token)
			require.Equal(t, 401, status, "%s %q: %s", path, token, text)
		}
	}

	for name, mode := range map[string]os.FileMode{at.Page: 0o600, at.TokenFile: 0o600, filepath.Dir(at.Page): 0o700 | os.ModeDir} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode(), name)
	}
	text, err := os.ReadFile(at.TokenFile)
	require.NoError(t, err)
	token := access.HeaderToken + ": " + strings.TrimSpace(string(text))
	status, session := ask("GET", "/session", token)
	require.Equal(t, 200, status, session)
	status, fleet := ask("GET", "/fleet", token)
	require.Equal(t, 200, status, fleet)

	ticket := func() string {
		text, err := os.ReadFile(at.Page)
		require.NoError(t, err)
		found := ticketIn.FindStringSubmatch(string(text))
		require.NotNil(t, found, "%s", text)
		require.Equal(t, at.URL, found[1])
		return access.HeaderTicket + ": " + found[2]
	}
	first := ticket()
	for _, wrong := range []string{"", access.HeaderTicket + ": guessed", first + "x"} {
		status, text := ask("POST", "/open", wrong)
		require.Equal(t, 401, status, text)
	}
	status, opened := ask("POST", "/open", first)
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"token": "`+strings.TrimPrefix(token, access.HeaderToken+": ")+`"}`, opened)
	status, text2 := ask("POST", "/open", first)
	require.Equal(t, 401, status)
	require.Contains(t, text2, "used before")
	second := ticket()
	status, _ = ask("POST", "/open", second, "Origin: http://evil.example")
	require.Equal(t, 403, status)
	status, _ = ask("POST", "/open", second)
	require.Equal(t, 200, status)

	cancel()
	<-ended
	require.NoError(t, printed.Close())
	require.NoDirExists(t, filepath.Dir(at.Page))
}

// A console whose configuration has a key signs what it publishes. One that cannot publish where
// nodes require signatures says so when it starts.
func TestConsoleSigns(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	key, id, keys := f.key(t)
	f.edge(t, "us-east", "iad1", "iad1-1", func(s *stub) { s.signed = id })
	serve := func(config string, use func(at, token string), log func(string) bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		out, printed := io.Pipe()
		said, logged := io.Pipe()
		lines := make(chan string, 100)
		go func() {
			for s := bufio.NewScanner(said); s.Scan(); {
				lines <- s.Text()
			}
			close(lines)
		}()
		ended := make(chan error, 1)
		go func() {
			ended <- run(ctx, f.program(strings.NewReader(""), printed, logged), []string{"console", "--config", write(t, "console.yaml", config), "--fleet", f.file, "-o", "json"})
			_, _ = printed.Close(), logged.Close()
		}()
		var at consoleAt
		require.NoError(t, json.NewDecoder(out).Decode(&at))
		go func() { _, _ = io.Copy(io.Discard, out) }()
		text, err := os.ReadFile(at.TokenFile)
		require.NoError(t, err)
		use(at.URL, strings.TrimSpace(string(text)))
		if log != nil {
			for line := range lines {
				if log(line) {
					break
				}
			}
		}
		cancel()
		var rest string
		for line := range lines {
			rest += line
		}
		require.NoError(t, <-ended)
		if log == nil {
			require.NotContains(t, rest, "cannot publish")
		}
	}
	apply := func(at, token string) (int, string) {
		body := `{"document": ` + text(t, rulesOf(1)) + `}`
		r, err := http.NewRequestWithContext(t.Context(), "POST", at+console.Prefix+"/rules/apply", strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set(access.HeaderToken, token)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	serve("listen: 127.0.0.1:0", func(at, token string) {
		status, text := apply(at, token)
		require.Equal(t, 500, status, text)
		require.Contains(t, text, "accepts only what is signed by key "+id)
	}, func(line string) bool {
		return strings.Contains(line, "this console cannot publish here") && strings.Contains(line, "us-east")
	})
	serve("listen: 127.0.0.1:0\nsign: {key_file: "+key+"}", func(at, token string) {
		status, text := apply(at, token)
		require.Equal(t, 200, status, text)
	}, nil)
	p := consul.NewPointer([]byte(rulesOf(1)), "", time.Time{})
	require.NoError(t, f.signed(t, keys, f.rules("us-east"), "rules", "us-east", &p))
}
