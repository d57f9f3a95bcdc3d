package replay

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/paths"
)

// show formats an entry.
func show(e *entry) string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%d %s %s %s %s", e.time, e.client, e.method, e.host, e.path)
	if len(e.query) > 0 {
		fmt.Fprintf(b, "?%s", e.query)
	}
	if len(e.tier) > 0 {
		fmt.Fprintf(b, " tier=%s", e.tier)
	}
	if e.trusted {
		b.WriteString(" trusted")
	}
	if e.duration >= 0 {
		fmt.Fprintf(b, " took=%d", e.duration)
	}
	for _, h := range e.headers {
		fmt.Fprintf(b, " %s=%q", h.name, h.value)
	}
	return b.String()
}

const tenth = "1795168800000000" // 2026-11-20T10:00:00Z

var jsonLines = []struct{ name, line, want string }{
	{"the minimum", `{"time":"2026-11-20T10:00:00Z","client":"203.0.113.7","path":"/a"}`, tenth + " 203.0.113.7 GET  /a"},
	{"every field", `{"time":1795168800.000001,"client":"[2001:db8::1]:443","method":"POST","host":"a.example","target":"/x/../y?q=1","tier":"pro","trusted":true,"duration":0.25,` +
		`"headers":{"X-A":"1","X-B":["2","3"],"X-C":4,"X-D":null},"status":200,"nested":{"path":"/no","time":[1,{"a":"}"}]}}`,
		`1795168800000001 2001:db8::1 POST a.example /x/../y?q=1 tier=pro trusted took=250000 X-A="1" X-B="2" X-B="3" X-C="4"`},
	{"white space", "\t{ \"time\" : 1795168800 ,\r \"client\" : \"203.0.113.7\" , \"path\" : \"/a\" , \"headers\" : { \"X-A\" : [ \"1\" , \"2\" ] } } ",
		tenth + ` 203.0.113.7 GET  /a X-A="1" X-A="2"`},
	{"milliseconds", `{"ts":1795168800000,"client_ip":"203.0.113.7","uri":"/"}`, tenth + " 203.0.113.7 GET  /"},
	{"microseconds", `{"ts":1795168800000000,"client_ip":"203.0.113.7","uri":"/"}`, tenth + " 203.0.113.7 GET  /"},
	{"nanoseconds", `{"ts":1795168800000000000,"client_ip":"203.0.113.7","uri":"/"}`, tenth + " 203.0.113.7 GET  /"},
	{"nginx", `{"time_iso8601":"2026-11-20T11:00:00+01:00","msec":"1795168800.250","remote_addr":"203.0.113.7","request":"GET /a?b=c HTTP/1.1","host":"a.example",` +
		`"request_time":"0.012","http_user_agent":"curl/8","http_x_api_key":"k","http_referer":"","http_cookie":"-","status":"200"}`,
		`1795168800250000 203.0.113.7 GET a.example /a?b=c took=12000 user-agent="curl/8" x-api-key="k"`},
	{"nginx without a request line", `{"time_local":"20/Nov/2026:11:00:00 +0100","remote_addr":"203.0.113.7","request_method":"PUT","uri":"/n","request_uri":"/a%20b","args":"x=1"}`,
		tenth + ` 203.0.113.7 PUT  /a%20b?x=1`},
	{"Caddy", `{"level":"info","ts":1795168800.5,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"10.0.0.1","client_ip":"203.0.113.7","proto":"HTTP/2.0",` +
		`"method":"GET","host":"a.example","uri":"/a","headers":{"User-Agent":["curl"]},"tls":{"resumed":false}},"bytes_read":0,"duration":0.000929675,"size":10,"status":200,"resp_headers":{"Server":["Caddy"]}}`,
		`1795168800500000 203.0.113.7 GET a.example /a took=930 User-Agent="curl"`},
	{"Traefik", `{"ClientAddr":"203.0.113.7:53206","ClientHost":"203.0.113.7","Duration":1500000,"RequestHost":"a.example","RequestMethod":"GET","RequestPath":"/a?b","StartUTC":"2026-11-20T10:00:00.123456789Z","time":"2026-11-20T10:00:00Z"}`,
		tenth + ` 203.0.113.7 GET a.example /a?b took=1500`},
	{"escapes", `{"time":1795168800,"client":"203.0.113.7","p\u0061th":"\/a\u0026b?x=\"1\"","headers":{"X-\u0041":"\ud83d\ude00 \ud83d \t\\ \u00e9"}}`,
		tenth + ` 203.0.113.7 GET  /a&b?x="1" X-A="😀 � \t\\ é"`},
	{"a URL", `{"time":1795168800,"client":"203.0.113.7","url":"https://b.example:8443/a?b","host":"a.example"}`, tenth + " 203.0.113.7 GET b.example:8443 /a?b"},
	{"an IPv4 address in IPv6, with a zone", `{"time":1795168800,"client":"::ffff:203.0.113.7%eth0","path":"/a"}`, tenth + " 203.0.113.7 GET  /a"},
	{"durations", `{"time":1795168800,"client":"203.0.113.7","path":"/","duration":"12ms"}`, tenth + " 203.0.113.7 GET  / took=12000"},
	{"milliseconds of duration", `{"time":1795168800,"client":"203.0.113.7","path":"/","duration_ms":1.5}`, tenth + " 203.0.113.7 GET  / took=1500"},
	{"a duration that is not a number", `{"time":1795168800,"client":"203.0.113.7","path":"/","request_time":"-"}`, tenth + " 203.0.113.7 GET  /"},
	{"a flat header and a nested one", `{"time":1795168800,"client":"203.0.113.7","path":"/","user_agent":"x","headers":{"User-Agent":"y"}}`, tenth + ` 203.0.113.7 GET  / User-Agent="y"`},

	{"not JSON", `{"time":1795168800,`, "is not JSON: unexpected end of JSON input"},
	{"nginx without escape=json", `{"client":"\x22"}`, "is not JSON: invalid character 'x' in string escape code; nginx writes it with log_format … escape=json"},
	{"not an object", `[1]`, "is not a JSON object"},
	{"no time", `{"client":"203.0.113.7","path":"/a"}`, "has no time"},
	{"no client", `{"time":1795168800,"client":null,"path":"/a"}`, "has no client"},
	{"no target", `{"time":1795168800,"client":"203.0.113.7"}`, "has no target (or path, uri, request)"},
	{"an invalid time", `{"time":"yesterday","client":"203.0.113.7","path":"/a"}`, `time "yesterday" is neither RFC 3339, nor 10/Oct/2000:13:55:36 -0700, nor a Unix time since 1970`},
	{"a time before Unix", `{"time":-1,"client":"203.0.113.7","path":"/a"}`, `time "-1" is neither RFC 3339, nor 10/Oct/2000:13:55:36 -0700, nor a Unix time since 1970`},
	{"an invalid client", `{"time":1795168800,"client":"localhost","path":"/a"}`, `client "localhost" is not an IP address`},
	{"a list of clients", `{"time":1795168800,"client":"203.0.113.7, 10.0.0.1","path":"/a"}`, `client "203.0.113.7, 10.0.0.1" is not an IP address`},
	{"an invalid method", `{"time":1795168800,"client":"203.0.113.7","path":"/a","method":"G T"}`, `"G T" is not a method; nodes answer it with 400`},
	{"a fragment", `{"time":1795168800,"client":"203.0.113.7","path":"/a#b"}`, errFragment.Error()},
	{"a bad request line", `{"time":1795168800,"client":"203.0.113.7","request":"\u0016\u0003\u0001"}`, `request "\x16\x03\x01" is not METHOD TARGET HTTP/1.1; nodes answer it with 400`},
}

