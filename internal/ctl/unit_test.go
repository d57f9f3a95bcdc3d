package ctl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region"
)

func TestSettle(t *testing.T) {
	alive := context.Background()
	ended, cancel := context.WithCancel(alive)
	cancel()
	f := func(ctx context.Context, err error, want int) {
		t.Helper()
		require.Equal(t, want, ExitStatus(settle(ctx, err)))
	}
	f(alive, nil, 0)
	f(alive, errors.New("x"), statusFailed)
	f(alive, failed("x"), statusFailed)
	f(alive, misused("x"), statusUsage)
	f(alive, partial("x"), statusPartial)
	f(alive, conflict("x"), statusConflict)
	f(alive, context.Canceled, statusFailed)
	f(ended, fmt.Errorf("consul: %w", context.Canceled), statusInterrupted)
	f(ended, failed("consul: %w", context.Canceled), statusInterrupted)
	f(ended, conflict("consul: %w", context.Canceled), statusConflict)
	f(ended, errors.New("x"), statusFailed)
	f(ended, nil, 0)
	require.Equal(t, "exit status 1", (&failure{status: 1}).Error())
}

func TestJudge(t *testing.T) {
	o := canaryOptions{maxLimited: 0.05, maxErrors: 0.01, minRequests: 100}
	f := func(canary, others traffic, want string) {
		t.Helper()
		require.Equal(t, want, o.excess(&canary, &others))
	}
	f(traffic{}, traffic{}, "")
	f(traffic{1000, 70, 0}, traffic{1000, 30, 0}, "")
	f(traffic{1000, 90, 0}, traffic{1000, 30, 0}, "it limited 9.00 % of 1000 requests, the other sites 3.00 % of 1000; at most 5 points more is allowed")
	f(traffic{1000, 10, 0}, traffic{1000, 300, 0}, "")
	f(traffic{1000, 0, 30}, traffic{1000, 0, 25}, "")
	f(traffic{1000, 0, 30}, traffic{1000, 0, 5}, "it answered 5xx to 3.00 % of 1000 requests, the other sites to 0.50 % of 1000; at most 1 points more is allowed")
	// Nobody to compare with: the bounds are absolute.
	f(traffic{1000, 40, 9}, traffic{}, "")
	f(traffic{1000, 60, 0}, traffic{}, "it limited 6.00 % of 1000 requests, the other sites 0.00 % of 0; at most 5 points more is allowed")
	require.False(t, o.enough(&traffic{Requests: 99}))
	require.True(t, o.enough(&traffic{Requests: 100}))
}

func TestTally(t *testing.T) {
	at := func(ok, bad, limited float64) *sample {
		return &sample{requests: map[string]float64{"2xx": ok, "5xx": bad}, limited: limited}
	}
	var c tally
	c.add("1", at(1000, 100, 50))
	require.Zero(t, c.total, "what happened before does not count")
	c.add("1", at(1090, 110, 55))
	require.Equal(t, traffic{100, 5, 10}, c.total)
	c.add("2", at(5000, 0, 0))
	require.Equal(t, traffic{100, 5, 10}, c.total)
	c.add("1", at(20, 1, 2)) // started anew
	require.Equal(t, traffic{121, 7, 11}, c.total)
	c.add("1", &sample{requests: map[string]float64{"2xx": 20, "5xx": 1, "4xx": 4}, limited: 5})
	require.Equal(t, traffic{125, 10, 11}, c.total, "a series that is new began at zero, and one that is gone adds nothing")
}

func TestReadMetrics(t *testing.T) {
	s := &sample{requests: map[string]float64{}}
	require.NoError(t, s.read(strings.NewReader(`# HELP weir_requests_total Requests.
# TYPE weir_requests_total counter
weir_requests_total{code_class="2xx"} 12
weir_requests_total{code_class="5xx"} 3e2
# TYPE weir_requests_totally_other gauge
weir_requests_totally_other{code_class="2xx"} 99
# TYPE weir_requests_limited_total counter
weir_requests_limited_total 15
# TYPE weir_rules_info gauge
weir_rules_info{version="0123456789ab"} 1
this is not a metric {
`)))
	require.Equal(t, &sample{"0123456789ab", map[string]float64{"2xx": 12, "5xx": 300}, 15}, s)
	require.ErrorContains(t, (&sample{}).read(strings.NewReader("<html>")), "has no weir_requests_total among its metrics; is this an edge?")
	require.ErrorContains(t, s.read(strings.NewReader("weir_requests_total{code_class=} x\n")), "are not metrics: ")
}

