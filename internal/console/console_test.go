package console

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/console/access"
	"github.com/weir-edge/weir/internal/httpconns"
	"github.com/weir-edge/weir/internal/testenv"
)

var update = flag.Bool("update", false, "write the tables of docs/CONSOLE.md and testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is the address that the console under test claims to listen on.
var place = netip.MustParseAddrPort("127.0.0.1:8090")

// ran records one use of an operation.
type ran struct{ user, command, document, log string }

// recorder replaces the operations and returns what the test sets.
type recorder struct {
	mu    sync.Mutex
	calls []ran
	out   string // JSON, a look a line; "": nothing
	note  string
	err   error
	hold  bool // until ctx is done
}

func (c *recorder) do(ctx context.Context, call *Call) (any, error) {
	var log []byte
	if call.Log != nil {
		log, _ = io.ReadAll(call.Log)
	}
	c.mu.Lock()
	c.calls = append(c.calls, ran{call.User, call.command(), call.Document, string(log)})
	hold, out, err := c.hold, json.RawMessage(c.out), c.err
	if c.note != "" {
		call.Note(c.note)
	}
	c.mu.Unlock()
	for line := range bytes.Lines(out) {
		if call.Look != nil {
			_ = call.Look(json.RawMessage(line))
		}
	}
	if hold {
		<-ctx.Done()
	}
	if len(out) == 0 {
		return nil, err
	}
	return out, err
}

// failure is an error of an operation.
type failure struct{ reason, message string }

func (f failure) Error() string  { return f.message }
func (f failure) Reason() string { return f.reason }

func (c *recorder) called() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// changed counts the calls for requests, without those for feeds.
func (c *recorder) changed() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, call := range c.calls {
		if call.user != "" {
			n++
		}
	}
	return n
}

func newServer(t *testing.T, c *recorder) *Server {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return New(ctx, Config{Do: c.do, Access: access.Local("ana@desk"), Log: slog.New(slog.DiscardHandler)}, place)
}

// token returns the token of the local user, "" with a login.
func token(s *Server) string { return tokenOf(s.Access) }

func tokenOf(gate *access.Access) string {
	if gate.Login() {
		return ""
	}
	_, file, _ := gate.Offer("")
	defer gate.Withdraw()
	text, _ := os.ReadFile(file)
	return strings.TrimSpace(string(text))
}

// ask sends a request as the console's own page would, as modified by change.
func ask(s *Server, method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://"+place.String()+path, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", kindOf(body))
		r.Header.Set("Origin", "http://"+place.String())
	}
	r.Header.Set(access.HeaderToken, token(s))
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// form builds a multipart body from name=value parts.
func form(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		fmt.Fprintf(&b, "--form\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", name, value)
	}
	return b.String() + "--form--\r\n"
}

// kindOf returns the Content-Type of a body.
func kindOf(body string) string {
	if strings.HasPrefix(body, "--form") {
		return "multipart/form-data; boundary=form"
	}
	return "application/json"
}

// examples holds a valid request for each operation that takes input.
var examples = map[string]string{
	"rules.changes": "?from=3f2a", "policy.changes": "?from=none",
	"drain": `{"reason": "kernel update"}`, "rules.validate": `{"document": "rules: []"}`, "rules.diff": `{"document": "rules: []"}`,
	"rules.apply": `{"document": "rules: []", "message": "why", "if_version": "0123456789ab"}`, "rules.rollback": `{"to": "0123"}`,
	"limits.inspect": "?key=203.0.113.7", "limits.explain": "?client=203.0.113.7&path=/login", "limits.reset": `{"rule": "login", "client": "203.0.113.7"}`,
	"rules.test": form("region=eu-west", "document=rules: []", "log=1\n2\n"), "rules.test.recent": `{"document": "rules: []", "region": ["eu-west"]}`,
	"clients.show": "?network=203.0.113.7", "clients.recent": "?network=203.0.113.7", "clients.block": `{"network": "203.0.113.0/24", "reason": "scans", "for": "1h"}`,
	"clients.allow": `{"network": "203.0.113.7", "reason": "ours"}`, "clients.unblock": `{"network": "203.0.113.7"}`,
	"rules.rollout.start": `{"document": "rules: []", "message": "why", "waves": "1,rest", "soak": "10m"}`,
	"shedder.set":         `{"settings": ["enabled=false"], "for": "1h"}`, "shedder.off": `{"for": "1h"}`, "shedder.rollback": `{"to": "0123"}`,
	"dns.explain": "?client=203.0.113.0/24", "policy.rollback": `{"to": "0123"}`,
	"rules.undo": `{"of": ["0123"]}`, "shedder.undo": `{"of": ["0123"]}`, "policy.undo": `{"of": ["0123"]}`, "drain.undo": `{"of": ["0123"]}`, "clients.undo": `{"of": ["0123"]}`,
}

