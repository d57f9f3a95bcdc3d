package ctl

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func testDiff(t *testing.T, f *testFleet) {
	file := write(t, "rules.yaml", rulesOf(2))
	r := f.good(t, "rules", "diff", file)
	require.Contains(t, r.out, "eu-west, us-east: no rules published yet")
	p := f.publish(t, rulesOf(1), "ana", "eu-west")
	f.publish(t, rulesOf(2), "bob", "us-east")
	r = f.good(t, "rules", "diff", file)
	require.Contains(t, r.out, "eu-west runs "+p.Version+" (ana, "+term.Stamp(p.AppliedAt)+"); "+file+" is ")
	require.Contains(t, r.out, "  ~ per-client  limit: 1 → 2\n  0 added, 0 removed, 1 changed, 0 as before\n\nus-east runs ")
	require.Contains(t, r.out, "  no difference\n")
	require.Equal(t, term.StatusFailed, f.run(t, "rules", "diff", file, "--exit-code").status)
	require.Zero(t, f.run(t, "rules", "diff", file, "--exit-code", "--region", "us-east").status)
	report := parse[struct {
		Different bool
		Groups    []struct {
			Same       bool
			Difference *difference
		}
	}](t, f.good(t, "rules", "diff", file, "-o", "json").out)
	require.True(t, report.Different)
	require.Equal(t, []fieldChange{{"limit", "1", "2"}}, report.Groups[0].Difference.Changed[0].Fields)
	require.True(t, report.Groups[1].Same)
	r = f.good(t, "rules", "diff", write(t, "comment.yaml", "# ten\n"+rulesOf(2)), "--region", "us-east")
	require.Contains(t, r.out, "the text differs, but no rule does")
}

func testRollback(t *testing.T, f *testFleet) {
	edge := f.edge(t, "eu-west", "ams1", "ams1-1")
	r := f.run(t, "rules", "rollback", "--yes")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "eu-west: no rules are active; name a version with --to; nothing was changed")
	var versions []string
	for limit := range 3 {
		f.good(t, "rules", "apply", write(t, "rules.yaml", rulesOf(limit+1)), "--yes")
		versions = append(versions, f.current(t, "eu-west"))
	}
	r = f.good(t, "rules", "rollback", "--yes", "--by", "carl")
	require.Contains(t, r.out, "limit: 3 → 2")
	require.Equal(t, versions[1], f.current(t, "us-east"))
	require.Equal(t, versions[1], edge.runs())
	changes, _, err := f.rules("us-east").History(t.Context())
	require.NoError(t, err)
	require.Equal(t, "rollback to "+versions[1], changes[0].Message)
	require.Equal(t, versions[2], changes[0].Replaced)
	require.Equal(t, "carl", changes[0].AppliedBy)
	f.good(t, "rules", "rollback", "--yes")
	require.Equal(t, versions[2], f.current(t, "us-east"), "twice is where it began")
	f.good(t, "rules", "rollback", "--yes", "--to", versions[0][:5])
	require.Equal(t, versions[0], f.current(t, "us-east"))

	// Regions that would go different ways.
	f.good(t, "rules", "rollback", "--yes", "--to", versions[1], "--region", "us-east")
	r = f.run(t, "rules", "rollback", "--yes")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "eu-west to "+versions[2]+", us-east to "+versions[0])
	require.Equal(t, term.StatusUsage, f.run(t, "rules", "rollback", "--yes", "--to", "ffffffffffff").status)

	s := f.converse(t, "rules", "rollback", "--to", versions[2])
	s.sees(t, "Apply to eu-west, us-east? [y/N] ")
	s.answer(t, "yes")
	require.Zero(t, s.end(t).status)
}

func testHistory(t *testing.T, f *testFleet) {
	require.Equal(t, "no changes yet\n", f.good(t, "rules", "history").out)
	f.good(t, "rules", "apply", write(t, "rules.yaml", rulesOf(1)), "--yes", "--by", "ana", "-m", "first")
	f.good(t, "rules", "apply", write(t, "rules.yaml", rulesOf(2)), "--yes", "--by", "bob", "-m", "second", "--region", "us-east")
	r := f.good(t, "rules", "history")
	lines := strings.Split(r.out, "\n")
	require.Regexp(t, `^   WHEN +BY +VERSION +REPLACED +REGIONS +MESSAGE$`, lines[0])
	require.Regexp(t, `^\*  \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ  bob  `+f.current(t, "us-east")+`  `+f.current(t, "eu-west")+`  us-east  second$`, lines[1])
	require.Regexp(t, `^\*  .*  ana  `+f.current(t, "eu-west")+`  -             all      first$`, lines[2])
	list := parse[[]past](t, f.good(t, "rules", "history", "-o", "json").out)
	require.Equal(t, []string{"us-east"}, list[0].Regions)
	require.Equal(t, []string{"eu-west"}, list[1].Current)
	require.Equal(t, f.names, list[1].Regions)
	r = f.good(t, "rules", "history", "-n", "1")
	require.Contains(t, r.out, "… and 1 change before; -n 0 shows all")
	require.NotContains(t, f.good(t, "rules", "history", "--region", "eu-west").out, "bob")
}

