package ctl

import (
	"bufio"
	"context"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/term"
)

func testWatch(t *testing.T, f *testFleet) {
	f.publish(t, rulesOf(1), "ana", f.names...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, written := io.Pipe()
	var errOut buffer
	ended := make(chan error, 1)
	go func() {
		err := Run(ctx, []string{"rules", "status", "--watch=100ms", "-o", "json", "--fleet", f.file}, strings.NewReader(""), written, &errOut)
		_ = written.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(read)
	for range 3 {
		require.True(t, lines.Scan())
		require.Equal(t, 2, len(parse[convergence](t, lines.Text()).Regions), "each reading is a line")
	}
	cancel()
	for lines.Scan() { // what was in flight
	}
	require.NoError(t, <-ended, "the expected end")
	require.NotContains(t, errOut.String(), "regionctl:")
	require.Equal(t, term.StatusUsage, f.run(t, "rules", "status", "--watch=1ms").status)
}

func testExplain(t *testing.T, f *testFleet) {
	var asked url.Values
	answer := func(s *stub) {
		s.explain = func(q url.Values) adminapi.Explanation {
			asked = q
			return adminapi.Explanation{
				Client: q.Get("client"), RulesVersion: s.version, Upstream: "checkout", Class: "write", Verdict: "refuse, 429", RetryAfter: "9.8s",
				Rules: []adminapi.RuleDecision{{
					Rule: "per-client", Mode: "enforce", Algorithm: "rolling_window", Key: "weir:{203.0.113.7}:per-client:rr", Cost: 1,
					Limit: 10, Window: "10s", RetryAfter: "9.8s", ResetAfter: "9.9s", Source: "redis",
				}},
			}
		}
	}
	silent := f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) { s.silent = true })
	f.edge(t, "eu-west", "fra1", "fra1-1", answer)
	args := []string{"limits", "explain", "--client", "203.0.113.7", "--method", "POST", "--host", "a.example", "--path", "/login?x=1", "--header", "X-A: b", "--cookie", "c=d", "--tier", "pro"}
	r := f.run(t, args...)
	require.Equal(t, term.StatusPartial, r.status, "us-east has no edge")
	require.Contains(t, r.errOut, "no answer from us-east:\nus-east: no edge is registered there")
	require.Regexp(t, `eu-west \(edge fra1-1, rules -\): refuse, 429, retry after 9.8s\n`, r.out)
	require.Contains(t, r.out, "  goes to upstream checkout as class write\n")
	require.Contains(t, r.out, "  RULE        MODE     LEFT  LIMIT      ALLOWED      RESET  FROM   COUNTER\n")
	require.Contains(t, r.out, "  per-client  enforce  0     10 in 10s  no, in 9.8s  9.9s   redis  weir:{203.0.113.7}:per-client:rr\n")
	require.Equal(t, url.Values{"client": {"203.0.113.7"}, "method": {"POST"}, "host": {"a.example"}, "path": {"/login?x=1"}, "header": {"X-A: b"}, "cookie": {"c=d"}, "tier": {"pro"}}, asked)
	require.Equal(t, 1, silent.seen["/v1/explain"], "the next edge is asked when one fails")

	list := parse[[]struct{ Region, Node, Upstream, Class, Verdict string }](t, f.good(t, append(args, "--region", "eu-west", "-o", "json")...).out)
	require.Equal(t, "eu-west fra1-1 checkout write refuse, 429", strings.Join([]string{list[0].Region, list[0].Node, list[0].Upstream, list[0].Class, list[0].Verdict}, " "))
	r = f.good(t, "limits", "explain", "--client", "203.0.113.7", "--node", "fra1-1")
	require.NotContains(t, r.out, "us-east")
	r = f.run(t, "limits", "explain", "--client", "203.0.113.7", "--node", "ams1-1")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "node ams1-1: admin "+silent.admin()+": answered 500: the stub is silent")
	r = f.run(t, "limits", "explain", "--client", "203.0.113.7", "--node", "nobody")
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, `no edge "nobody" is registered there`)
	for _, bad := range [][]string{{}, {"--client", "x"}, {"--client", "::1", "--path", "x"}, {"--client", "::1", "--header", "x"}, {"--client", "::1", "--cookie", "x"}} {
		require.Equal(t, term.StatusUsage, f.run(t, append([]string{"limits", "explain"}, bad...)...).status, "%v", bad)
	}
}

