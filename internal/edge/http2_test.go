package edge

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/testenv"
)

// startH2C starts a node that accepts HTTP/2 without TLS, with a client that speaks it.
func startH2C(t *testing.T, s setup) *node {
	t.Helper()
	configure := s.config
	s.config = func(c *config.Config) {
		c.Listen.HTTP2.H2C = true
		if configure != nil {
			configure(c)
		}
	}
	n := start(t, s)
	n.speakHTTP2(nil)
	return n
}

// speakHTTP2 makes the node's client use nothing else on the public side.
func (n *node) speakHTTP2(c *tls.Config) {
	var only http.Protocols
	only.SetHTTP2(c != nil)
	only.SetUnencryptedHTTP2(c == nil)
	transport := &http.Transport{Protocols: &only, TLSClientConfig: c, DisableCompression: true}
	n.client.Transport = transport
	n.t.Cleanup(transport.CloseIdleConnections)
}

func TestHTTP2TakesTheSamePath(t *testing.T) {
	f := func(name string, tlsFiles bool) {
		t.Run(name, func(t *testing.T) {
			var seen http.Header
			var host, target string
			s := setup{clock: newClock(), rules: "rules: [{id: per-client, key: [client_ip], algorithm: fixed_window, limit: 3, window: 1h}, {id: by-key, key: [header:X-Key], algorithm: fixed_window, limit: 100, window: 1h}]",
				origin: func(w http.ResponseWriter, r *http.Request) {
					seen, host, target = r.Header, r.Host, r.RequestURI
					w.Header().Set("X-Origin", "yes")
					_, _ = io.WriteString(w, "hello")
				}}
			var n *node
			base := ""
			if tlsFiles {
				files := testenv.Certificates(t)
				s.config = func(c *config.Config) { c.Listen.TLS, c.Listen.HTTP2.TLS = &config.TLS{Pair: pairOf(files)}, true }
				n = start(t, s)
				n.speakHTTP2(files.ClientConfig(t))
				base = "https://" + n.public
			} else {
				n = startH2C(t, s)
				base = "http://" + n.public
			}
			req, err := http.NewRequest("GET", base+"//a/%7Eb?c=d&e", nil)
			require.NoError(t, err)
			req.Header["Cookie"] = []string{"a=1", "b=2"}
			req.Header.Set("X-Forwarded-For", "203.0.113.9")
			resp, err := n.client.Do(req)
			require.NoError(t, err)
			require.Equal(t, 2, resp.ProtoMajor)
			a := read(t, resp)
			require.Equal(t, 200, a.status, a.body)
			require.Equal(t, "hello", a.body)
			require.Equal(t, "yes", a.header.Get("X-Origin"))
			require.Contains(t, a.header.Get("RateLimit"), `"per-client";r=2`)
			require.Equal(t, "//a/%7Eb?c=d&e", target, "as it came")
			require.Equal(t, n.public, host)
			require.Equal(t, []string{"a=1; b=2"}, seen["Cookie"])
			require.Equal(t, "127.0.0.1", seen.Get("X-Forwarded-For"), "the client is no trusted proxy")
			require.Equal(t, map[bool]string{true: "https", false: "http"}[tlsFiles], seen.Get("X-Forwarded-Proto"))

			require.Equal(t, 200, n.ask("HEAD", base+"/").status)
			a = n.ask("GET", base+"/", "X-Key: a", "X-Key: b")
			require.Equal(t, 400, a.status)
			require.Contains(t, a.body, "occurs more than once")
			require.Equal(t, 200, n.ask("POST", base+"/").status)
			a = n.ask("GET", base+"/")
			require.Equal(t, 429, a.status)
			require.NotEmpty(t, a.header.Get("Retry-After"))
			require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
			require.Contains(t, a.body, `"violated-policies":["per-client"]`)
			require.Contains(t, a.header.Get("RateLimit"), `"per-client";r=0`)
			require.EqualValues(t, 3, n.asked.Load())
			require.EqualValues(t, 3, n.metric(`weir_requests_total{code_class="2xx"}`))
			require.EqualValues(t, 2, n.metric(`weir_requests_total{code_class="4xx"}`))
			require.EqualValues(t, 1, n.metric(`weir_http2_connections`))
			eventually(t, "no stream is left", func() bool { return n.metric(`weir_http2_streams`) == 0 })
		})
	}
	f("TLS", true)
	f("in the clear", false)
}

// A listener for both protocols serves HTTP/1.1 as before.
func TestBothProtocolsWithoutTLS(t *testing.T) {
	n := startH2C(t, setup{rules: oneRule})
	n.client.Transport = &http.Transport{DisableKeepAlives: true}
	require.Equal(t, 200, n.get("/").status)
	for _, begin := range []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", "P", "PRI * HTTP/1.1\r\nHost: a\r\n\r\n", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"} {
		conn, err := net.Dial("tcp", n.public)
		require.NoError(t, err)
		_, err = io.WriteString(conn, begin)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.NotContains(t, string(answer), "HTTP/2")
		if strings.HasPrefix(begin, "PUT") {
			require.Contains(t, string(answer), "HTTP/1.1 200 OK")
		}
		conn.Close()
	}
}