// request returns an example's path and body.
func (o *Operation) request() (path, body string) {
	path = Prefix + strings.ReplaceAll(o.Path, "{pop}", "ams1")
	if o.Method == http.MethodGet {
		return path + examples[o.ID], ""
	}
	if body = examples[o.ID]; body == "" {
		body = "{}"
	}
	return path, body
}

// callers lists requests that must be refused, with the expected status for an operation that
// reads and for one that writes.
var callers = []struct {
	name        string
	change      func(*http.Request)
	read, write int
}{
	{"as the page sends it", func(*http.Request) {}, 200, 200},
	{"a script without a browser's headers", func(r *http.Request) { r.Header.Del("Origin"); r.Header.Del("Sec-Fetch-Site") }, 200, 200},
	{"without a token", func(r *http.Request) { r.Header.Del(access.HeaderToken) }, 401, 401},
	{"with another token", func(r *http.Request) { r.Header.Set(access.HeaderToken, "AAAAAAAAAAAAAAAAAAAAAAAAAA") }, 401, 401},
	{"from a page of another origin", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403, 403},
	{"from a page in a sandbox (Origin: null)", func(r *http.Request) { r.Header.Set("Origin", "null") }, 403, 403},
	{"from another port of this host", func(r *http.Request) {
		r.Header.Set("Origin", "http://127.0.0.1:8091")
		r.Header.Set("Sec-Fetch-Site", "same-site")
	}, 403, 403},
	{"as an image or a script of another site", func(r *http.Request) { r.Header.Del("Origin"); r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403, 403},
	{"to another host (DNS rebinding)", func(r *http.Request) { r.Host = "evil.example:8090" }, 421, 421},
	{"to this address by another port", func(r *http.Request) { r.Host = "127.0.0.1:80" }, 421, 421},
}

// An operation that changes something requires the token. No operation runs for a page of
// another origin, or for a request that uses another name of this host. docs/CONSOLE.md has the
// table.
func TestUnauthorizedRequests(t *testing.T) {
	table := "| request | reads | changes |\n|---|---|---|\n"
	for _, caller := range callers {
		table += fmt.Sprintf("| %s | %d | %d |\n", caller.name, caller.read, caller.write)
		c := &recorder{out: "{}"}
		s := newServer(t, c)
		for _, o := range Operations() {
			if o.Streams && caller.read == 200 {
				continue // TestFeed
			}
			before := c.called()
			want := caller.read
			// Describing a document changes nothing, but a page of another origin must not do
			// it either.
			if o.Writes {
				want = caller.write
			}
			path, body := o.request()
			w := ask(s, o.Method, path, body, caller.change)
			require.Equal(t, want, w.Code, "%s: %s: %s", o.ID, caller.name, w.Body)
			if want != 200 {
				require.Equal(t, before, c.called(), "%s: %s", o.ID, caller.name)
				require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			}
		}
		for _, path := range []string{Prefix + "/session", Prefix + "/openapi.json"} {
			require.Equal(t, caller.read, ask(s, "GET", path, "", caller.change).Code, "%s: %s", path, caller.name)
		}
	}
	inDocs(t, "TestUnauthorizedRequests", table)
}

// inDocs compares a table of docs/CONSOLE.md with what a test found.
func inDocs(t *testing.T, test, table string) {
	t.Helper()
	begin, end := "<!-- made by "+test+" -->\n", "<!-- end -->"
	name := filepath.Join("..", "..", "docs", "CONSOLE.md")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	require.True(t, found && ended, "docs/CONSOLE.md has no place for the table of %s", test)
	next := before + begin + table + end + after
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(next), 0o644))
		return
	}
	require.Equal(t, next, string(text), "run go test ./internal/console -run %s -update", test)
}

