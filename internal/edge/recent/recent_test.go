package recent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// fields are the headers of a request.
type fields map[string][][]byte

// Header implements decide.Fields.
func (f fields) Header(name string) [][]byte { return f[name] }

// Cookie implements decide.Fields.
func (f fields) Cookie(string) ([]byte, int) { return nil, 0 }

var began = time.Date(2026, 11, 22, 1, 2, 3, 456_789_000, time.UTC)

func ring(t testing.TB, c Config) *Ring {
	t.Helper()
	if c.Share == 0 {
		c.Share = 1
	}
	if c.Keep == 0 {
		c.Keep = fewest
	}
	c.Validate(func(path, format string, args ...any) { require.Fail(t, path, format, args) })
	g, err := New(c)
	require.NoError(t, err)
	return g
}

func request(client, path, query string, f fields) *decide.Request {
	if f == nil {
		f = fields{}
	}
	return &decide.Request{Began: began, Client: netip.MustParseAddr(client), Method: []byte("GET"), Host: []byte("example.com"), ForwardedPath: []byte(path), Query: []byte(query), Fields: f}
}

func read(t testing.TB, g *Ring, f Filter) (list []adminapi.Recent, about *Found, text string) {
	t.Helper()
	if f.Most == 0 {
		f.Most = most
	}
	var b strings.Builder
	require.NoError(t, g.Find(f, func(found *Found) {
		about = found
		require.NoError(t, g.Lines(found, func(line []byte) error {
			var r adminapi.Recent
			require.NoError(t, json.Unmarshal(line, &r), "%s", line)
			require.True(t, strings.HasPrefix(string(line), `{"time":"2026-11-22T01:02:03.`), "%s", line)
			list = append(list, r)
			b.Write(line)
			return nil
		}))
	}))
	return list, about, b.String()
}

func TestLine(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	require.NoError(t, os.WriteFile(key, []byte("a secret of many bytes\n"), 0o600))
	g := ring(t, Config{Headers: []string{"x-api-key", "X-Plan", "Cookie"}, HashKeyFile: key})
	r := request("203.0.113.7", "/a%20b\"", "token=hunter2&empty=&hunter2", fields{"X-Api-Key": {[]byte("hunter2")}, "X-Plan": {[]byte("free"), []byte("pro")}, "Cookie": {[]byte("session=hunter2; hunter2")}, "Authorization": {[]byte("hunter2")}})
	r.Tier, r.Trusted = []byte("pro"), true
	limit := &limiter.Limit{Rule: "per-client", Limit: 1}
	r.Match = rules.Match{Rules: []*rules.Compiled{{ID: "per-client"}, {ID: "login"}}, Checks: []limiter.Check{{Limit: limit}, {Limit: limit}}}
	r.Decision = limiter.Decision{Results: []limiter.Result{{Source: limiter.SourceRedis}, {Source: limiter.SourceRedis}}}
	g.Put(r, decide.Limited)
	require.EqualValues(t, 1, r.RecentID)
	g.Ended(r.RecentID, 429, 1500*time.Microsecond)
	g.Ended(r.RecentID+uint64(fewest), 200, time.Second) // not there any more
	_, about, text := read(t, g, Filter{})
	require.NotContains(t, text, "hunter2")
	h := string(g.redactor.AppendHash(nil, []byte("hunter2")))
	require.Equal(t, `{"time":"2026-11-22T01:02:03.456789Z","client":"203.0.113.7","method":"GET","host":"example.com","target":"/a%20b\"?token=`+h+`&`+string(g.redactor.AppendHash(nil, []byte("empty=")))+`&`+h+`",`+
		`"status":429,"tier":"pro","trusted":true,"headers":{"X-Api-Key":["`+h+`"],"X-Plan":["free","pro"],"Cookie":["session=`+h+`; `+h+`"]},"duration_ms":1.500,"verdict":"limited","rules":"per-client login"}`+"\n", text)
	require.Equal(t, g.began, about.Since, "nothing is missing")
}