func testShow(t *testing.T, f *testFleet) {
	r := f.run(t, "rules", "show")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "no rules are active")
	text := "# a comment\n" + rulesOf(1)
	f.good(t, "rules", "apply", write(t, "rules.yaml", text), "--yes")
	require.Equal(t, text, f.good(t, "rules", "show").out)
	old := f.current(t, "eu-west")
	f.good(t, "rules", "apply", write(t, "rules.yaml", rulesOf(2)), "--yes", "--region", "us-east")
	r = f.run(t, "rules", "show")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "the regions have different active versions")
	require.Equal(t, rulesOf(2), f.good(t, "rules", "show", "--region", "us-east").out)
	require.Equal(t, text, f.good(t, "rules", "show", old).out)
	v := parse[shown](t, f.good(t, "rules", "show", old[:6], "-o", "json").out)
	require.Equal(t, text, v.Document)
	require.Equal(t, old, v.Pointer.Version)
	require.Equal(t, term.StatusUsage, f.run(t, "rules", "show", "abc").status)
}

func testStatus(t *testing.T, f *testFleet) {
	r := f.run(t, "rules", "status")
	require.Equal(t, term.StatusPartial, r.status, "no edges are not all edges")
	require.Contains(t, r.out, "eu-west: no rules published yet\n  no edge is registered, or this token may not see them\n")
	e, other := f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "us-east", "iad1", "iad1-1")
	p := f.publish(t, rulesOf(1), "ana", f.names...)
	require.Eventually(t, func() bool { return e.runs() == p.Version && other.runs() == p.Version }, patience, tick)
	r = f.good(t, "rules", "status")
	require.Contains(t, r.out, "eu-west: "+p.Version+" by ana, "+term.Stamp(p.AppliedAt))
	require.Regexp(t, `  EDGE    POP   RUNS          SINCE  SOURCE  FROM   CHECK    CONVERGED\n  ams1-1  ams1  `+p.Version+`  1h0m   consul  admin  passing  yes\n`, r.out)
	require.Contains(t, r.out, "\nconverged: yes\n")

	// An edge that follows a canary runs what it should.
	trial := consul.NewPointer([]byte(rulesOf(2)), "bob", time.Now())
	ends := time.Now().Add(time.Hour)
	trial.ExpiresAt = &ends
	_, err := f.rules("eu-west").Put(t.Context(), []byte(rulesOf(2)))
	require.NoError(t, err)
	f.try(t, "eu-west", "ams1", trial)
	require.Eventually(t, func() bool { return e.runs() == trial.Version }, patience, tick)
	r = f.good(t, "rules", "status")
	require.Contains(t, r.out, "canary on ams1: "+trial.Version+" by bob, until "+term.Stamp(ends))
	require.Contains(t, r.out, "consul (canary)")
	apply := f.good(t, "rules", "apply", write(t, "rules.yaml", rulesOf(3)), "--yes")
	require.Contains(t, apply.errOut, "warning: eu-west: bob tries "+trial.Version+" on ams1")
	require.Contains(t, apply.errOut, "eu-west: canary of bob on ams1 ended\n")
	require.Contains(t, apply.errOut, "eu-west  1 of 1 edges run "+f.current(t, "eu-west")+"\n")
	require.Equal(t, f.current(t, "eu-west"), e.runs())

	e.mu.Lock()
	e.stays, e.version = true, "0123456789ab"
	e.mu.Unlock()
	r = f.run(t, "rules", "status", "-o", "json")
	require.Equal(t, term.StatusPartial, r.status)
	s := parse[convergence](t, r.out)
	require.False(t, s.Converged)
	require.False(t, s.Regions[0].Converged)
	require.Equal(t, "0123456789ab", s.Regions[0].Nodes[0].Version)
	require.True(t, s.Regions[1].Converged)
	require.Contains(t, r.errOut, "regionctl: not converged: eu-west; ")
}

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
		require.Equal(t, 2, len(parse[convergence](t, lines.Text()).Regions), "each look is a line")
	}
	cancel()
	for lines.Scan() { // what was on its way
	}
	require.NoError(t, <-ended, "this is how it is meant to end")
	require.Empty(t, errOut.String())
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
	require.Equal(t, 1, silent.seen["/v1/explain"], "the next edge is asked when one does not answer")

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
				for _, id := range []string{"per-client", "login", "per-path", "per-key", "all", "per-net"} {
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
	}, asked)
	asked = nil
	list := parse[[]inspected](t, f.good(t, "limits", "inspect", "header:x-api-key=abc", "-o", "json").out)
	require.Len(t, list, 2)
	require.Equal(t, "per-key", list[1].Rules[0].Rule)
	require.Equal(t, int64(4), list[1].Rules[0].Remaining)
	require.Equal(t, "client=10.0.0.0&header=X-Api-Key%3Aabc&method=GET&path=%2F", asked[0], "a client that the rule matches is made up")
	r = f.good(t, "limits", "inspect", "client=203.0.113.7", "path=/a", "--rule", "per-path")
	require.Contains(t, r.out, "weir:per-path")
	require.NotContains(t, r.out, "weir:per-client")
	require.Contains(t, f.good(t, "limits", "inspect", "tier=pro").out, "no rule counts by that")
	require.Equal(t, term.StatusFailed, f.run(t, "limits", "inspect", "203.0.113.7", "--rule", "nothing").status)
}