func TestCommands(t *testing.T) {
	for id, want := range map[string]string{
		"fleet":               "regionctl status",
		"drain":               "regionctl drain ams1 --message 'kernel update'",
		"rules.apply":         "regionctl rules apply rules.yaml --message why --if-version 0123456789ab",
		"limits.inspect":      "regionctl limits inspect 203.0.113.7",
		"limits.reset":        "regionctl limits reset --rule login --client 203.0.113.7",
		"shedder.set":         "regionctl shedder set enabled=false --for 1h",
		"clients.block":       "regionctl clients block 203.0.113.0/24 --message scans --for 1h",
		"clients.recent":      "regionctl clients recent 203.0.113.7",
		"rules.test.recent":   "regionctl rules test --from-nodes rules.yaml --region eu-west",
		"shedder.off":         "regionctl shedder set enabled=false --for 1h",
		"rules.rollout.start": "regionctl rules apply rules.yaml --waves 1,rest --soak 10m --message why",
	} {
		for _, o := range Operations() {
			if o.ID != id {
				continue
			}
			c := &recorder{out: `{"a": 1}`, note: "warning: careful"}
			path, body := o.request()
			w := ask(newServer(t, c), o.Method, path, body)
			require.Equal(t, 200, w.Code, "%s", w.Body)
			var a Answer
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
			require.Equal(t, want, a.Command)
			if o.Rollout == "" {
				require.Equal(t, []string{"warning: careful"}, a.Notes)
				require.JSONEq(t, `{"a": 1}`, string(a.Result))
			}
			require.Equal(t, o.Document != "", c.calls[0].document != "")
		}
	}
	require.Equal(t, `'it'\''s'`, quote("it's"))
}

