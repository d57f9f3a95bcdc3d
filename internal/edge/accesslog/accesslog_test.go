package accesslog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/testenv"
)

// discard is a logger for logs that no test reads.
var discard = slog.New(slog.DiscardHandler)

func opened(t *testing.T, c Config) (*Log, *atomic.Int64) {
	t.Helper()
	dropped := &atomic.Int64{}
	l, err := Open(c, discard, func(lines int) { dropped.Add(int64(lines)) })
	require.NoError(t, err)
	return l, dropped
}

// line returns what is written for a request.
func line(t *testing.T, c Config, target string, headers ...string) string {
	t.Helper()
	l := &Log{config: c, redactor: &Redactor{[]byte("key"), headersOf(c.Headers)}}
	var ctx fasthttp.RequestCtx
	ctx.Request.SetRequestURI(target)
	for i := 0; i < len(headers); i += 2 {
		ctx.Request.Header.Add(headers[i], headers[i+1])
	}
	ctx.SetStatusCode(429)
	ctx.SetBodyString("refused")
	began := time.Date(2026, 11, 22, 1, 2, 3, 456_789_000, time.FixedZone("", 3600))
	b := l.Append(nil, &Request{Began: began, Client: netip.MustParseAddr("203.0.113.7"), Tier: []byte("pro"), Trusted: true}, &ctx)
	return string(l.AppendEnd(b, 1500*time.Microsecond))
}

func TestCombined(t *testing.T) {
	require.Equal(t, `203.0.113.7 - - [22/Nov/2026:00:02:03 +0000] "GET /a%20b HTTP/1.1" 429 7 "-" "-"`+"\n", line(t, Config{}, "/a%20b"))
	got := line(t, Config{Format: Combined}, "/x?token=hunter2&empty=&token=%68unter2&&hunter2&hunter2==", "User-Agent", "a \"b\" \\ \x01 ü", "Referer", "https://ann:hunter2@example.com/p#hunter2?q=hunter2")
	require.NotContains(t, got, "hunter2")
	h := hashOf("hunter2")
	require.Equal(t, `203.0.113.7 - - [22/Nov/2026:00:02:03 +0000] "GET /x?token=~`+h+`&~`+hashOf("empty=")+`&token=~`+h+`&~`+h+`&~`+hashOf("hunter2==")+` HTTP/1.1" 429 7 `+
		`"https://example.com/p" "a \x22b\x22 \x5C \x01 \xC3\xBC"`+"\n", got)
}

func TestJSON(t *testing.T) {
	c := Config{Format: JSON, Headers: []string{"X-Plan", "X-Api-Key", "Authorization", "Cookie", "Referer", "X-Original-Url"}}
	got := line(t, c, "/x?k=hunter2", "Host", "api.example.com", "X-Plan", "free", "X-Plan", "pro", "X-Api-Key", "hunter2",
		"Authorization", "Bearer hunter2", "Cookie", "session=hunter2; theme=", "User-Agent", "\xffü\x01", "X-Other", "hunter2", "Referer", "/p?hunter2", "X-Original-Url", "/y?k=hunter2")
	require.NotContains(t, got, "hunter2")
	h := hashOf("hunter2")
	require.Equal(t, `{"time":"2026-11-22T00:02:03.456789Z","client":"203.0.113.7","method":"GET","host":"api.example.com","target":"/x?k=~`+h+`",`+
		`"status":429,"bytes":7,"tier":"pro","trusted":true,"user_agent":"\ufffdü\u0001","referer":"/p",`+
		`"headers":{"X-Plan":["free","pro"],"X-Api-Key":["~`+h+`"],"Authorization":["~`+hashOf("Bearer hunter2")+`"],"Cookie":["session=~`+h+`; theme="],"Referer":["/p"],"X-Original-Url":["/y"]},`+
		`"duration_ms":1.500}`+"\n", got)
}

func hashOf(s string) string {
	sum := sha256.Sum256([]byte("key" + s))
	return hex.EncodeToString(sum[:8])
}

