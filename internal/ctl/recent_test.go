package ctl

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/clients"
	"github.com/weir-edge/weir/internal/ctl/rules"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// lately answers with a stub's recent requests.
func (s *stub) lately(w http.ResponseWriter, r *http.Request) {
	if s.recentSince.IsZero() {
		w.WriteHeader(http.StatusNotFound)
		reply(w, adminapi.Problem{Detail: "this node keeps no requests; set recent.keep to how many it should"})
		return
	}
	w.Header().Set(adminapi.HeaderSince, s.recentSince.Format(time.RFC3339Nano))
	w.Header().Set(adminapi.HeaderShare, "0.5")
	w.Header().Set(adminapi.HeaderLost, "1")
	client, _ := netip.ParsePrefix(r.URL.Query().Get("client"))
	for _, line := range s.recent {
		if client.IsValid() && !strings.Contains(line, client.Addr().String()) || r.URL.Query().Has("refused") && strings.Contains(line, `"pass"`) {
			continue
		}
		_, _ = fmt.Fprintln(w, line)
	}
}

var tenOClock = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

// kept returns a request at so many seconds after ten.
func keptAt(second int, client, verdict, more string) string {
	return fmt.Sprintf(`{"time":"%s","client":"%s","method":"GET","host":"\u001b[31m","target":"/%d","status":200,"verdict":"%s"%s}`, tenOClock.Add(time.Duration(second)*time.Second).Format("2006-01-02T15:04:05.000000Z"), client, second, verdict, more)
}

// The decisions of a region's edges are merged by time, from when all edges have them, and
// replayed; edges without any are named.
func TestRecentTraffic(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "rules", "apply", write(t, "three.yaml", rulesOf(3)), "--yes", "--wait", "0")
	one := write(t, "one.yaml", rulesOf(1))
	fails := func(status int, args ...string) result {
		t.Helper()
		r := f.run(t, args...)
		require.Equal(t, status, r.status, r.errOut)
		return r
	}
	keeps := func(since int, lines ...string) func(*stub) {
		return func(s *stub) { s.recentSince, s.recent = tenOClock.Add(time.Duration(since)*time.Second), lines }
	}
	f.edge(t, "eu-west", "ams1", "ams1-1", keeps(0, keptAt(0, "203.0.113.7", "pass", ""), keptAt(20, "203.0.113.7", "pass", ""), keptAt(40, "203.0.113.7", "limited", `,"rules":"per-client","cut":true`)))
	f.edge(t, "eu-west", "ams1", "ams1-2", keeps(10, keptAt(10, "203.0.113.7", "pass", ""), keptAt(30, "198.51.100.1", "pass", "")))

	r := parse[rules.Tested](t, f.good(t, "rules", "test", one, "--from-nodes", "--region", "eu-west", "-o", "json").out)
	require.EqualValues(t, 4, r.Requests, "the one before ams1-2 had any is left out")
	require.Zero(t, r.OutOfOrder)
	require.EqualValues(t, 2, r.Candidate.Limited)
	require.EqualValues(t, 0, r.Running.Limited)
	require.EqualValues(t, 2, r.Changes.NewlyLimited.Requests)
	require.Equal(t, "203.0.113.7", r.Changes.NewlyLimited.Top[0].Client)
	require.Equal(t, []any{"eu-west", 2, 0.5, int64(2), 1, tenOClock.Add(10 * time.Second)}, []any{r.Sample.Region, r.Sample.Edges, r.Sample.Share, r.Sample.Lost, r.Sample.Cut, r.Sample.Since.UTC()})
	require.Contains(t, strings.Join(r.Notes, "\n"), "edges keep all requests of 50.00% of the clients")
	text := f.good(t, "rules", "test", one, "--from-nodes", "--region", "eu-west")
	require.Contains(t, text.out, "newly limited: 2 requests of 1 client")
	require.Contains(t, text.errOut, "4 requests of 2 edges since 2026-11-22 10:00:10Z")

	// Counters are per region.
	require.Contains(t, fails(term.StatusUsage, "rules", "test", one, "--from-nodes").errOut, "name one with --region (eu-west, us-east)")
	require.Contains(t, fails(term.StatusUsage, "rules", "test", one).errOut, "TRAFFIC is missing")
	require.Contains(t, fails(term.StatusUsage, "rules", "test", one, "x.log", "--from-nodes").errOut, `leave out "x.log"`)
	require.Contains(t, fails(term.StatusFailed, "rules", "test", one, "--from-nodes", "--region", "us-east").errOut, "no edge is registered there")

	f.edge(t, "eu-west", "ams1", "ams1-3")
	partly := fails(term.StatusPartial, "rules", "test", one, "--from-nodes", "--region", "eu-west", "-o", "json")
	require.EqualValues(t, 4, parse[rules.Tested](t, partly.out).Requests)
	require.Contains(t, partly.errOut, "ams1-3: node ams1-3: admin")
	only := f.edge(t, "us-east", "iad1", "iad1-1")
	require.Contains(t, fails(term.StatusFailed, "rules", "test", one, "--from-nodes", "--region", "us-east").errOut, "set recent.keep in their configuration")

	// One client's.
	lately := f.good(t, "clients", "recent", "203.0.113.7", "--all")
	require.Regexp(t, `(?s)eu-west, since .*10:00:40\.000 +ams1-1 +limited +200 +per-client.*10:00:20.*10:00:10.*ams1-3 keep none.*us-east: its edges keep no requests`, lately.out)
	require.NotContains(t, lately.out, "\x1b")
	require.NotContains(t, lately.out, "198.51.100.1")
	list := parse[[]clients.Latest](t, f.good(t, "clients", "recent", "203.0.113.7", "-o", "json").out)
	require.Len(t, list[0].Requests, 1)
	require.Equal(t, []any{"limited", "per-client", "ams1-1"}, []any{list[0].Requests[0].Verdict, list[0].Requests[0].Rules, list[0].Requests[0].Node})
	require.Equal(t, []string{"iad1-1"}, list[1].Without)
	f.edge(t, "us-east", "iad1", "iad1-2", func(s *stub) { s.silent = true })
	require.Contains(t, fails(term.StatusPartial, "clients", "recent", "203.0.113.7").errOut, "not all edges answered:\nus-east: could not ask iad1-2: ")
	only.mu.Lock()
	only.silent = true
	only.mu.Unlock()
	require.NotContains(t, fails(term.StatusPartial, "clients", "recent", "203.0.113.7", "--region", "us-east").out, "recent.keep", "whether they keep requests is unknown")
	require.NotContains(t, fails(term.StatusFailed, "rules", "test", one, "--from-nodes", "--region", "us-east").errOut, "recent.keep")
	require.Contains(t, fails(term.StatusUsage, "clients", "recent", "203.0.113.7", "--lines", "0").errOut, "--lines 0: must be from 1 to 10000")
}