// No value becomes a flag, names a file, or reaches a command unless it is valid.
func TestBadInput(t *testing.T) {
	for _, bad := range []struct{ method, path, body, saying string }{
		{"GET", "/limits", "", "key: is missing"},
		{"GET", "/limits?key=--fleet%3D/etc/passwd", "", "key: must match"},
		{"GET", "/limits?key=header:X-Api-Key%3Dabc", "", "key: must match"},
		{"GET", "/limits?key=" + strings.Repeat("1", 2000), "", "key: must be at most"},
		{"GET", "/limits/explain?client=203.0.113.7&client=203.0.113.8", "", "client: is given 2 times"},
		{"GET", "/limits/explain?client=203.0.113.7&path=/a%3Ftoken%3Db", "", "path: must match"},
		{"GET", "/fleet?watch=1s", "", "watch: unknown; this takes region"},
		{"GET", "/rules/document?version=../x", "", "version: must match"},
		{"POST", "/shedder/set", `{"settings": ["/etc/passwd"]}`, "settings: must match"},
		{"POST", "/shedder/set", `{"settings": "enabled=false"}`, "settings: must be a list of strings"},
		{"POST", "/pops/ams1/drain", `{"reason": "a\nb"}`, "reason: must be one line"},
		{"POST", "/pops/ams1/drain", `{"reason": ""}`, "reason: is missing"},
		{"POST", "/pops/ams1/drain", `{"reason": "x", "pop": "iad1"}`, "pop: unknown"},
		{"POST", "/pops/ams1/drain", `{"reason": "x", "force": "yes"}`, "force: must be true or false"},
		{"POST", "/pops/-x/drain", `{"reason": "x"}`, "pop: must match"},
		{"POST", "/pops/ams1/drain?reason=x", `{}`, "goes into its body"},
		{"POST", "/clients/block", `{"network": "--force", "reason": "x"}`, "network: must match"},
		{"POST", "/clients/block", `{"network": "203.0.113.7"}`, "reason: is missing"},
		{"POST", "/rules/test", `{}`, "must be multipart/form-data"},
		{"POST", "/rules/test", form("document=rules: []"), "log: is missing"},
		{"POST", "/rules/test", form("log=1", "document=rules: []"), "document: is missing; it must precede the log"},
		{"POST", "/rules/test", form("against=/etc/passwd", "document=rules: []", "log=1"), "against: unknown"},
		{"POST", "/rules/test", form("region=--fleet=x", "document=rules: []", "log=1"), "region: must match"},
		{"POST", "/rules/test", form("document="+strings.Repeat("x", mostBody+1), "log=1"), "document: must be at most"},
		{"POST", "/rules/test", form(append(slices.Repeat([]string{"region=a"}, mostParts), "document=", "log=1")...), "at most 100 parts"},
		{"POST", "/rules/rollout/start", `{"document": "", "waves": "1;2"}`, "waves: must match"},
		{"POST", "/rules/rollout/start", `{"document": "", "canary": "--yes"}`, "canary: must match"},
		{"POST", "/rules/rollout/halt", `{"document": ""}`, "document: unknown; it takes no parameters"},
		{"POST", "/rules/apply", `{}`, "document: is missing"},
		{"POST", "/rules/apply", `[]`, "must be a JSON object"},
		{"POST", "/rules/apply", `{"document": 1}`, "document: must be a string"},
	} {
		c := &recorder{}
		w := ask(newServer(t, c), bad.method, Prefix+bad.path, bad.body)
		require.Equal(t, 400, w.Code, "%s %s", bad.path, bad.body)
		var p Problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		require.Contains(t, p.Detail, bad.saying, bad.path)
		require.Zero(t, c.called())
	}
	s := newServer(t, &recorder{})
	require.Equal(t, 413, ask(s, "POST", Prefix+"/rules/validate", `{"document": "`+strings.Repeat("x", mostBody)+`"}`).Code)
	require.Equal(t, 400, ask(s, "POST", Prefix+"/rules/validate", `{}`, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }).Code)
	require.Equal(t, 404, ask(s, "GET", Prefix+"/nothing", "").Code)
	require.Equal(t, 404, ask(s, "POST", Prefix+"/fleet", "{}").Code)
	require.Equal(t, 405, ask(s, "DELETE", Prefix+"/fleet", "").Code)
	require.Equal(t, 404, ask(s, "GET", "/nothing", "").Code)
}

// The reason of an operation's error decides the HTTP status.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		path, out, reason string
		want              int
	}{
		{"/fleet", "{}", "", 200}, {"/fleet", "{}", "partial", 200}, {"/fleet", "{}", "failed", 500}, {"/fleet", "", "usage", 422}, {"/fleet", "", "unreachable", 500},
		{"/fleet", "", "conflict", 409}, {"/fleet", "", "interrupted", 503}, {"/audit", `[{"faults": ["x"]}]`, "failed", 200}, {"/shedder", `[{"in_force": null}]`, "usage", 200}, {"/audit", `[]`, "failed", 500},
	} {
		r := &recorder{out: c.out, note: "warning: w"}
		if c.reason != "" {
			r.err = fmt.Errorf("wrapped: %w", failure{c.reason, "why"})
		}
		w := ask(newServer(t, r), "GET", Prefix+c.path, "")
		require.Equal(t, c.want, w.Code, "%+v", c)
		if c.want != 200 {
			var p Problem
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
			require.Equal(t, []any{"wrapped: why", c.reason, []string{"warning: w"}, c.want}, []any{p.Detail, p.Reason, p.Notes, p.Status})
		} else if c.reason == "usage" {
			require.Contains(t, w.Body.String(), `"notes":["warning: w","wrapped: why"]`)
		} else if c.reason != "" {
			require.Contains(t, w.Body.String(), `"incomplete":"wrapped: why"`)
		}
	}
	// An error of no known kind is a failure, as is a result that JSON cannot hold.
	require.Equal(t, 500, ask(newServer(t, &recorder{err: io.ErrUnexpectedEOF}), "GET", Prefix+"/fleet", "").Code)
	s := newServer(t, &recorder{})
	s.Do = func(context.Context, *Call) (any, error) { return math.NaN(), nil }
	require.Equal(t, 500, ask(s, "GET", Prefix+"/fleet", "").Code)
}