// Nodes that share a key write the same hash, so their merged log can be replayed;
// without the key, a reader cannot check a list of likely secrets against it.
func TestHashKey(t *testing.T) {
	dir := t.TempDir()
	hash := func(key string) string {
		c := Config{File: filepath.Join(dir, "access.log")}
		if key != "" {
			c.HashKeyFile = filepath.Join(dir, "key")
			require.NoError(t, os.WriteFile(c.HashKeyFile, []byte(key), 0o600))
		}
		l, _ := opened(t, c)
		defer l.Close()
		return string(l.redactor.AppendHash(nil, []byte("hunter2")))
	}
	one := hash("a secret of many bytes\n")
	require.Equal(t, one, hash("a secret of many bytes"))
	require.NotEqual(t, one, hash("another secret of many bytes"))
	require.NotEqual(t, hash(""), hash(""))
}

func TestRotation(t *testing.T) {
	name := filepath.Join(t.TempDir(), "access.log")
	require.NoError(t, os.WriteFile(name, []byte("before\n"), 0o600))
	l, dropped := opened(t, Config{File: name})
	l.Add([]byte("one\n"))
	require.Eventually(t, func() bool { return read(t, name) == "before\none\n" }, testenv.Patience, time.Millisecond)
	require.NoError(t, os.Rename(name, name+".1"))
	l.Reopen()
	require.Eventually(t, func() bool { _, err := os.Stat(name); return err == nil }, testenv.Patience, time.Millisecond)
	l.Add([]byte("two\n"))
	l.Close()
	l.Add([]byte("late\n"))
	require.Equal(t, "two\n", read(t, name))
	require.Equal(t, "before\none\n", read(t, name+".1"))
	require.EqualValues(t, 1, dropped.Load(), "the late one")
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// A file that accepts nothing, as on a full disk or a hung mount, delays nobody: here a
// pipe that is never read.
func TestNeverBlocks(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	reader, err := os.OpenFile(name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer reader.Close()
	l, dropped := opened(t, Config{File: name})
	long := []byte(strings.Repeat("x", 999) + "\n")
	const lines = 4 * room / 1000
	for range lines { // returns, though nothing is read
		l.Add(long)
	}
	require.Positive(t, dropped.Load())
	require.Less(t, dropped.Load(), int64(lines))
	l.mu.Lock()
	require.LessOrEqual(t, len(l.waiting), room)
	l.mu.Unlock()
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	l.Close() // flushes what is queued
}

func TestWriteErrorsAreCounted(t *testing.T) {
	l, dropped := opened(t, Config{File: "/dev/full"})
	l.Add([]byte("lost\n"))
	l.Close()
	require.EqualValues(t, 1, dropped.Load())
}

func TestFaults(t *testing.T) {
	f := func(c Config, want ...string) {
		t.Helper()
		var got []string
		c.Validate(func(path, format string, args ...any) { got = append(got, path+": "+fmt.Sprintf(format, args...)) })
		require.Equal(t, want, got)
	}
	f(Config{File: "x"})
	f(Config{File: "x", Format: JSON, Headers: []string{"X-Plan"}})
	f(Config{}, "file: must name a file; leave access_log out to log no requests")
	f(Config{File: "x", Format: "xml"}, `format: must be combined or json (got "xml")`)
	f(Config{File: "x", Headers: []string{"X-Plan"}}, "headers: need format: json; the combined format has no place for them")
	f(Config{File: "x", Format: JSON, Headers: []string{"a b"}}, `headers[0]: must be the name of a header (got "a b")`)
	short := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(short, []byte("short\n"), 0o600))
	f(Config{File: "x", HashKeyFile: short}, "hash_key_file: "+short+" must hold a secret of at least 16 bytes, as of: openssl rand -hex 32 (got 5)")
	f(Config{File: "x", HashKeyFile: "/does/not/exist"}, "hash_key_file: open /does/not/exist: no such file or directory")
	_, err := Open(Config{File: "/does/not/exist"}, discard, nil)
	require.EqualError(t, err, "access_log.file: open /does/not/exist: no such file or directory")
}