// The ring keeps the latest, and says from when on.
func TestTurns(t *testing.T) {
	g := ring(t, Config{})
	for i := range 250 {
		r := request("203.0.113.7", fmt.Sprintf("/%d", i), "", nil)
		r.Began = began.Add(time.Duration(i) * time.Microsecond)
		g.Put(r, decide.Pass)
	}
	list, about, _ := read(t, g, Filter{})
	require.Len(t, list, 100)
	require.Equal(t, []string{"/150", "/249"}, []string{list[0].Target, list[99].Target})
	require.Equal(t, began.Add(150*time.Microsecond), about.Since.UTC())
	list, about, _ = read(t, g, Filter{Most: 10})
	require.Equal(t, "/240", list[0].Target)
	require.Equal(t, began.Add(240*time.Microsecond), about.Since.UTC())
}

func TestFilter(t *testing.T) {
	g := ring(t, Config{})
	for i, v := range []decide.Verdict{decide.Pass, decide.Limited, decide.Shed, decide.Misbehaved, decide.Blocked, decide.Malformed, decide.NoRules, decide.Uncountable} {
		g.Put(request("203.0.113.7", fmt.Sprintf("/%d", i), "", nil), v)
		g.Put(request("2001:db8::1", fmt.Sprintf("/v6/%d", i), "", nil), v)
	}
	verdicts := func(f Filter) (names []string) {
		list, _, _ := read(t, g, f)
		for _, r := range list {
			names = append(names, r.Client+" "+r.Verdict)
		}
		return names
	}
	v4 := netip.MustParsePrefix("203.0.113.0/24")
	require.Equal(t, []string{"203.0.113.7 pass", "203.0.113.7 limited", "203.0.113.7 shed", "203.0.113.7 misbehaved", "203.0.113.7 blocked"}, verdicts(Filter{Client: v4}))
	require.Equal(t, []string{"203.0.113.7 limited", "203.0.113.7 shed", "203.0.113.7 misbehaved", "203.0.113.7 blocked"}, verdicts(Filter{Client: v4, Refused: true}))
	require.Equal(t, []string{"2001:db8::1 pass", "2001:db8::1 limited"}, verdicts(Filter{Client: netip.MustParsePrefix("2001:db8::/64"), ByRules: true}))
	// What could not be counted.
	r := request("198.51.100.1", "/", "", nil)
	r.Decision.StoreUnavailable = true
	g.Put(r, decide.Limited)
	require.Equal(t, []string{"198.51.100.1 unavailable"}, verdicts(Filter{Client: netip.MustParsePrefix("198.51.100.0/24")}))
}

// All nodes keep the same clients, all requests of each, and about as many as they should.
func TestShare(t *testing.T) {
	one, two := ring(t, Config{Share: 0.1}), ring(t, Config{Share: 0.1})
	kept := 0
	for i := range 20_000 {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		require.Equal(t, one.chosen(a), two.chosen(a))
		if one.chosen(a) {
			kept++
		}
	}
	require.InDelta(t, 2000, kept, 200)
	require.Equal(t, one.chosen(netip.MustParseAddr("2001:db8::1")), one.chosen(netip.MustParseAddr("2001:db8::ffff:2")), "a /64 is one client")
}

