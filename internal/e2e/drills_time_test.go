package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/testenv"
)

func timeDrills() []drill {
	const (
		local = "each node admits up to its share per client"
		alone = "Redis decides by its own clock"
		more  = "at most one more limit"
	)
	// An upstream's longest rest is 16 times the first.
	rest := steps{{"the longest rest of an upstream", 16 * firstRest}, inTime, looking}
	return []drill{
		{breaks: "Redis's clock set an hour ahead, across midnight (fixed_window)", guarantee: "the window ends: " + more, forgives: "the window before", short: true, within: atOnce,
			run: redisClock(time.Hour, "fixed_window", (*exercise).forgetsAll)},
		{breaks: "Redis's clock set an hour back, across midnight (fixed_window)", guarantee: "the window may begin again: " + more, forgives: "the window before", within: atOnce,
			run: redisClock(-time.Hour, "fixed_window", (*exercise).forgetsAll)},
		{breaks: "Redis's clock set an hour ahead (token_bucket)", guarantee: "the bucket refills for an hour: " + more, forgives: "an hour's refill", within: atOnce,
			run: redisClock(time.Hour, "token_bucket", func(x *exercise) {
				for _, s := range *x.spenders.Load() {
					s.forgiven += (drillLimit + 23) / 24
				}
			})},
		{breaks: "Redis's clock set an hour back (token_bucket)", guarantee: "nothing more passes", short: true, within: atOnce,
			run: redisClock(-time.Hour, "token_bucket", func(*exercise) {})},
		{breaks: "an edge's clock set an hour ahead, across midnight, and back", guarantee: alone, within: atOnce, run: edgeClock(false)},
		{breaks: "an edge's clock set ahead and back while Redis hangs", guarantee: local + ", again on that node after each step", local: true, within: afterProbe, run: edgeClock(true)},
		{breaks: "Redis's certificate expires, and its connections are cut", guarantee: local + " until Redis presents another", local: true, short: true, within: afterDial, run: redisCertificate},
		{breaks: "an upstream's certificate expires", guarantee: "requests to it get 502 until it presents another; requests to others continue", within: rest, run: upstreamCertificate},
		{breaks: "the nodes' certificate expires", guarantee: "open connections continue; verifying clients open no new ones until the files hold a valid one", within: steps{{"the files are checked every", time.Second}, looking},
			run: ownCertificate},
	}
}

func (x *exercise) forgetsAll() { x.t.Helper(); x.forgets(nil) }

// halfAnHour returns the offset of a clock that shows half an hour before the next midnight
// UTC, or half an hour after it.
func halfAnHour(before bool) time.Duration {
	now := time.Now().UTC()
	midnight := now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	if before {
		return midnight.Add(-30 * time.Minute).Sub(now)
	}
	return midnight.Add(30 * time.Minute).Sub(now)
}

// stepped matches nodes that have noticed a clock step.
func stepped(t *testing.T, clock string, by time.Duration) func(n *testenv.EdgeNode) bool {
	name := fmt.Sprintf(`weir_clock_steps_total{clock=%q,direction=%q}`, clock, map[bool]string{true: "forward", false: "back"}[by > 0])
	return func(n *testenv.EdgeNode) bool { return metrics(t, n, name)[name] > 0 }
}

// redisClock steps Redis's clock across midnight while clients spend their limits. forgives
// records what they may pass in addition.
func redisClock(by time.Duration, algorithm string, forgives func(*exercise)) func(*testing.T, *exercise) {
	return func(t *testing.T, x *exercise) {
		clock, right := testenv.NewClock(t), halfAnHour(by > 0)
		clock.Set(right)
		s := testenv.Redis(t, testenv.Options{Clock: clock})
		config := redisConfig(origin(t, nil), "single", []string{s.Addr}, max(budget, x.budget), drillNodes, "")
		x.begin(edges(t, drillNodes, config, strings.Replace(dayRules, "fixed_window", algorithm, 1)))
		x.joins(newcomers()...) // no node remembers a refusal of them
		x.answers(100)
		x.changes(func() { clock.Set(right + by) })
		forgives(x)
		x.recovers("the step is noticed", stepped(t, "store", by))
	}
}

