package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/testenv"
)

func http2Drills() []drill {
	return []drill{
		{breaks: "an HTTP/2 upstream answers uploads that it has not read and that end in a request, on connections that clients share", guarantee: "no answer goes to another client, and no such request to the upstream", within: atOnce, run: smuggled},
		{breaks: "60 answers of an HTTP/2 upstream that their client does not read", guarantee: "requests to the same upstream continue", within: atOnce, run: unreadAnswers},
	}
}

// http2Origin starts an upstream that speaks HTTP/2, and returns its URL.
func http2Origin(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "http", "h2c", 1)
}

// smuggled sends such uploads on the connections that the load uses, as a proxy in front would.
func smuggled(t *testing.T, x *exercise) {
	var early, reached atomic.Int64
	var attacks atomic.Bool
	up := http2Origin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-For", r.URL.Path+" "+r.Header.Get("X-Forwarded-For"))
		switch r.URL.Path {
		case "/early":
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			early.Add(1)
		case "/smuggled":
			reached.Add(1)
		}
	})
	send := func(c *fasthttp.Client, node, path, who, body string) (status int, origin string, err error) {
		req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
		defer fasthttp.ReleaseRequest(req)
		defer fasthttp.ReleaseResponse(resp)
		req.SetRequestURI("http://" + node + path)
		req.Header.Set("X-Forwarded-For", who)
		if body != "" {
			req.Header.SetMethod(http.MethodPost)
			req.SetBodyString(body)
		}
		err = c.DoTimeout(req, resp, time.Minute)
		return resp.StatusCode(), string(resp.Header.Peek("X-For")), err
	}
	hidden := strings.Repeat("x", 8193) + "GET /smuggled HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"
	x.ask = func(c *fasthttp.Client, worker int, path, who string) (int, error) {
		node := x.nodes[worker/2%len(x.nodes)].Public
		if attacks.Load() {
			_, _, _ = send(c, node, "/early", "192.0.2.1", hidden) // the node may hang up before it has all of this
		}
		status, origin, err := send(c, node, path, who, "")
		if err == nil && status == http.StatusOK && origin != path+" "+who+", 127.0.0.1" {
			err = fmt.Errorf("%s got the answer to %q", who, origin)
		}
		return status, err
	}
	redis := testenv.Redis(t, testenv.Options{})
	x.begin(edges(t, drillNodes, redisConfig(up, "single", []string{redis.Addr}, max(budget, x.budget), drillNodes, ""), drillRules))
	x.changes(func() { attacks.Store(true) })
	x.answers(1200)
	x.changes(func() { attacks.Store(false) })
	x.returns()
	require.Greater(t, early.Load(), int64(1000))
	require.Zero(t, reached.Load())
}

// unreadAnswers asks for answers without an end, and opens its windows no further than they are.
func unreadAnswers(t *testing.T, x *exercise) {
	const streams, each = 60, 128 << 10 // what a node reads ahead of a client
	var sent atomic.Int64
	up := http2Origin(t, func(w http.ResponseWriter, r *http.Request) {
		for piece := make([]byte, 16<<10); r.URL.Path == "/unread"; {
			n, err := w.Write(piece)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	redis := testenv.Redis(t, testenv.Options{})
	config := fmt.Sprintf("  http2: {h2c: true}\nrules: {source: file, file: %q}\n", write(t, "rules.yaml", drillRules)) +
		redisConfig(up, "single", []string{redis.Addr}, max(budget, x.budget), drillNodes, "")
	var nodes []*testenv.EdgeNode
	for range drillNodes {
		n := testenv.StartEdge(t, config)
		n.WaitReady()
		nodes = append(nodes, n)
	}
	x.begin(nodes)
	a := testenv.Attack(t, nodes[0].Public, "/unread", ":method GET", ":scheme http", ":authority x")
	x.changes(func() {
		for range streams {
			_, err := a.Open(true)
			require.NoError(t, err)
		}
	})
	eventually(t, testenv.Patience, "the answers wait for their client", func() bool { return sent.Load() >= streams*each })
	x.answers(1200)
	x.changes(func() { _ = a.Conn.Close() })
	x.returns()
}