func testInspect(t *testing.T, f *testFleet) {
	document := `rules:
  - {id: per-client, key: [client_ip], limit: 10, window: 1m}
  - {id: login, match: {hosts: ["*.example.com"], paths: ["/login/*"], methods: [POST], headers: {X-Plan: free}}, key: [client_ip], limit: 3, window: 1m}
  - {id: per-path, key: [client_ip, path], limit: 5, window: 1m}
  - {id: per-key, match: {clients: [10.0.0.0/8]}, key: ["header:X-Api-Key"], limit: 5, window: 1m}
  - {id: all, key: [], limit: 5, window: 1m}
  - {id: per-net, match: {clients: ["2001:db8::/32"]}, key: [client_net], limit: 5, window: 1m}
  - {id: posts, match: {not: {methods: [GET, HEAD]}}, key: [client_ip], limit: 5, window: 1m}
  - {id: public, match: {paths: ["/*"], not: {clients: [203.0.113.0/24]}}, key: [client_ip], limit: 5, window: 1m}
`
	f.publish(t, document, "ana", f.names...)
	var mu sync.Mutex
	var asked []string
	for _, name := range f.names {
		f.edge(t, name, "pop1", name+"-1", func(s *stub) {
			s.explain = func(q url.Values) adminapi.Explanation {
				mu.Lock()
				asked = append(asked, q.Encode())
				mu.Unlock()
				var list []adminapi.RuleDecision
				for _, id := range []string{"per-client", "login", "per-path", "per-key", "all", "per-net", "posts", "public"} {
					list = append(list, adminapi.RuleDecision{Rule: id, Mode: "enforce", Limit: 10, Window: "1m", Allowed: true, Remaining: 4, ResetAfter: "1s", Source: "redis", Key: "weir:" + id})
				}
				return adminapi.Explanation{RulesVersion: s.version, Verdict: "pass", Rules: list}
			}
		})
	}
	r := f.good(t, "limits", "inspect", "203.0.113.7", "--region", "eu-west")
	require.Contains(t, r.out, "weir:per-client")
	require.Contains(t, r.out, "weir:login")
	require.NotContains(t, r.out, "weir:all")
	require.Contains(t, r.out, "weir:per-net")
	require.Contains(t, r.out, "  per-path also counts by path; give that, too\n")
	require.Equal(t, []string{
		"client=203.0.113.7&method=GET&path=%2F",
		"client=203.0.113.7&header=X-Plan%3Afree&host=any.example.com&method=POST&path=%2Flogin%2F",
		"client=203.0.113.7&method=POST&path=%2F",
	}, asked)
	require.Contains(t, r.out, "weir:posts", "match.not exempts a GET, so inspect invents a POST")
	require.Contains(t, r.out, "  public does not count it: match.not exempts it\n")
	require.NotContains(t, r.out, "weir:public")
	asked = nil
	list := parse[[]inspected](t, f.good(t, "limits", "inspect", "header:x-api-key=abc", "-o", "json").out)
	require.Len(t, list, 2)
	require.Equal(t, "per-key", list[1].Rules[0].Rule)
	require.Equal(t, int64(4), list[1].Rules[0].Remaining)
	require.Equal(t, "client=10.0.0.0&header=X-Api-Key%3Aabc&method=GET&path=%2F", asked[0], "inspect invents a client that the rule matches")
	r = f.good(t, "limits", "inspect", "client=203.0.113.7", "path=/a", "--rule", "per-path")
	require.Contains(t, r.out, "weir:per-path")
	require.NotContains(t, r.out, "weir:per-client")
	require.Contains(t, f.good(t, "limits", "inspect", "tier=pro").out, "no rule counts by that")
	require.Equal(t, term.StatusFailed, f.run(t, "limits", "inspect", "203.0.113.7", "--rule", "nothing").status)
}

func testCompletion(t *testing.T, f *testFleet) {
	f.edge(t, "eu-west", "ams1", "ams1-1")
	p := f.publish(t, rulesOf(1), "ana", f.names...)
	f2 := func(want string, args ...string) {
		t.Helper()
		var out buffer
		require.NoError(t, Run(t.Context(), append([]string{"__complete", "--fleet", f.file}, args...), strings.NewReader(""), &out, io.Discard))
		require.Contains(t, out.String(), want)
	}
	f2("eu-west\nus-east\n", "rules", "apply", "x", "--region", "")
	f2(p.Version+"\t", "rules", "show", "")
	f2(p.Version+"\t", "rules", "rollback", "--to", "")
	f2("ams1\n", "rules", "apply", "x", "--canary", "")
	f2("per-client\n", "limits", "reset", "--rule", "")
	f2("ams1-1\n", "limits", "explain", "--node", "")
	f2("table\njson\n", "rules", "status", "-o", "")
	f2("yaml\n", "rules", "validate", "")
}

func testReplay(t *testing.T, f *testFleet) {
	f.publish(t, rulesOf(3), "ana", f.names...)
	var log strings.Builder
	for range 5 {
		log.WriteString(`203.0.113.7 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 12` + "\n")
	}
	traffic, file := write(t, "access.log", log.String()), write(t, "rules.yaml", rulesOf(1))
	r := f.good(t, "rules", "test", file, traffic)
	require.Contains(t, r.out, "newly limited: 2 requests of 1 client")
	report := parse[struct {
		Candidate struct{ Limited int }
		Running   struct{ Limited int }
	}](t, f.good(t, "rules", "test", file, traffic, "-o", "json").out)
	require.Equal(t, 4, report.Candidate.Limited)
	require.Equal(t, 2, report.Running.Limited)
	f.publish(t, rulesOf(4), "ana", "us-east")
	require.Equal(t, term.StatusUsage, f.run(t, "rules", "test", file, traffic).status)
	f.good(t, "rules", "test", file, traffic, "--region", "us-east")
	f.good(t, "rules", "test", file, traffic, "--against", write(t, "old.yaml", rulesOf(9)))
}
