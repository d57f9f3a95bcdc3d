package replay

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

func loadFile(t testing.TB, name string) *rules.Set {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return load(t, string(b))
}

func replayFile(t testing.TB, c Config, name string) *Report {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	require.NoError(t, err)
	defer f.Close()
	r, err := Run(t.Context(), c, f)
	require.NoError(t, err)
	return r
}

// The complete reports of two small logs.
func TestReports(t *testing.T) {
	for _, c := range []struct {
		name, log string
		config    Config
	}{
		{"compared", "traffic.jsonl", Config{Candidate: loadFile(t, "candidate.yaml"), Running: loadFile(t, "running.yaml")}},
		{"alone", "traffic.jsonl", Config{Candidate: loadFile(t, "candidate.yaml")}},
		{"same", "traffic.jsonl", Config{Candidate: loadFile(t, "running.yaml"), Running: loadFile(t, "running.yaml")}},
		{"combined", "access.log", Config{Candidate: loadFile(t, "candidate.yaml"), Running: loadFile(t, "running.yaml")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := replayFile(t, c.config, c.log)
			golden(t, c.name+".json", indented(t, r))
			golden(t, c.name+".txt", []byte(text(t, r)))
		})
	}
}

func TestTheExactFiguresOfASmallLog(t *testing.T) {
	r := replayFile(t, Config{Candidate: loadFile(t, "candidate.yaml"), Running: loadFile(t, "running.yaml")}, "traffic.jsonl")
	require.EqualValues(t, 15, r.Lines)
	require.EqualValues(t, 13, r.Requests)
	require.Equal(t, []int64{7, 15}, []int64{r.Skips[0].Line, r.Skips[1].Line}, "a blank line has a number too")
	require.EqualValues(t, 1, r.OutOfOrder)
	require.Equal(t, "2026-11-20T10:00:00Z", r.From.Format(time.RFC3339Nano))
	require.Equal(t, "2026-11-20T10:01:00Z", r.To.Format(time.RFC3339Nano))

	after, before := r.Candidate, r.Running
	// 203.0.113.7 sends 6 requests in the minute: 3 pass now, 5 did before.
	// 198.51.100.1 requests one report during another, once.
	require.Equal(t, []int64{8, 4, 1}, []int64{after.Passed, after.Limited, after.BadRequests})
	require.Equal(t, []int64{11, 2, 0}, []int64{before.Passed, before.Limited, before.BadRequests})
	require.EqualValues(t, 14, after.FirstBadRequest.Line)
	require.Equal(t, `cookie "session" occurs more than once; send it once`, after.FirstBadRequest.Reason)

	perClient, apiKey, reports, upload := after.Rules[0], after.Rules[1], after.Rules[2], after.Rules[3]
	require.Equal(t, []ClientCount{{"203.0.113.7", 3}}, perClient.Top)
	require.EqualValues(t, 4, perClient.First.Line)
	require.Equal(t, "57s", perClient.First.RetryAfter)
	require.Equal(t, []int64{3, 0, 1}, []int64{apiKey.Checks, apiKey.Limited, apiKey.ShadowLimited})
	require.Equal(t, []int64{3, 1}, []int64{reports.Checks, reports.Limited}, "the third arrives as the first ends")
	require.Zero(t, upload.Checks)
	require.Equal(t, []ClientCount{{"2001:db8::/64", 1}}, before.Rules[1].Top, "two addresses, one client")

	require.EqualValues(t, 3, r.Changes.NewlyLimited.Requests)
	require.EqualValues(t, 2, r.Changes.NewlyLimited.Clients)
	require.EqualValues(t, 1, r.Changes.NoLongerLimited.Requests)
	require.Equal(t, []RuleChange{{"login", 0, 1}, {"per-client", 2, 0}, {"reports", 1, 0}}, r.Changes.Rules)
}

const everyRequest = `
rules:
  - {id: all, key: [], algorithm: fixed_window, limit: 2, window: 10s}
`

func TestTheClockNeverRunsBack(t *testing.T) {
	at := func(second int) string {
		return fmt.Sprintf(`{"time":%d,"client":"203.0.113.7","path":"/"}`, 1795168800+second)
	}
	// By their own times, the last two would fall into the first window again.
	r := run(t, Config{Candidate: load(t, everyRequest)}, at(0), at(1), at(10), at(9), at(2))
	require.EqualValues(t, 1, r.Candidate.Limited)
	require.EqualValues(t, 2, r.OutOfOrder)
	require.Contains(t, strings.Join(r.Notes, "\n"), "40.00% of the requests are older than one before them (line 5 has 2026-11-20T10:00:02Z, line 3 before it has 2026-11-20T10:00:10Z)")
	require.EqualValues(t, 1795168800, r.From.Unix())

	// One wrong time affects every line after it: the note names the line.
	r = run(t, Config{Candidate: load(t, everyRequest)}, at(0), `{"time":"9999-12-31T23:59:59Z","client":"203.0.113.7","path":"/"}`, at(1), at(2))
	require.EqualValues(t, 1, r.Candidate.Limited)
	require.Contains(t, strings.Join(r.Notes, "\n"), "(line 3 has 2026-11-20T10:00:01Z, line 2 before it has 9999-12-31T23:59:59Z)")

	lines := []string{at(5), at(4)}
	for i := range 200 {
		lines = append(lines, at(10+i))
	}
	r = run(t, Config{Candidate: load(t, everyRequest)}, lines...)
	require.EqualValues(t, 1, r.OutOfOrder)
	require.NotContains(t, strings.Join(r.Notes, "\n"), "older", "a few are normal")
	require.EqualValues(t, 1795168804, r.From.Unix())
}

