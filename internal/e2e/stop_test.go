package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// stopped counts what clients of a node saw that stopped.
type stopped struct {
	executed sync.Map // by number: the origin has executed these requests

	next, answered, refused atomic.Int64
	lost                    atomic.Int64 // answers of executed requests
	kept, fresh             atomic.Int64 // resets of others, on connections with and without an earlier request
}

// stopWorkers is how many connections each node has, or streams of HTTP/2.
const stopWorkers = 64

// ask sends POSTs, each with a number, until the node refuses connections.
func (s *stopped) ask(c *http.Client, url string) {
	for {
		id, reused := strconv.FormatInt(s.next.Add(1), 10), false
		ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url+"/"+id, strings.NewReader("pay"))
		req.GetBody = nil // so that the client sends it once
		resp, err := c.Do(req)
		var body []byte
		if err == nil {
			body, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
		}
		_, executed := s.executed.Load("/" + id)
		switch {
		case err == nil && resp.StatusCode == http.StatusOK && strings.HasPrefix(string(body), "paid /"+id):
			s.answered.Add(1)
		case executed:
			s.lost.Add(1)
		case errors.Is(err, syscall.ECONNREFUSED):
			s.refused.Add(1)
			return
		case reused:
			s.kept.Add(1)
		default:
			s.fresh.Add(1)
		}
	}
}

// A node that is stopped under load loses no answer of a request that its origin executed.
func TestStopsLoseNoAnswer(t *testing.T) {
	stops := 2
	if soak() {
		stops = 17 // of each kind: 102
	}
	files := testenv.Certificates(t)
	for _, kind := range []struct {
		name, listen, scheme string
		http2                bool
	}{
		{"HTTP/1.1", "", "http", false},
		{"HTTP/1.1 with TLS", fmt.Sprintf("  tls: {cert_file: %q, key_file: %q}\n", files.CertFile, files.KeyFile), "https", false},
		{"HTTP/2", fmt.Sprintf("  tls: {cert_file: %q, key_file: %q}\n  http2: {tls: true}\n", files.CertFile, files.KeyFile), "https", true},
	} {
		for _, delay := range []string{"0s", "3s"} {
			t.Run(kind.name+", delay "+delay, func(t *testing.T) {
				s := &stopped{}
				origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					s.executed.Store(r.URL.Path, true)
					_, _ = fmt.Fprintf(w, "paid %s%s", r.URL.Path, strings.Repeat(".", 4000))
				}))
				t.Cleanup(origin.Close)
				rules := filepath.Join(t.TempDir(), "rules.yaml")
				require.NoError(t, os.WriteFile(rules, []byte("rules: []"), 0o600))
				n := testenv.StartEdge(t, kind.listen+fmt.Sprintf("rules: {source: file, file: %q}\nupstreams: [{url: %q}]\nstore: {kind: memory}\nshedder: {enabled: false}\nshutdown: {delay: %s, timeout: 60s}\n",
					rules, origin.URL, delay))
				for i := range stops {
					if i > 0 {
						n.Start()
					}
					n.WaitReady()
					s.load(t, n, kind.scheme, kind.http2, files.ClientConfig(t))
				}
				t.Logf("%d stops: %d answers; of executed requests lost: %d; unexecuted and reset: %d on kept connections, %d on new ones",
					stops, s.answered.Load(), s.lost.Load(), s.kept.Load(), s.fresh.Load())
				require.Zero(t, s.lost.Load())
			})
		}
	}
}

// load loads the node, and stops it meanwhile.
func (s *stopped) load(t *testing.T, n *testenv.EdgeNode, scheme string, http2 bool, trust *tls.Config) {
	t.Helper()
	var wg sync.WaitGroup
	from := s.answered.Load()
	transport := func() *http.Transport {
		tr := &http.Transport{TLSClientConfig: trust.Clone(), ForceAttemptHTTP2: http2, MaxIdleConnsPerHost: 1, DialContext: (&net.Dialer{}).DialContext}
		t.Cleanup(tr.CloseIdleConnections)
		return tr
	}
	shared := transport()
	for i := range stopWorkers {
		tr := shared
		if !http2 {
			tr = transport()
		} else if i%16 == 0 {
			shared = transport()
			tr = shared
		}
		wg.Go(func() { s.ask(&http.Client{Transport: tr}, scheme+"://"+n.Public) })
	}
	eventually(t, testenv.Patience, "the node is loaded", func() bool { return s.answered.Load() >= from+20*stopWorkers })
	n.Terminate()
	wg.Wait()
}