const atTen = " - - [20/Nov/2026:10:00:00 +0000] "

var combinedLines = []struct{ name, line, want string }{
	{"combined", `203.0.113.7` + atTen + `"GET /a?b=c HTTP/1.1" 200 12 "https://example.com/" "curl/8 (x)"`, tenth + ` 203.0.113.7 GET  /a?b=c Referer="https://example.com/" User-Agent="curl/8 (x)"`},
	{"common", `203.0.113.7` + atTen + `"GET /a HTTP/1.0" 200 -`, tenth + ` 203.0.113.7 GET  /a`},
	{"nothing optional", `203.0.113.7` + atTen + `"GET /a HTTP/1.1" 200 12 "-" "-"`, tenth + ` 203.0.113.7 GET  /a`},
	{"more after it", `203.0.113.7` + atTen + `"GET /a HTTP/1.1" 200 12 "-" "curl" 0.123 "10.0.0.1:80"`, tenth + ` 203.0.113.7 GET  /a User-Agent="curl"`},
	{"a zone, and a user", `203.0.113.7 ident john doe [20/Nov/2026:02:00:00 -0800] "DELETE /a HTTP/2.0" 200 12`, tenth + ` 203.0.113.7 DELETE  /a`},
	{"IPv6", `2001:db8::1` + atTen + `"GET /a HTTP/1.1" 200 12 "-" "curl"`, tenth + ` 2001:db8::1 GET  /a User-Agent="curl"`},
	{"a virtual host", `a.example:443 203.0.113.7` + atTen + `"GET /a HTTP/1.1" 200 12 "-" "curl"`, tenth + ` 203.0.113.7 GET a.example:443 /a User-Agent="curl"`},
	{"a proxy's request", `203.0.113.7` + atTen + `"GET http://b.example/a HTTP/1.1" 200 12`, tenth + ` 203.0.113.7 GET b.example /a`},
	{"Apache's escapes", `203.0.113.7` + atTen + `"GET /a\"b\\c HTTP/1.1" 200 12 "\t" "say \"hi\"\x41\n"`, tenth + ` 203.0.113.7 GET  /a"b\c Referer="\t" User-Agent="say \"hi\"A\n"`},
	{"nginx's escapes", `203.0.113.7` + atTen + `"GET /\x22a\xC3\xA9 HTTP/1.1" 200 12 "-" "\x5C\x"`, tenth + ` 203.0.113.7 GET  /"aé User-Agent="\\x"`},
	{"no protocol", `203.0.113.7` + atTen + `"GET /a" 200 12`, tenth + ` 203.0.113.7 GET  /a`},
	{"an open quote at the end", `203.0.113.7` + atTen + `"GET /a HTTP/1.1" 200 12 "https://e" "cut off`, tenth + ` 203.0.113.7 GET  /a Referer="https://e"`},

	{"a TLS hello", `203.0.113.7` + atTen + `"\x16\x03\x01\x02" 400 150 "-" "-"`, `request "\x16\x03\x01\x02" is not METHOD TARGET HTTP/1.1; nodes answer it with 400`},
	{"no request", `203.0.113.7` + atTen + `"-" 408 0 "-" "-"`, `request "-" is not METHOD TARGET HTTP/1.1; nodes answer it with 400`},
	{"an empty request", `203.0.113.7` + atTen + `"" 400 0`, `request "" is not METHOD TARGET HTTP/1.1; nodes answer it with 400`},
	{"a space in the target", `203.0.113.7` + atTen + `"GET /a b HTTP/1.1" 400 0`, `request "GET /a b HTTP/1.1" is not METHOD TARGET HTTP/1.1; nodes answer it with 400`},
	{"a control character", `203.0.113.7` + atTen + `"GET /a\x00b HTTP/1.1" 400 0`, errControl.Error()},
	{"a host name", `client.example` + atTen + `"GET /a HTTP/1.1" 200 12`, `client "client.example" is not an IP address`},
	{"a socket", `unix:` + atTen + `"GET /a HTTP/1.1" 200 12`, `client "unix:" is not an IP address`},
	{"no time", `203.0.113.7 - - "GET /a HTTP/1.1" 200 12`, errNoTime.Error()},
	{"a time that is not closed", `203.0.113.7 - - [20/Nov/2026`, errNoTime.Error()},
	{"an invalid time", `203.0.113.7 - - [20/Foo/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 12`,
		`time "20/Foo/2026:10:00:00 +0000" is neither RFC 3339, nor 10/Oct/2000:13:55:36 -0700, nor a Unix time since 1970`},
	{"no quotes", `203.0.113.7` + atTen + `GET /a 200`, `has no request in quotes behind the time, as in "GET / HTTP/1.1"`},
	{"something else", `hello, world`, `client "hello," is not an IP address`},
	{"something longer", strings.Repeat("x", 100), `client "` + strings.Repeat("x", 60) + `"… is not an IP address`},
}