func TestConcurrencyHoldsSlotsForTheLoggedDuration(t *testing.T) {
	const one = `rules: [{id: one, key: [client_ip], algorithm: concurrency, limit: 1, window: 10s}]`
	at := func(ms int, more string) string {
		return fmt.Sprintf(`{"time":%d,"client":"203.0.113.7","path":"/"%s}`, 1795168800000+ms, more)
	}
	limited := func(lines ...string) int64 {
		return run(t, Config{Candidate: load(t, one)}, lines...).Candidate.Limited
	}
	require.EqualValues(t, 1, limited(at(0, `,"duration":1`), at(999, `,"duration":1`), at(1000, `,"duration":1`)))
	require.EqualValues(t, 1, limited(at(0, `,"duration":60`), at(9999, ``), at(10000, ``)), "the slot expires with the window")
	require.EqualValues(t, 0, limited(at(0, `,"duration":0`), at(0, `,"duration":0`)))

	r := run(t, Config{Candidate: load(t, one)}, at(0, ``), at(0, ``))
	require.Zero(t, r.Candidate.Limited)
	require.Equal(t, []string{"no duration was logged for requests of rule one: their slots were returned at once, so the rule limits too little here; log duration"}, r.Notes)
}

func TestNotesSayWhatTheLogLacks(t *testing.T) {
	const doc = `
rules:
  - {id: key, key: ["header:X-Api-Key"], limit: 1, window: 1m}
  - {id: session, key: ["cookie:session"], missing: limit, limit: 100, window: 1m}
  - {id: tier, key: [client_ip, tier], limit: 1, window: 1m}
  - {id: tiers, key: [client_ip], limit: 100, window: 1m, tiers: {pro: 1000}}
  - {id: cost, key: [client_ip], limit: 100, window: 1m, cost: "header:X-Cost"}
  - {id: plan, match: {headers: {X-Plan: free}}, key: [], limit: 1, window: 1m}
  - {id: hosted, match: {hosts: [a.example]}, key: [], limit: 1, window: 1m}
  - {id: host, key: [host], limit: 1000, window: 1s}
  - {id: unused, key: ["query:q"], limit: 1, window: 1m, mode: off}
  - {id: calls, domain: edge, descriptors: [{key: user}], key: [descriptor], algorithm: fixed_window, limit: 1, window: 1m}
`
	const line = `{"time":1795168800,"client":"203.0.113.7","path":"/"}`
	require.Equal(t, []string{
		"the log's times are whole seconds, and all requests of a second come at once for rule host; log fractions of a second",
		"rule key counts by header:X-Api-Key, which no line carries: it counted no request; log it",
		"rule session counts by cookie:session, which no line carries: all its requests were counted together; log it",
		"rule tier counts by tier, which no line carries: it counted no request; log the tier",
		"rule tiers has tiers, and no line carries one: its limit of 100 applied to all; log the tier",
		"rule cost takes its cost from header:X-Cost of trusted requests, and no line is trusted: each counted as 1",
		"rule host counts by host, which no line carries; give the host",
		"rules match on header:X-Plan, which no line carries: that condition never held; log it",
		"no request was counted by rule hosted: only certain hosts match, and no line names one; give the host",
		"a log shows nothing about rule calls: rules with descriptors count Envoy's calls, not requests",
		"no request was counted by rule plan: none matches",
	}, run(t, Config{Candidate: load(t, doc)}, line).Notes)

	r := run(t, Config{Candidate: load(t, doc), Host: "a.example", Trusted: true}, line)
	require.Contains(t, r.Notes, "rule cost takes its cost from header:X-Cost, which no line carries: each counted as 1; log it")
	require.Contains(t, r.Notes, "no request was counted by rule plan: none matches")

	full := `{"time":1795168800.5,"client":"203.0.113.7","path":"/","tier":"pro","headers":{"X-Api-Key":"k","Cookie":"session=s","X-Cost":"3","X-Plan":"free"}}`
	require.Len(t, run(t, Config{Candidate: load(t, doc), Host: "a.example", Trusted: true}, line, full).Notes, 1, "one line that carries it is enough, except for calls")
}

func TestCompressedLogs(t *testing.T) {
	plain, err := os.ReadFile("testdata/traffic.jsonl")
	require.NoError(t, err)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(plain)
	require.NoError(t, err)
	require.NoError(t, z.Close())

	c := Config{Candidate: loadFile(t, "candidate.yaml")}
	want, err := Run(t.Context(), c, bytes.NewReader(plain))
	require.NoError(t, err)
	var read int64
	c.Progress = func(bytes, lines int64) { read = bytes }
	got, err := Run(t.Context(), c, bytes.NewReader(packed.Bytes()))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.EqualValues(t, packed.Len(), read, "progress is that of the file")

	_, err = Run(t.Context(), c, bytes.NewReader(packed.Bytes()[:packed.Len()/2]))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = Run(t.Context(), c, strings.NewReader("\x1f\x8bnonsense"))
	require.ErrorIs(t, err, gzip.ErrHeader)
}