func TestAdminToken(t *testing.T) {
	var given []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Weir-Node", "ams1-1")
		given = append(given, r.Header.Get("Authorization"))
		if r.Header.Get("Authorization") != "Bearer correct horse" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		reply(w, map[string]any{"version": "0123456789ab"})
	}))
	defer server.Close()
	addr := server.Listener.Addr().String()
	ask := func(file string, insecure bool, admin string) error {
		a := newAdmin(file, insecure, 300*time.Millisecond)
		defer a.close()
		_, err := a.runs(t.Context(), rulesKind, region.Node{ID: "ams1-1", Admin: admin})
		return err
	}
	token := write(t, "token", "correct horse\n")
	require.NoError(t, ask(token, false, addr))
	require.EqualError(t, ask("", false, addr), "node ams1-1: admin "+addr+": answered 401: it wants a token; name a file with it as admin_token_file in the fleet file")
	wrong := write(t, "token", "battery staple")
	require.EqualError(t, ask(wrong, false, addr), "node ams1-1: admin "+addr+": answered 401: wrong token; put that of the edge's listen.admin_token_file into "+wrong)
	require.NoError(t, os.Remove(wrong))
	require.ErrorContains(t, ask(wrong, false, addr), "admin_token_file: open")

	// The token never leaves this host in the clear unless that is allowed.
	given = nil
	for _, elsewhere := range []string{"192.0.2.1:8081", "[2001:db8::1]:8081", "edge.example.com:8081"} {
		require.ErrorContains(t, ask(token, false, elsewhere), "the admin token would travel over plain HTTP; use a host beside the edges, or --insecure-admin")
	}
	require.NotContains(t, ask(token, true, "192.0.2.1:8081").Error(), "plain HTTP")
	require.NotContains(t, ask("", false, "192.0.2.1:8081").Error(), "plain HTTP", "without a token there is nothing to protect")
	require.Empty(t, given)
	require.ErrorContains(t, ask("", false, ""), "is no host:port; the node registered none")
	for host, want := range map[string]bool{"127.0.0.1": true, "127.8.8.8": true, "::1": true, "::ffff:127.0.0.1": true, "localhost": true, "10.0.0.1": false, "localhost.example": false} {
		require.Equal(t, want, isLoopback(host), host)
	}
}

func TestAdminIsBounded(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Weir-Node", "x")
		switch r.URL.Path {
		case "/v1/rules":
			<-hang
		case "/metrics":
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		default:
			_, _ = w.Write([]byte("<html>"))
		}
	}))
	defer server.Close()
	defer close(hang)
	a := newAdmin("", false, 200*time.Millisecond)
	defer a.close()
	n := region.Node{ID: "x", Admin: server.Listener.Addr().String()}
	_, err := a.runs(t.Context(), rulesKind, n)
	require.ErrorContains(t, err, "no answer in time")
	_, err = a.scrape(t.Context(), n)
	require.ErrorContains(t, err, "answered 302", "a redirect is not followed")
	_, err = a.explain(t.Context(), n, url.Values{})
	require.ErrorContains(t, err, "is not what an edge answers")
}

func TestKeys(t *testing.T) {
	k, err := parseKeys([]string{"203.0.113.7", "header:x-api-key=a=b", "path=/x", "cookie:s=1", "query:q=2", "tier=pro", "method=PUT", "host=h"})
	require.NoError(t, err)
	require.Equal(t, keys{"client_ip": "203.0.113.7", "header:X-Api-Key": "a=b", "path": "/x", "cookie:s": "1", "query:q": "2", "tier": "pro", "method": "PUT", "host": "h"}, k)
	for _, bad := range []string{"abc", "client=", "user=1", "header=1", "header:=1", "path=x", "host:a=b", "client=x"} {
		_, err := parseKeys([]string{bad})
		require.Equal(t, statusUsage, ExitStatus(err), bad)
	}
	_, err = parseKeys([]string{"::1", "client=::2"})
	require.ErrorContains(t, err, "given twice")

	d := documentOf(t, `rules:
  - {id: all-of-it, key: [client_ip, "header:X-A", "cookie:c", "query:q", host, path, method, tier], limit: 1, window: 1m, match: {headers: {x-a: v, X-B: w}}}
  - {id: other-value, key: [client_ip], limit: 1, window: 1m, match: {headers: {X-A: other}}}
  - {id: "off", key: [client_ip], limit: 1, window: 1m, mode: "off"}
`)
	k, err = parseKeys([]string{"::1", "header:X-A=v", "cookie:c=1", "query:q=2", "host=h", "path=/p?z=9", "method=PUT", "tier=t"})
	require.NoError(t, err)
	list, lacking := k.questions(d)
	require.Empty(t, lacking)
	require.Equal(t, []question{{"all-of-it", url.Values{
		"client": {"::1"}, "host": {"h"}, "method": {"PUT"}, "tier": {"t"}, "path": {"/p?q=2&z=9"}, "cookie": {"c=1"}, "header": {"X-A:v", "X-B:w"},
	}}}, list)
}

