package nginx

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/ctl/replay"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

var update = flag.Bool("update", false, "write testdata/*.rules.yaml")

// files is a configuration of several files; the first is nginx.conf.
func files(text string, more map[string]string) Source {
	s := Source{Read: func(max int, name string) ([]byte, error) {
		if name == "nginx.conf" {
			return []byte(text), nil
		}
		if t, ok := more[name]; ok {
			return []byte(t), nil
		}
		return nil, errors.New(name + ": no such file")
	}}
	s.Glob = func(pattern string) ([]string, error) {
		if _, ok := more[pattern]; ok {
			return []string{pattern}, nil
		}
		return nil, nil
	}
	return s
}

func TestTranslate(t *testing.T) {
	text, err := os.ReadFile("testdata/shop.conf")
	require.NoError(t, err)
	got, err := Translate("nginx.conf", files(string(text), nil))
	require.NoError(t, err)
	document, err := yaml.Marshal(got.Document)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("testdata/shop.rules.yaml", document, 0o600))
	}
	want, err := os.ReadFile("testdata/shop.rules.yaml")
	require.NoError(t, err)
	require.Equal(t, string(want), string(document))
	_, err = rules.Load(document)
	require.NoError(t, err)
	report := strings.Join(got.Report, "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("testdata/shop.report", []byte(report), 0o600))
	}
	want, err = os.ReadFile("testdata/shop.report")
	require.NoError(t, err)
	require.Equal(t, string(want), report)
}

func TestRefused(t *testing.T) {
	f := func(want, text string) {
		t.Helper()
		_, err := Translate("nginx.conf", files(text, map[string]string{"loop.conf": "include loop.conf;"}))
		require.EqualError(t, err, want)
	}
	f("nginx.conf:1: a block is not closed; add }", "http {")
	f("nginx.conf:1: unexpected }", "}")
	f("nginx.conf:2: user is not ended; add ;", "\nuser a")
	f("nginx.conf:1: a quote is not closed", `user "a`)
	f("loop.conf: is included more than 16 deep; does it include itself?", "include loop.conf;")
	f("nginx.conf:1: limit_req_zone: needs a key and a zone", "limit_req_zone $host;")
	f(`nginx.conf:1: limit_req_zone: rate: must be a number and r/s or r/m (got "5r/h")`, "limit_req_zone $host zone=a:1m rate=5r/h;")
	f("nginx.conf:2: limit_req_zone: zone a is also in nginx.conf:1", "limit_req_zone $host zone=a:1m rate=5r/s;\nlimit_req_zone $host zone=a:1m rate=5r/s;")
	f(`nginx.conf:1: limit_req: zone "a" is not defined`, "http { server { limit_req zone=a; } }")
	f(`nginx.conf:1: limit_req_zone: a $ without the name of a variable`, "limit_req_zone $ zone=a:1m;")
	f("nginx.conf:1: blocks are nested more than 16 deep", "a {a {a {a {a {a {a {a {a {a {a {a {a {a {a {a {a {a {")
}

// For random configurations and logs, the rules decide like the model of nginx wherever the
// import reported nothing.
func TestRulesDecideAsNginx(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	places := []string{"/", "/api/", "/api/free/", "/static/", "= /login", "^~ /api/x", `~ ^/up/`}
	keys := []string{"$binary_remote_addr", "$client", "$http_x_api_key", "$host", "$writer", `"$binary_remote_addr$cookie_s"`}
	exact, refused := 0, int64(0)
	for range 300 {
		var b bytes.Buffer
		fmt.Fprintln(&b, `geo $out { default 1; 10.0.0.0/8 0; } map $out $client { 0 ""; 1 $binary_remote_addr; } map $request_method $writer { default ""; POST $binary_remote_addr; }`)
		for i := range 3 {
			fmt.Fprintf(&b, "limit_req_zone %s zone=z%d:1m rate=%dr/%s;\n", keys[r.IntN(len(keys))], i, []int{1, 2, 5}[r.IntN(3)], "s")
		}
		fmt.Fprintln(&b, "limit_conn_zone $binary_remote_addr zone=c:1m;")
		limits := func() string {
			if r.IntN(3) == 0 {
				return ""
			}
			text := fmt.Sprintf("limit_req zone=z%d burst=%d nodelay;", r.IntN(3), r.IntN(3))
			if r.IntN(3) == 0 {
				text += fmt.Sprintf(" limit_req zone=z%d burst=7 nodelay;", r.IntN(3))
			}
			return text
		}
		fmt.Fprintln(&b, limits())
		for _, name := range [][]string{{"_"}, {"_", "b.example"}}[r.IntN(2)] {
			fmt.Fprintf(&b, "server { server_name %s; %s\n", name, limits())
			for _, p := range places {
				if r.IntN(2) == 0 {
					fmt.Fprintf(&b, "  location %s { %s }\n", p, limits())
				}
			}
			fmt.Fprintln(&b, "}")
		}
		got, err := Translate("nginx.conf", files(b.String(), nil))
		require.NoError(t, err, b.String())
		if !harmless(got.Report) {
			continue
		}
		exact++
		var log bytes.Buffer
		now := int64(1_800_000_000_000)
		for range 200 {
			now += r.Int64N(120)
			fmt.Fprintf(&log, `{"time":%d,"client":"%s","host":"%s","method":"%s","path":"%s","headers":{"X-Api-Key":"%s","Cookie":"s=%s"}}`+"\n", now,
				[]string{"203.0.113.1", "203.0.113.2", "10.1.1.1", "2001:db8::1", "2001:db8::2"}[r.IntN(5)], []string{"a.example", "b.example"}[r.IntN(2)],
				[]string{"GET", "POST"}[r.IntN(2)], []string{"/", "/x", "/api", "/api/", "/api/v", "/api/free/v", "/static/a.js", "/login", "/login/x", "/api/xy", "/up/load"}[r.IntN(11)],
				[]string{"", "k1", "k2"}[r.IntN(3)], []string{"", "1"}[r.IntN(2)])
		}
		set, err := rules.Compile(got.Document)
		require.NoError(t, err)
		proof, err := replay.Prove(t.Context(), replay.Config{Candidate: set}, bytes.NewReader(log.Bytes()), func(q *replay.Request) bool {
			is := got.Model.Refuses(q)
			if is {
				refused++
			}
			return is
		})
		require.NoError(t, err)
		document, err := yaml.Marshal(got.Document)
		require.NoError(t, err)
		require.Empty(t, proof.Disagreements, "%s\n%s\n%v", b.String(), document, got.Report)
		require.EqualValues(t, 200, proof.Requests)
		require.Zero(t, proof.BadRequests)
	}
	require.Greater(t, exact, 40)
	require.Greater(t, refused, int64(500))
}

// harmless reports whether a report names only unused zones.
func harmless(report []string) bool {
	for _, line := range report {
		if !strings.HasSuffix(line, ": it limits nothing") {
			return false
		}
	}
	return true
}