// An answer has nothing that a terminal would interpret.
func TestControls(t *testing.T) {
	s := newServer(t, &recorder{})
	s.Do = func(context.Context, *Call) (any, error) { return "a\u009b1m\u007fé", nil }
	require.Contains(t, ask(s, "GET", Prefix+"/fleet", "").Body.String(), `"a\u009b1m\u007fé"`)
}

// Closing the page ends an operation that only reads, but not one that has begun to change
// something.
func TestPageClosed(t *testing.T) {
	for _, id := range []string{"fleet", "rules.rollback"} {
		closed := make(chan struct{})
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		s := newServer(t, &recorder{})
		s.Do = func(ctx context.Context, _ *Call) (any, error) {
			cancel()
			<-closed
			ended <- ctx.Err()
			return nil, nil
		}
		for _, o := range Operations() {
			if o.ID == id {
				path, body := o.request()
				go func() { <-ctx.Done(); close(closed) }()
				ask(s, o.Method, path, body, func(r *http.Request) { *r = *r.WithContext(ctx) })
				if err := <-ended; o.Writes {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, context.Canceled)
				}
			}
		}
	}
}

// One operation serves all listeners of a feed, and ends when the last one leaves.
func TestFeed(t *testing.T) {
	c := &recorder{out: "{\"a\":1}\n{\"a\":2}\n", hold: true}
	s := newServer(t, c)
	url, client := serving(t, s)
	follow := func() (*bufio.Scanner, func()) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", url+Prefix+"/fleet/events", nil)
		require.NoError(t, err)
		resp, err := client.Do(r)
		require.NoError(t, err)
		require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
		return bufio.NewScanner(resp.Body), func() { _ = resp.Body.Close() }
	}
	sees := func(in *bufio.Scanner, line string) {
		for in.Scan() {
			if in.Text() == line {
				return
			}
		}
		require.Fail(t, "the stream ended", line)
	}
	one, leaveOne := follow()
	sees(one, `data: {"a":2}`)
	two, leaveTwo := follow()
	sees(two, "event: look")
	sees(two, `data: {"a":2}`)
	require.Equal(t, 1, c.called())
	leaveOne()
	leaveTwo()
	f := s.feeds["fleet.events"]
	require.Eventually(t, func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.listeners) == 0 }, testenv.Patience, time.Millisecond)
	three, leaveThree := follow()
	sees(three, `data: {"a":2}`)
	require.Equal(t, 2, c.called())
	leaveThree()
}

func TestRun(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	c, gate := &recorder{out: "{}\n", hold: true}, access.Local("ana@desk")
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{Do: c.do, Access: gate, Log: slog.New(slog.DiscardHandler)}, ln)
	}()
	require.Equal(t, httpconns.Max, testenv.Crowd(t, ln.Addr().String(), "/fleet", httpconns.Max+10), "idle connections are bounded")
	client := &http.Client{Transport: bearing{&http.Transport{DisableKeepAlives: true}, tokenOf(gate)}}
	resp, err := client.Get("http://" + ln.Addr().String() + Prefix + "/fleet/events")
	require.NoError(t, err)
	cancel()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err, "a stream ends with the console")
	require.NoError(t, resp.Body.Close())
	require.NoError(t, <-ended)
}

// vendored maps each library to the SHA-256 of its file in npm.
var vendored = map[string]string{
	"preact.mjs": "bdcbd9abdf2c77c5c45326eab42191e949222d479d0d5f69467387a77040cb55", "htm.mjs": "ab33dd3f38059b9be4d5f5350128eefb2356639c4e0bbe9d9e8b3ba75847e9e4", "signals-core.mjs": "0c80bc127d72ecb1496ef116ffddae75079829a3af01e7f417c8e5a6474c68b6",
}

