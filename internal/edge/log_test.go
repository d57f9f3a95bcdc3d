package edge

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestDenyLog(t *testing.T) {
	for _, kind := range []string{"memory", "redis"} {
		t.Run(kind, func(t *testing.T) {
			s := setup{rules: `
rules:
  - {id: by-key, match: {paths: ["/private/*"]}, key: ["header:X-Api-Key", "cookie:session", "query:token", path], limit: 1, window: 1h}
  - {id: by-client, match: {paths: [/other]}, key: [client_ip], limit: 1, window: 1h}
`}
			if kind == "redis" {
				s.redis = testenv.Redis(t, testenv.Options{})
			}
			n := start(t, s)
			const secret = "hunter2"
			headers := []string{"X-Api-Key: " + secret, "Cookie: session=" + secret, "Authorization: Bearer " + secret}
			const refused = 50
			began := time.Now()
			for range refused + 1 {
				n.get("/private/"+secret+"?token="+secret, headers...)
			}
			n.get("/other")
			n.get("/other")
			took := time.Since(began)

			var byKey, skipped int
			for _, l := range n.logs.lines(t, "request limited") {
				require.Equal(t, "127.0.0.1", l["client"])
				require.EqualValues(t, 429, l["status"])
				require.NotEmpty(t, l["retry_after"])
				require.Equal(t, "test-node", l["node"])
				switch l["rule"] {
				case "by-key":
					byKey++
					skipped += int(l["not_logged"].(float64))
				case "by-client":
					require.Contains(t, []any{"memory", "redis"}, l["source"])
				default:
					require.Fail(t, "a line names no rule", l)
				}
			}
			require.GreaterOrEqual(t, byKey, 1)
			require.LessOrEqual(t, byKey, 1+int(took/time.Second), "one per second")
			require.LessOrEqual(t, byKey+skipped, refused)
			require.Len(t, n.logs.lines(t, "request limited"), byKey+1, "each rule has its own sampler")

			// Explaining and resetting name the operator, but log no secret.
			n.operate("GET", "/v1/explain?client=127.0.0.1&path=/private/x%3Ftoken="+secret+"&header=X-Api-Key:"+secret+"&cookie=session="+secret)
			require.NotContains(t, n.logs.String(), secret)
		})
	}
}

func TestUpstreamFailuresAreLoggedSampled(t *testing.T) {
	n := start(t, setup{config: func(c *config.Config) { c.Upstreams = []config.Upstream{{URL: "http://127.0.0.1:1"}} }})
	began := time.Now()
	for range 30 {
		require.Equal(t, 502, n.get("/hunter2?token=hunter2", "Cookie: a=hunter2").status)
	}
	logged := n.logs.lines(t, "upstream failed")
	require.NotEmpty(t, logged)
	require.LessOrEqual(t, len(logged), 1+int(time.Since(began)/time.Second))
	require.Equal(t, "connect", logged[0]["kind"])
	require.NotContains(t, n.logs.String(), "hunter2")
}

// An upstream that sends unrequested bytes is counted and logged, and no client gets
// them.
func TestUnaskedBytesAreCountedAndLogged(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() { ln.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"+req.URL.Path[1:]+"a secret")
					_, _ = io.Copy(io.Discard, c)
				}
			})
		}
	})
	n := start(t, setup{config: func(c *config.Config) { c.Upstreams = []config.Upstream{{URL: "http://" + ln.Addr().String()}} }})
	for _, path := range []string{"1", "2", "3"} {
		require.Equal(t, path, n.get("/"+path).body)
	}
	require.EqualValues(t, 3, n.metric("weir_upstream_unasked_total"))
	logged := n.logs.lines(t, "upstream sent bytes that no request asked for; its connections are not reused for a minute")
	require.Len(t, logged, 1)
	require.Equal(t, ln.Addr().String(), logged[0]["upstream"])
	require.NotContains(t, n.logs.String(), "secret")
}

// An upstream that fails its checks is exported and logged once, as is its return, and the
// checks do not count as requests.
func TestHealthChecksAreExportedAndLogged(t *testing.T) {
	var failing atomic.Bool
	n := start(t, setup{
		origin: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/healthz" && failing.Load() {
				w.WriteHeader(503)
			}
		},
		config: func(c *config.Config) {
			h := &c.Upstream.HealthCheck
			h.Path, h.Interval, h.Timeout = "/healthz", time.Second, time.Second
		},
	})
	series := `weir_upstream_healthy{upstream="default",address="` + strings.TrimPrefix(n.config.Upstreams[0].URL, "http://") + `"}`
	require.EqualValues(t, 1, n.metric(series))
	failing.Store(true)
	eventually(t, "it is unhealthy", func() bool { return n.metric(series) == 0 })
	failing.Store(false)
	eventually(t, "it is healthy", func() bool { return n.metric(series) == 1 })
	require.Zero(t, n.metric(`weir_upstream_seconds{upstream="default"}`))
	logged := n.logs.lines(t, "upstream fails its health checks; others of its group get its requests")
	require.Len(t, logged, 1)
	require.Equal(t, "status 503", logged[0]["error"])
	eventually(t, "that is logged", func() bool { return len(n.logs.lines(t, "upstream passes its health checks again")) == 1 })
}

func TestAnAddressGivenTwiceIsExportedOnce(t *testing.T) {
	n := start(t, setup{config: func(c *config.Config) { c.Upstreams = append(c.Upstreams, c.Upstreams[0]) }})
	require.EqualValues(t, 1, n.metric(`weir_upstream_healthy{upstream="default",address="`+strings.TrimPrefix(n.config.Upstreams[0].URL, "http://")+`"}`))
	require.Equal(t, 200, n.operate("GET", "/metrics").status)
}

func TestResponseHeaderSize(t *testing.T) {
	large := func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.Atoi(r.URL.Path[1:])
		w.Header().Set("X-Large", strings.Repeat("x", size))
	}
	n := start(t, setup{origin: large})
	require.Equal(t, 200, n.get("/15000").status)
	require.Equal(t, 502, n.get("/17000").status)
	logged := n.logs.lines(t, "upstream failed")
	require.Len(t, logged, 1)
	require.Equal(t, "bad_response", logged[0]["kind"])
	require.Equal(t, "a header of more than 16384 bytes", logged[0]["error"])
	n = start(t, setup{origin: large, config: func(c *config.Config) { c.Upstream.MaxHeaderBytes = 64 << 10 }})
	require.Equal(t, 200, n.get("/60000").status)
}