func TestLines(t *testing.T) {
	check := func(t *testing.T, format Format, line, want string) {
		t.Helper()
		e, err := parsed(t, Config{Format: format}, strings.TrimSpace(line))
		if err != nil {
			require.Equal(t, want, err.Error())
			return
		}
		require.Equal(t, want, show(e))
	}
	for _, c := range jsonLines {
		t.Run("json/"+c.name, func(t *testing.T) {
			check(t, JSONLines, c.line, c.want)
			if c.name != "not an object" {
				check(t, Auto, c.line, c.want)
			}
		})
	}
	for _, c := range combinedLines {
		t.Run("combined/"+c.name, func(t *testing.T) {
			check(t, Combined, c.line, c.want)
			check(t, Auto, c.line, c.want)
		})
	}
}

func TestWhatTheConfigurationAddsToALine(t *testing.T) {
	const line = `{"time":1795168800,"client":"203.0.113.7","path":"/","headers":{"X-Tier":"pro"}}`
	for _, c := range []struct {
		name   string
		config Config
		line   string
		want   string
	}{
		{"host", Config{Host: "a.example"}, line, ` GET a.example / X-Tier="pro"`},
		{"the line's own host", Config{Host: "a.example"}, strings.Replace(line, `"path"`, `"host":"b.example","path"`, 1), ` GET b.example / X-Tier="pro"`},
		{"a tier without a trusted proxy", Config{TierHeader: "X-Tier"}, line, ` GET  / X-Tier="pro"`},
		{"a tier", Config{TierHeader: "x-tier", Trusted: true}, line, ` GET  / tier=pro trusted X-Tier="pro"`},
		{"the line's own tier", Config{TierHeader: "X-Tier", Trusted: true}, strings.Replace(line, `"path"`, `"tier":"free","path"`, 1), ` GET  / tier=free trusted X-Tier="pro"`},
		{"two tiers", Config{TierHeader: "X-Tier", Trusted: true}, strings.Replace(line, `"pro"`, `["pro","free"]`, 1), ` GET  / trusted X-Tier="pro" X-Tier="free"`},
		{"a line that is not trusted", Config{TierHeader: "X-Tier", Trusted: true}, strings.Replace(line, `"path"`, `"trusted":false,"path"`, 1), ` GET  / X-Tier="pro"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := parsed(t, c.config, c.line)
			require.NoError(t, err)
			require.Equal(t, tenth+" 203.0.113.7"+c.want, show(e))
		})
	}
}

// Where a line has several names for one field, the one listed first in the package
// comment wins, regardless of its position in the line.
func TestTheBestNameOfAFieldCounts(t *testing.T) {
	for _, c := range []struct {
		names  []string
		values [2]string
		show   func(*entry) string
		want   string
	}{
		{[]string{"time", "StartUTC", "ts", "timestamp", "@timestamp", "msec", "time_iso8601", "time_local"}, [2]string{"1795168800", "1795168801"},
			func(e *entry) string { return fmt.Sprint(e.time / 1e6) }, "1795168800"},
		{[]string{"client", "client_ip", "remote_ip", "remote_addr", "ClientHost"}, [2]string{`"203.0.113.7"`, `"203.0.113.8"`},
			func(e *entry) string { return e.client.String() }, "203.0.113.7"},
		{[]string{"target", "request_uri", "uri", "path", "url", "RequestPath"}, [2]string{`"/a"`, `"/b"`}, func(e *entry) string { return string(e.path) }, "/a"},
		{[]string{"query", "query_string", "args"}, [2]string{`"a=1"`, `"b=2"`}, func(e *entry) string { return string(e.query) }, "a=1"},
		{[]string{"method", "request_method", "RequestMethod"}, [2]string{`"POST"`, `"PUT"`}, func(e *entry) string { return string(e.method) }, "POST"},
		{[]string{"host", "http_host", "vhost", "RequestHost"}, [2]string{`"a.example"`, `"b.example"`}, func(e *entry) string { return string(e.host) }, "a.example"},
	} {
		// The other required fields, each under its last name, which never wins.
		rest := `"time_local":"1795160000","ClientHost":"203.0.113.99","RequestPath":"/rest"`
		for i, better := range c.names {
			for _, worse := range c.names[i+1:] {
				for _, line := range []string{
					fmt.Sprintf(`{"%s":%s,"%s":%s,%s}`, better, c.values[0], worse, c.values[1], rest),
					fmt.Sprintf(`{%s,"%s":%s,"%s":%s}`, rest, worse, c.values[1], better, c.values[0]),
				} {
					e, err := parsed(t, Config{}, line)
					require.NoError(t, err)
					require.Equal(t, c.want, c.show(e), line)
				}
			}
		}
	}
}

func TestFormats(t *testing.T) {
	for f, name := range formatNames {
		got, err := ParseFormat(name)
		require.NoError(t, err)
		require.Equal(t, Format(f), got)
	}
	_, err := ParseFormat("xml")
	require.EqualError(t, err, `format "xml": unknown; use auto, json or combined`)
}

// sound requires the properties that later stages rely on.
func sound(t *testing.T, e *entry) {
	t.Helper()
	require.True(t, e.client.IsValid())
	require.True(t, strings.HasPrefix(string(e.path), "/"), "%q", e.path)
	require.NotEmpty(t, e.method)
	require.GreaterOrEqual(t, e.time, int64(0))
	require.LessOrEqual(t, e.time, int64(maxSeconds*1e6))
	require.GreaterOrEqual(t, e.duration, int64(-1))
	e.Header("X-A")
	e.Cookie("session")
	paths.AppendQuery(nil, e.query, "q")
}

func FuzzCombined(f *testing.F) {
	for _, c := range combinedLines {
		f.Add(c.line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if e, err := parsed(t, Config{Format: Combined}, line); err == nil {
			sound(t, e)
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, c := range jsonLines {
		f.Add(c.line)
	}
	f.Add(`{"a":[],"b":{},"c":[[1,"]"],{}],"d":-1.5e+3,"e":false,"f":"\\"}`)
	f.Fuzz(func(t *testing.T, line string) {
		line = strings.TrimSpace(line)
		if e, err := parsed(t, Config{Format: JSONLines}, line); err == nil {
			require.True(t, json.Valid([]byte(line)))
			sound(t, e)
		}
		if !json.Valid([]byte(line)) || line[0] != '{' || !utf8.ValidString(line) {
			return
		}
		// walk finds what encoding/json finds.
		dec := json.NewDecoder(strings.NewReader(line))
		dec.UseNumber()
		var want any
		require.NoError(t, dec.Decode(&want))
		require.Equal(t, want, walk([]byte(line)))
	})
}

// walk reads JSON with the functions under test.
func walk(value []byte) any {
	text := &arena{}
	switch value[0] {
	case '{':
		m := map[string]any{}
		for name, v := range members(value) {
			m[string(text.unquoted(name))] = walk(v)
		}
		return m
	case '[':
		list := []any{}
		for v := range items(value) {
			list = append(list, walk(v))
		}
		return list
	case '"':
		return string(text.scalar(value))
	case 't', 'f':
		return string(text.scalar(value)) == "true"
	case 'n':
		return nil
	}
	return json.Number(text.scalar(value))
}
