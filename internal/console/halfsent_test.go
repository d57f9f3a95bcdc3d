package console

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/console/access"
	"github.com/weir-edge/weir/internal/httpconns"
	"github.com/weir-edge/weir/internal/testenv"
)

// Requests of which only a part arrives keep operators neither out nor from their feeds, even if
// they come from the same address.
func TestHalfSentRequestsKeepNobodyOut(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for name, begin := range map[string]string{
			"silent": "", "header": "GET /fleet HTTP/1.1\r\nHost: HOST\r\nX-Part: ", "page": "GET /fleet HTTP/1.1\r\nHost: HOST\r\nContent-Length: 100000\r\n\r\n",
			"body": "POST /api/v1/shedder/off HTTP/1.1\r\nHost: HOST\r\nWeir-Console-Token: guessed\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{",
		} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, secure), func(t *testing.T) {
				t.Parallel()
				c := runConsole(t, secure)
				session := Session{}
				require.NoError(t, json.Unmarshal([]byte(c.answer("GET", "/api/v1/session", "")), &session))
				c.token = session.Token
				feed := c.send("GET", "/api/v1/fleet/events", "")
				require.Equal(t, 200, feed.StatusCode)
				begin := strings.Replace(begin, "HOST", c.host, 1)
				half := testenv.SendHalf(t, c.addr, c.client, begin, httpconns.Max+44)
				for range 3 {
					half.Drip()
					c.answer("GET", "/api/v1/fleet", "")
					c.answer("POST", "/api/v1/shedder/off", `{"for": "1h"}`)
				}
				c.stop()
				_, err := io.Copy(io.Discard, feed.Body)
				require.NoError(t, err, "a feed ends with the console")
				require.NoError(t, feed.Body.Close())
			})
		}
	}
}

// served is a console that serves until stop, by TLS behind a proxy that logs people in, or for
// the local user.
type served struct {
	t                 *testing.T
	addr, host, token string
	client            *tls.Config // nil: without TLS
	http              *http.Client
	stop              func()
}

func runConsole(t *testing.T, secure bool) *served {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &served{t: t, addr: ln.Addr().String(), host: ln.Addr().String()}
	config := Config{Do: (&recorder{out: "{}\n"}).do, Access: access.Local("ana@desk"), Log: slog.New(slog.DiscardHandler)}
	if secure {
		files, file := testenv.Certificates(t), filepath.Join(t.TempDir(), "console.yaml")
		text := strings.Replace(proxied, "10.0.0.5/32", "127.0.0.1/32", 1) + fmt.Sprintf("tls: {cert_file: %q, key_file: %q}\n", files.CertFile, files.KeyFile)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		loaded, err := access.Load(file)
		require.NoError(t, err)
		config.Access, err = access.New(loaded, "console@host")
		require.NoError(t, err)
		config.Origin, c.client, c.host = loaded.Origin(), files.ClientConfig(t), "weir.example.com"
	}
	c.token = tokenOf(config.Access)
	c.http = &http.Client{Timeout: testenv.Patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.client}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, config, ln) }()
	c.stop = func() { cancel(); require.NoError(t, <-ended) }
	return c
}

func (c *served) send(method, path, body string) *http.Response {
	c.t.Helper()
	scheme := "http://"
	if c.client != nil {
		scheme = "https://"
	}
	r, err := http.NewRequest(method, scheme+c.addr+path, strings.NewReader(body))
	require.NoError(c.t, err)
	r.Host = c.host
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(access.HeaderToken, c.token)
	if c.client != nil {
		r.Header.Set("X-Forwarded-User", "ana@example.com")
		r.Header.Set("X-Forwarded-Groups", "sre")
	}
	resp, err := c.http.Do(r)
	require.NoError(c.t, err, "%s %s", method, path)
	return resp
}

// answer returns the body of an answer, which is good.
func (c *served) answer(method, path, body string) string {
	c.t.Helper()
	resp := c.send(method, path, body)
	text, err := io.ReadAll(resp.Body)
	require.NoError(c.t, err)
	require.NoError(c.t, resp.Body.Close())
	require.Equal(c.t, 200, resp.StatusCode, "%s", text)
	return string(text)
}