// edgeClock steps the clock of one of two nodes across midnight and back.
func edgeClock(hung bool) func(*testing.T, *exercise) {
	return func(t *testing.T, x *exercise) {
		clock, right := testenv.NewClock(t), halfAnHour(true)
		clock.Set(right)
		s := testenv.Redis(t, testenv.Options{})
		config := redisConfig(origin(t, nil), "single", []string{s.Addr}, max(budget, x.budget), drillNodes, "")
		x.begin([]*testenv.EdgeNode{clock.Edge(t, config, dayRules), testenv.Edge(t, config, dayRules)})
		if hung {
			x.changes(s.Suspend)
			x.falls()
			x.again = 2
		}
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			right += step
			x.changes(func() { clock.Set(right) })
			if !hung {
				x.sees("Redis decides", by("redis"))
				x.recovered = max(x.recovered, time.Since(x.since))
			}
			eventually(t, testenv.Patience, "the node notices", func() bool { return stepped(t, "node", step)(x.nodes[0]) })
			x.answers(800)
		}
		if hung {
			x.changes(s.Resume)
			x.returns()
			return
		}
		x.exceed()
	}
}

// redisCertificate makes Redis present an expired certificate to nodes that must reconnect.
func redisCertificate(t *testing.T, x *exercise) {
	ca := testenv.NewAuthority(t)
	shown := ca.Issue(time.Hour)
	s := testenv.Redis(t, testenv.Options{TLS: true, Files: shown})
	front := testenv.Forward(t, s.Addr)
	shows := func(files testenv.TLSFiles) {
		do(t, s, "config", "set", "tls-cert-file", files.CertFile, "tls-key-file", files.KeyFile)
	}
	x.redis("single", []string{front.Addr}, fmt.Sprintf(", tls: {ca_file: %q}", shown.CAFile))
	x.changes(func() { shows(ca.Issue(-time.Hour)); front.To(s.Addr) })
	x.falls()
	x.changes(func() { shows(shown) })
	x.returns()
}

const firstRest = 100 * time.Millisecond

// upstreamCertificate makes an upstream present an expired certificate on each new connection.
func upstreamCertificate(t *testing.T, x *exercise) {
	ca := testenv.NewAuthority(t)
	shown := ca.Issue(time.Hour)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }))
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(shown.CertFile, shown.KeyFile)
		return &tls.Config{Certificates: []tls.Certificate{pair}}, err
	}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	stop := x.beside(t, s.URL, fmt.Sprintf("upstream: {ca_file: %q, fail_for: %s}\n", shown.CAFile, firstRest))
	c := client()
	defer c.CloseIdleConnections()
	answers := func(want int) func(n *testenv.EdgeNode) bool {
		return func(n *testenv.EdgeNode) bool {
			status, err := get(c, n.Public, "/bad", victim)
			return err == nil && status == want
		}
	}
	x.sees("the upstream answers", answers(http.StatusOK))
	x.changes(func() { shown.Replace(t, ca.Issue(-time.Hour)) })
	x.sees("its certificate is refused", answers(http.StatusBadGateway))
	x.answers(800)
	x.changes(func() { shown.Replace(t, ca.Issue(time.Hour)) })
	x.recovers("the upstream answers again", answers(http.StatusOK))
	stop()
}

// ownCertificate makes the nodes' certificate expire by the clients' clocks, which are set more
// than a day ahead.
func ownCertificate(t *testing.T, x *exercise) {
	ca := testenv.NewAuthority(t)
	shown := ca.Issue(24 * time.Hour)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(rules, []byte(drillRules), 0o600))
	redis := testenv.Redis(t, testenv.Options{})
	config := fmt.Sprintf("  tls: {cert_file: %q, key_file: %q}\nrules: {source: file, file: %q}\n", shown.CertFile, shown.KeyFile, rules) +
		redisConfig(origin(t, nil), "single", []string{redis.Addr}, max(budget, x.budget), drillNodes, "")
	var nodes []*testenv.EdgeNode
	for range drillNodes {
		n := testenv.StartEdge(t, config)
		n.WaitReady()
		nodes = append(nodes, n)
	}
	var ahead atomic.Int64
	verify := shown.ClientConfig(t)
	verify.Time = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	c := client()
	c.Dial = func(addr string) (net.Conn, error) { return tls.Dial("tcp", addr, verify) }
	x.ask = func(_ *fasthttp.Client, worker int, path, who string) (int, error) {
		return get(c, nodes[worker/2%drillNodes].Public, path, who)
	}
	x.begin(nodes)
	t.Cleanup(c.CloseIdleConnections)
	opens := func(n *testenv.EdgeNode) error {
		conn, err := c.Dial(n.Public)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	x.changes(func() { ahead.Store(int64(25 * time.Hour)) })
	for _, n := range nodes {
		require.ErrorContains(t, opens(n), "certificate has expired")
	}
	x.answers(800)
	x.changes(func() { shown.Replace(t, ca.Issue(47*time.Hour)) })
	x.recovers("new connections open", func(n *testenv.EdgeNode) bool { return opens(n) == nil })
}