func TestAssets(t *testing.T) {
	s := newServer(t, &recorder{})
	var size int
	files := os.DirFS("../webpage")
	require.NoError(t, fs.WalkDir(files, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		if base := filepath.Base(name); strings.Contains(name, "/vendor/") && filepath.Ext(name) == ".mjs" {
			sum := sha256.Sum256(text)
			require.Equal(t, vendored[base], hex.EncodeToString(sum[:]), base)
			_, err := fs.ReadFile(files, strings.TrimSuffix(name, ".mjs")+".LICENSE.txt")
			require.NoError(t, err, "%s has no license", base)
		}
		w := ask(s, "GET", "/"+name, "", func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip") })
		require.Equal(t, 200, w.Code)
		require.NotEmpty(t, w.Header().Get("Content-Type"), name)
		size += w.Body.Len()
		unpacked, err := gzip.NewReader(w.Body)
		require.NoError(t, err)
		got, err := io.ReadAll(unpacked)
		require.NoError(t, err)
		require.True(t, bytes.Equal(text, got))
		// No library makes requests to another host.
		if filepath.Ext(name) != ".txt" {
			for _, scheme := range []string{"http://", "https://"} {
				rest := strings.ReplaceAll(strings.ReplaceAll(string(text), "http://www.w3.org/", ""), "https://github.com/weir-edge/", "")
				require.NotContains(t, rest, scheme, name)
			}
		}
		again := ask(s, "GET", "/"+name, "", func(r *http.Request) { r.Header.Set("If-None-Match", w.Header().Get("ETag")) })
		require.Equal(t, http.StatusNotModified, again.Code)
		return nil
	}))
	require.LessOrEqual(t, size, 300_000, "bytes, compressed")
	for _, page := range Pages {
		w := ask(s, "GET", page, "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
		require.Equal(t, 200, w.Code, "a link to %s in a chat can be opened", page)
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "script-src 'self'")
		require.Empty(t, w.Header().Get("Strict-Transport-Security"), "it is by HTTP")
		require.NotContains(t, w.Body.String(), "<style")
		require.NotRegexp(t, `<script(>|[^>]*[^"/]>.)`, w.Body.String())
	}
}

// The description lists each operation, and its types match the Go types.
func TestDescription(t *testing.T) {
	type inner struct {
		At time.Time `json:"at,omitzero"`
	}
	type answer struct {
		inner
		List []string       `json:"list"`
		Next *answer        `json:"next,omitempty"`
		Map  map[string]int `json:"map"`
		Any  any            `json:"any"`
		None string         `json:"-"`
	}
	var d struct {
		OpenAPI    string `json:"openapi"`
		Paths      map[string]map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	require.NoError(t, json.Unmarshal(describe(Config{Answers: map[string]reflect.Type{"fleet": reflect.TypeFor[answer]()}}), &d))
	require.Equal(t, "3.1.0", d.OpenAPI)
	seen := map[string]bool{}
	for _, o := range Operations() {
		at := d.Paths[Prefix+o.Path][strings.ToLower(o.Method)]
		require.NotNil(t, at, o.ID)
		require.Equal(t, o.ID, at["operationId"])
		require.False(t, seen[o.ID], "%s twice", o.ID)
		seen[o.ID] = true
	}
	text, err := json.Marshal(d.Components.Schemas["console.answer"])
	require.NoError(t, err)
	require.JSONEq(t, `{"type": "object", "additionalProperties": false, "required": ["list", "map", "any"], "properties": {
		"at": {"type": "string", "format": "date-time"}, "list": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
		"next": {"anyOf": [{"$ref": "#/components/schemas/console.answer"}, {"type": "null"}]},
		"map": {"anyOf": [{"type": "object", "additionalProperties": {"type": "integer"}}, {"type": "null"}]}, "any": {}}}`, string(text))
}