// Bodies go through in both directions, whatever is known of their length.
func TestHTTP2Bodies(t *testing.T) {
	n := startH2C(t, setup{origin: func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}})
	for _, size := range []int{0, 1, 5000, 8 << 10, 8<<10 + 1, 100_000, 3 << 20} {
		text := strings.Repeat("x", size)
		for _, known := range []bool{true, false} {
			var body io.Reader = strings.NewReader(text)
			if !known {
				body = io.MultiReader(body)
			}
			resp, err := n.client.Post("http://"+n.public+"/", "text/plain", body)
			require.NoError(t, err)
			a := read(t, resp)
			require.Equal(t, 200, a.status)
			require.Equal(t, size, len(a.body), "known: %v", known)
		}
	}
	const clients = 50
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			text := strings.Repeat(string(rune('a'+i%26)), 20_000+i)
			resp, err := n.client.Post("http://"+n.public+"/", "text/plain", strings.NewReader(text))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil || string(got) != text {
				t.Errorf("stream %d got %d bytes of another's: %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
}

func TestCurlSpeaksHTTP2(t *testing.T) {
	n := startH2C(t, setup{rules: oneRule})
	curl := func(args ...string) string {
		out, err := exec.Command("curl", append([]string{"-sS", "-o", "/dev/null", "-w", "%{http_version} %{http_code}"}, args...)...).CombinedOutput()
		require.NoError(t, err, "curl is required: apt-get install curl: %s", out)
		return string(out)
	}
	require.Equal(t, "2 200", curl("--http2-prior-knowledge", "http://"+n.public+"/"))
	require.Equal(t, "1.1 200", curl("--http2", "http://"+n.public+"/"), "an Upgrade to h2c is not done, as RFC 9113 has it")

	files := testenv.Certificates(t)
	n = start(t, setup{rules: oneRule, config: func(c *config.Config) { c.Listen.TLS, c.Listen.HTTP2.TLS = &config.TLS{Pair: pairOf(files)}, true }})
	require.Equal(t, "2 200", curl("--http2", "--cacert", files.CAFile, "https://"+n.public+"/"))
	require.Equal(t, "1.1 200", curl("--http1.1", "--cacert", files.CAFile, "https://"+n.public+"/"))
	require.Equal(t, "2 200", curl("--cacert", files.CAFile, "-d", "x=y", "https://"+n.public+"/"))
	require.Equal(t, "2 429", curl("--cacert", files.CAFile, "https://"+n.public+"/"))

	n = start(t, setup{config: func(c *config.Config) {
		c.Listen.TLS = &config.TLS{Pair: pairOf(files)}
	}})
	require.Equal(t, "1.1 200", curl("--http2", "--cacert", files.CAFile, "https://"+n.public+"/"))
}

// A node that drains finishes its streams and says GOAWAY.
func TestHTTP2Drains(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	n := startH2C(t, setup{origin: func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		_, _ = io.WriteString(w, "late")
	}, config: func(c *config.Config) { c.Shutdown.Timeout = patience }})
	got := make(chan string, 1)
	go func() {
		resp, err := n.client.Get("http://" + n.public + "/")
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		got <- fmt.Sprint(string(body), err)
	}()
	<-asked
	n.cancel()
	eventually(t, "the node is draining", n.draining.Load)
	close(answer)
	require.Equal(t, "late<nil>", <-got)
	require.NoError(t, <-n.ended)
	close(n.ended)
	require.Zero(t, n.listeners.HTTP2.Connections())
}

// over1 calls f while the node's client speaks HTTP/1.1, as the admin side does.
func (n *node) over1(f func()) {
	before := n.client.Transport
	n.client.Transport = &http.Transport{DisableKeepAlives: true}
	defer func() { n.client.Transport = before }()
	f()
}

// Trailers named like headers that decide do not reach origins: some read them as headers.
func TestTrailersAreNoHeaders(t *testing.T) {
	got := make(chan http.Header, 1)
	var only http.Protocols
	only.SetUnencryptedHTTP2(true)
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Trailer
		_, _ = io.WriteString(w, "ok")
		for _, name := range []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Remaining", "Weir-Risk", "X-Sum"} {
			w.Header().Set(http.TrailerPrefix+name, "7")
		}
	}))
	origin.Config.Protocols = &only
	origin.Start()
	t.Cleanup(origin.Close)
	n := startH2C(t, setup{rules: "rules: [{id: by-plan, match: {headers: {X-Plan: free}}, key: [header:X-User], limit: 9, window: 1h}]", config: func(c *config.Config) {
		c.Upstreams, c.TierHeader = []config.Upstream{{URL: "h2c" + strings.TrimPrefix(origin.URL, "http")}}, "X-Tier"
	}})
	req, err := http.NewRequest("POST", "http://"+n.public+"/", io.MultiReader(strings.NewReader("body")))
	require.NoError(t, err)
	req.Trailer = http.Header{}
	for _, name := range []string{"X-Tier", "X-User", "X-Plan", "X-Forwarded-For", "X-Real-Ip", "X-Sum",
		"X_tier", "X_user", "X.plan", "X-Forwarded_for", "X_real_ip", "Content_length"} {
		req.Trailer.Set(name, "7")
	}
	resp, err := n.client.Do(req)
	require.NoError(t, err)
	require.Equal(t, 200, read(t, resp).status)
	require.Equal(t, http.Header{"X-Sum": {"7"}}, <-got)
	require.Equal(t, http.Header{"X-Sum": {"7"}}, resp.Trailer, "nor those that the node sets in answers")
}

// A status of the origin that no client can be sent is answered 502, and holds nothing.
func TestHTTP2ImpossibleStatus(t *testing.T) {
	n := startH2C(t, setup{rules: "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 9, window: 1h}]", origin: func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n")
			_ = c.Close()
		}
	}})
	for range 3 {
		require.Equal(t, 502, n.get("/").status)
	}
	n.nothingHeld(9)
	require.Zero(t, n.metric("weir_panics_total"))
}