func TestLinesOfEveryShape(t *testing.T) {
	const line = `203.0.113.7 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 12`
	long := strings.Repeat("x", 3*longestLine)
	log := "\xef\xbb\xbf" + line + "\r\n\n  \n" + long + "\n" + line + "\n\x00\n" + line // no newline at the end
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(log), "byte by byte": iotest.OneByteReader(strings.NewReader(log)), "error with data": iotest.DataErrReader(strings.NewReader(log)),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Run(t.Context(), Config{Candidate: load(t, everyRequest)}, r)
			require.NoError(t, err)
			require.EqualValues(t, 5, got.Lines)
			require.EqualValues(t, 3, got.Requests)
			require.Equal(t, []Skip{{4, "is longer than 262144 bytes"}, {6, `client "\x00" is not an IP address`}}, got.Skips)
		})
	}
	got, err := Run(t.Context(), Config{Candidate: load(t, everyRequest)}, strings.NewReader(line+"\n"+long))
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Skipped)
}

func TestSkippedLinesAreCountedAndSomeShown(t *testing.T) {
	log := strings.Repeat("nonsense\n", 1000) + `203.0.113.7 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 12`
	r, err := Run(t.Context(), Config{Candidate: load(t, everyRequest)}, strings.NewReader(log))
	require.NoError(t, err)
	require.EqualValues(t, 1000, r.Skipped)
	require.Len(t, r.Skips, maxSkips)
	require.EqualValues(t, maxSkips, r.Skips[maxSkips-1].Line)
	require.Contains(t, text(t, r), "and 995 more\n")
}

func TestRunFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		log    io.Reader
		want   string
	}{
		{"without a document", Config{}, strings.NewReader(""), "no document to test"},
		{"on an empty log", Config{Candidate: load(t, everyRequest)}, strings.NewReader("\n\n"), "the log is empty; it needs a request a line"},
		{"when nothing can be read", Config{Candidate: load(t, everyRequest)}, strings.NewReader("a\nb\n"),
			`none of the 2 lines can be read as a request: line 1: client "a" is not an IP address; write the log as JSON lines such as ` +
				`{"time":"2026-11-20T10:00:00Z","client":"203.0.113.7","method":"GET","path":"/"}, or Combined Log Format such as ` +
				`203.0.113.7 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 12`},
		{"when the log is of another format", Config{Candidate: load(t, everyRequest), Format: JSONLines}, strings.NewReader("a\n"),
			`none of the 1 lines can be read as a request: line 1: is not JSON: invalid character 'a' looking for beginning of value; write the log as JSON lines such as ` +
				`{"time":"2026-11-20T10:00:00Z","client":"203.0.113.7","method":"GET","path":"/"}`},
		{"when reading fails", Config{Candidate: load(t, everyRequest)}, io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.New("disk gone"))),
			"read the log after line 2: disk gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Run(t.Context(), c.config, c.log)
			require.EqualError(t, err, c.want)
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	stop := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe() // nothing writes, so Read hangs
	go cancel(stop)
	_, err := Run(ctx, Config{Candidate: load(t, everyRequest)}, r)
	require.ErrorIs(t, err, stop)
	require.NoError(t, w.Close())

	// And in the middle of an endless log.
	ctx, cancel = context.WithCancelCause(t.Context())
	_, err = Run(ctx, Config{Candidate: load(t, everyRequest), Progress: func(_, lines int64) { cancel(stop) }}, newTraffic(1<<40, 10, asJSON))
	require.ErrorIs(t, err, stop)
}

// slowly reads ten lines in a millisecond.
type slowly struct{ *traffic }

func (s slowly) Read(b []byte) (int, error) {
	time.Sleep(time.Millisecond / 10)
	return s.traffic.Read(b)
}

// In the bubble, only reading takes time.
func TestProgress(t *testing.T) { synctest.Test(t, testProgress) }

func testProgress(t *testing.T) {
	const lines = 20_000
	var calls, bytes, seen int64
	var last time.Time
	size, err := io.Copy(io.Discard, newTraffic(lines, 10, asCombined))
	require.NoError(t, err)
	_, err = Run(t.Context(), Config{Candidate: load(t, everyRequest), Progress: func(b, l int64) {
		require.GreaterOrEqual(t, b, bytes)
		require.GreaterOrEqual(t, l, seen)
		require.True(t, l == lines || time.Since(last) >= progressEvery)
		calls, bytes, seen, last = calls+1, b, l, time.Now()
	}}, slowly{newTraffic(lines, 10, asCombined)})
	require.NoError(t, err)
	require.EqualValues(t, lines, seen, "the last call comes at the end")
	require.Equal(t, size, bytes)
	require.Greater(t, calls, int64(1))
}