func TestFind(t *testing.T) {
	list := []region.Pointer{{Version: "aaaa11111111"}, {Version: "aaaa22222222"}, {Version: "bbbb11111111"}, {Version: "bbbb11111111"}}
	p, err := rulesKind.find(list, "bbbb")
	require.NoError(t, err)
	require.Equal(t, "bbbb11111111", p.Version)
	_, err = rulesKind.find(list, "bbb")
	require.ErrorContains(t, err, "unknown")
	_, err = rulesKind.find(list, "aaaa")
	require.ErrorContains(t, err, "several begin so, aaaa11111111 and aaaa22222222; give more digits")
	_, err = rulesKind.find(nil, "aaaa11111111")
	require.ErrorContains(t, err, "regionctl rules history lists them")
}

// Clocks of different people may be wrong; the change itself knows what it replaced.
func TestBeforeIgnoresClocks(t *testing.T) {
	at := func(version string, minute int, replaced string) region.Change {
		return region.Change{Pointer: region.Pointer{Version: version, AppliedAt: time.Unix(int64(minute)*60, 0)}, Replaced: replaced}
	}
	m := memory{changes: []region.Change{at("c", 9, "a"), at("b", 5, "c"), at("a", 1, "")}}
	m.pointer = &region.Pointer{Version: "b", AppliedAt: time.Unix(300, 0)}
	p, err := m.before()
	require.NoError(t, err)
	require.Equal(t, "c", p)
	m.pointer = &region.Pointer{Version: "d", AppliedAt: time.Unix(999, 0)} // its change was not recorded
	p, err = m.before()
	require.NoError(t, err)
	require.Equal(t, "c", p)
	m.changes = nil
	_, err = m.before()
	require.ErrorContains(t, err, "the history knows no version before d; name one with --to")
}

func TestText(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "0s", -time.Hour: "0s", 59 * time.Second: "59s", 5 * time.Minute: "5m", 3*time.Hour + 5*time.Minute: "3h5m", 72 * time.Hour: "3d",
	} {
		require.Equal(t, want, ago(now, now.Add(-d)))
	}
	require.Equal(t, 5, width("\x1b[31mgrün!\x1b[0m"))
	require.Equal(t, "ab…", clip("abcd", 3))
	require.Equal(t, "a?b?c?", printable("a\x1bb\nc\xff"))
	require.Equal(t, "-", orDash(""))
	require.Equal(t, "1 rule, 2 rules", plural(1, "rule")+", "+plural(2, "rule"))
	require.Equal(t, "a b", strings.Join(distinct([]string{"a", "b", "a"}), " "))
	require.Equal(t, "[====================                    ]  50 %, 7 lines", progressBar(5, 10, 7))
	require.Equal(t, "7 lines, 5 MB", progressBar(5<<20, 0, 7))
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	l := &lines{w: &b}
	l.update([]string{"a 1", ""})
	l.update([]string{"a 1", "b 1"})
	l.update([]string{"a 2", "b 1"})
	require.Equal(t, "a 1\nb 1\na 2\n", b.String(), "elsewhere each line is written when it changes")
	b.Reset()
	l = &lines{w: &b, live: true, width: 10}
	l.update([]string{"a", "b"})
	l.update([]string{"0123456789abc", "b"})
	require.Equal(t, "\r\x1b[Ka\n\r\x1b[Kb\n\x1b[2A\r\x1b[K01234567…\n\r\x1b[Kb\n", b.String())
}

func TestWhoami(t *testing.T) {
	t.Setenv("WEIR_USER", "ana")
	name, err := whoami("")
	require.NoError(t, err)
	require.Equal(t, "ana", name)
	name, err = whoami("bob")
	require.NoError(t, err)
	require.Equal(t, "bob", name)
	t.Setenv("WEIR_USER", "")
	name, err = whoami("")
	require.NoError(t, err)
	require.Regexp(t, ".+@.+", name)
	_, err = whoami("a\nb")
	require.Equal(t, statusUsage, ExitStatus(err))
	_, err = whoami(strings.Repeat("x", 129))
	require.Equal(t, statusUsage, ExitStatus(err))
}

func TestColours(t *testing.T) {
	p := &program{live: true}
	t.Setenv("TERM", "xterm")
	require.True(t, p.errStyle().on)
	p.noColor = true
	require.False(t, p.errStyle().on)
	p.noColor = false
	t.Setenv("NO_COLOR", "1")
	require.False(t, p.errStyle().on)
	require.Equal(t, "x", style{}.red("x"))
}

func TestRegisteredRefusal(t *testing.T) {
	require.Equal(t, &refusal{Version: "0123456789ab", Errors: []string{"rules[0].id: is required"}}, registeredRefusal("0123456789ab: rules[0].id: is required"))
	require.Equal(t, &refusal{Errors: []string{"weir/rules/current: is missing"}}, registeredRefusal("weir/rules/current: is missing"))
}