func testReset(t *testing.T, f *testFleet) {
	a, b := f.edge(t, "eu-west", "ams1", "ams1-1"), f.edge(t, "us-east", "iad1", "iad1-1")
	args := []string{"limits", "reset", "--rule", "login", "--client", "203.0.113.7"}
	r := f.run(t, args...)
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "pass --yes")
	require.Empty(t, a.resets)
	r = f.good(t, append(args, "--yes")...)
	require.Contains(t, r.out, "eu-west  ams1-1  reset   weir:{203.0.113.7}:login:rr\n")
	require.Equal(t, "login", b.resets[0].Get("rule"), "every edge is told")

	b.mu.Lock()
	b.silent = true
	b.mu.Unlock()
	r = f.run(t, append(args, "--yes", "-o", "json")...)
	require.Equal(t, term.StatusPartial, r.status)
	list := parse[[]resetNode](t, r.out)
	require.Empty(t, list[0].Error)
	require.Contains(t, list[1].Error, "answered 500")
	require.Contains(t, r.errOut, "1 of 2 edges did not reset it; run this again")

	a.mu.Lock()
	a.refused = http.StatusNotFound
	a.mu.Unlock()
	r = f.run(t, append(args, "--yes", "--region", "eu-west")...)
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "rule login does not count the described request; /v1/explain shows which do")
	require.Equal(t, term.StatusUsage, f.run(t, "limits", "reset", "--client", "::1", "--yes").status)
}

func testCompletion(t *testing.T, f *testFleet) {
	f.edge(t, "eu-west", "ams1", "ams1-1")
	p := f.publish(t, rulesOf(1), "ana", f.names...)
	f2 := func(want string, args ...string) {
		t.Helper()
		t.Setenv("WEIR_FLEET", f.file)
		var out buffer
		require.NoError(t, Run(t.Context(), append([]string{"__complete"}, args...), strings.NewReader(""), &out, io.Discard))
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

// A file that was made from an older version does not revert what came between.
func TestIfVersion(t *testing.T) {
	f := startFleet(t, "eu-west", "us-east")
	apply := func(document string, flags ...string) result {
		return f.run(t, append([]string{"rules", "apply", write(t, "rules.yaml", document), "--yes", "--wait", "0"}, flags...)...)
	}
	require.Equal(t, term.StatusConflict, apply(rulesOf(1), "--if-version", versionOf(rulesOf(9))).status)
	require.Empty(t, f.current(t, "eu-west"))
	require.Zero(t, apply(rulesOf(1), "--if-version", "none").status)
	f.publish(t, rulesOf(2), "bob", "us-east")
	r := apply(rulesOf(3), "--if-version", versionOf(rulesOf(1)))
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "nothing was changed: us-east runs "+versionOf(rulesOf(2))+", not "+versionOf(rulesOf(1))+" of --if-version; ")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
	require.Zero(t, apply(rulesOf(2), "--if-version", versionOf(rulesOf(1))[:6]).status, "us-east has it already")
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "eu-west"))
	require.Equal(t, term.StatusUsage, apply(rulesOf(3), "--if-version", "latest").status)

	set := write(t, "shedder.yaml", settingsOf(400))
	require.Equal(t, term.StatusConflict, f.run(t, "shedder", "set", set, "--yes", "--wait", "0", "--if-version", "0123456789ab").status)
	require.Zero(t, f.run(t, "shedder", "set", set, "--yes", "--wait", "0", "--if-version", "none").status)
}