// Whatever clients send fits, is JSON, and differs where it differed.
func TestLongValues(t *testing.T) {
	g := ring(t, Config{Keep: 1000, Headers: []string{"A", "B", "C", "D", "E", "F", "G", "H"}})
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		bytes := func() []byte {
			b := make([]byte, random.IntN(2000))
			for i := range b {
				b[i] = byte(random.IntN(256))
			}
			return b
		}
		f := fields{}
		for _, name := range g.headers[:random.IntN(9)] {
			f[name] = [][]byte{bytes(), bytes()}
		}
		r := request("203.0.113.7", "/", string(bytes()), f)
		r.ForwardedPath, r.Method, r.Host, r.Tier = append([]byte("/"), bytes()...), bytes(), bytes(), bytes()
		g.Put(r, decide.Pass)
	}
	list, _, _ := read(t, g, Filter{})
	require.Len(t, list, 1000)
	long := strings.Repeat("/x", 150)
	for _, end := range []string{"a", "b"} {
		g.Put(request("198.51.100.1", long+end, "", nil), decide.Pass)
	}
	list, _, _ = read(t, g, Filter{Client: netip.MustParsePrefix("198.51.100.1/32")})
	require.NotEqual(t, list[0].Target, list[1].Target)
	require.LessOrEqual(t, len(list[0].Target), longestPath)
	require.True(t, strings.HasPrefix(list[0].Target, "/x/x/x"))
}

// Readers and writers at the same time: no line is torn, and nobody waits for long.
func TestTogether(t *testing.T) {
	g := ring(t, Config{})
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 3000 {
				text := strings.Repeat(string(rune('a'+w)), 1+i%150)
				r := request("203.0.113.7", "/"+text, "", nil)
				r.Host = []byte(text[:min(len(text), longestHost)])
				g.Put(r, decide.Pass)
				if r.RecentID > 0 {
					g.Ended(r.RecentID, 200, time.Millisecond)
				}
			}
		})
	}
	for range 50 {
		list, _, _ := read(t, g, Filter{})
		for _, r := range list {
			require.True(t, strings.HasPrefix(r.Target[1:], r.Host), "%+v", r)
		}
	}
	all.Wait()
	list, about, _ := read(t, g, Filter{})
	require.LessOrEqual(t, len(list), fewest)
	require.Less(t, about.Lost, uint64(12_000))
}

func TestReadersAreBounded(t *testing.T) {
	g := ring(t, Config{})
	require.NoError(t, g.Find(Filter{Most: 1}, func(*Found) {
		require.NoError(t, g.Find(Filter{Most: 1}, func(*Found) {
			require.ErrorIs(t, g.Find(Filter{Most: 1}, func(*Found) {}), ErrBusy)
		}))
	}))
}

func TestFaults(t *testing.T) {
	f := func(c Config, want ...string) {
		t.Helper()
		var got []string
		c.Validate(func(path, format string, args ...any) { got = append(got, path+": "+fmt.Sprintf(format, args...)) })
		require.Equal(t, want, got)
	}
	f(Config{Share: 1})
	f(Config{Keep: 100, Share: 0.01, Headers: []string{"X-Api-Key"}})
	f(Config{Keep: 99, Share: 1}, "keep: must be 0, or between 100 and 200000 (got 99)")
	f(Config{Keep: -1}, "keep: must be 0, or between 100 and 200000 (got -1)", "share: must be over 0, and at most 1 (got 0)")
	f(Config{Share: 1.1, Headers: []string{"a b"}}, "share: must be over 0, and at most 1 (got 1.1)", `headers[0]: must be the name of a header (got "a b")`)
	f(Config{Share: 1, Headers: make([]string, 9)}, append([]string{"headers: must be at most 8 (got 9)"}, func() (l []string) {
		for i := range 9 {
			l = append(l, fmt.Sprintf(`headers[%d]: must be the name of a header (got "")`, i))
		}
		return l
	}()...)...)
	f(Config{Share: 1, HashKeyFile: "/does/not/exist"}, "hash_key_file: open /does/not/exist: no such file or directory")
}

func BenchmarkPut(b *testing.B) {
	g := ring(b, Config{Keep: 10_000, Headers: []string{"X-Api-Key"}})
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		r := request("203.0.113.7", "/api/users/42", "full=1", fields{"X-Api-Key": {[]byte("example")}})
		for p.Next() {
			g.Put(r, decide.Pass)
			g.Ended(r.RecentID, 200, time.Millisecond)
		}
	})
}
