package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/console/access"
)

// serving listens for a console and returns its address and a client.
func serving(t *testing.T, s *Server) (url string, client *http.Client) {
	t.Helper()
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	s.origins[server.Listener.Addr().String()] = server.URL
	return server.URL, &http.Client{Transport: bearing{&http.Transport{DisableKeepAlives: true}, token(s)}}
}

// bearing adds the token of the local user to requests.
type bearing struct {
	http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set(access.HeaderToken, b.token)
	return b.RoundTripper.RoundTrip(r)
}

// send posts a document and a generated log of size bytes until ctx is done.
func send(ctx context.Context, client *http.Client, url string, size int) (*http.Response, error) {
	body, w := io.Pipe()
	m := multipart.NewWriter(w)
	go func() {
		_ = m.WriteField("document", "rules: []")
		part, err := m.CreateFormFile("log", "access.log")
		line := []byte(strings.Repeat("x", 127) + "\n")
		for n := 0; err == nil && n < size; n += len(line) {
			_, err = part.Write(line)
		}
		if err == nil {
			err = m.Close()
		}
		_ = w.CloseWithError(err)
	}()
	r, err := http.NewRequestWithContext(ctx, "POST", url+Prefix+"/rules/test", body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", m.FormDataContentType())
	return client.Do(r)
}

// A log is streamed to the operation and not stored.
func TestUpload(t *testing.T) {
	const size = 100 << 20
	s := newServer(t, &recorder{})
	var most uint64
	s.Do = func(_ context.Context, c *Call) (any, error) {
		require.Equal(t, []string{"rules.test", "ana@desk", "rules: []"}, []string{c.Operation.ID, c.User, c.Document})
		b, n := make([]byte, 64<<10), 0
		var err error
		for step := 0; err == nil; step++ {
			var read int
			read, err = c.Log.Read(b)
			if n += read; step%2000 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			}
		}
		require.Equal(t, io.EOF, err)
		c.Note("read")
		return map[string]int{"bytes": n}, nil
	}
	url, client := serving(t, s)
	resp, err := send(t.Context(), client, url, size)
	require.NoError(t, err)
	defer resp.Body.Close()
	var a Answer
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&a))
	require.Equal(t, 200, resp.StatusCode)
	require.JSONEq(t, fmt.Sprintf(`{"bytes": %d}`, size), string(a.Result))
	require.Equal(t, []string{"read"}, a.Notes)
	require.Equal(t, "regionctl rules test rules.yaml access.log", a.Command)
	require.Less(t, most, uint64(50<<20), "the console kept the log")
}

// Canceling an upload ends its operation and frees its place. Other requests wait no longer than
// Retry-After says.
func TestUploadCancelled(t *testing.T) {
	s := newServer(t, &recorder{})
	begun, ended := make(chan struct{}), make(chan error)
	s.Do = func(_ context.Context, c *Call) (any, error) {
		_, _ = io.ReadFull(c.Log, make([]byte, 1000))
		begun <- struct{}{}
		_, err := io.Copy(io.Discard, c.Log)
		ended <- err
		return nil, failure{reasonUsage, "no"}
	}
	url, client := serving(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	for range uploadsAtOnce {
		go func() {
			if resp, err := send(ctx, client, url, 1<<40); err == nil {
				_ = resp.Body.Close()
			}
		}()
		<-begun
	}
	w := ask(s, "POST", Prefix+"/rules/test", form("document=", "log="))
	require.Equal(t, 503, w.Code)
	require.Equal(t, "10", w.Header().Get("Retry-After"))
	cancel()
	for range uploadsAtOnce {
		require.Error(t, <-ended)
	}
	for range uploadsAtOnce { // until their places are free
		s.uploads <- struct{}{}
	}
}

// An operation that does not read the log still answers.
func TestUploadUnread(t *testing.T) {
	s := newServer(t, &recorder{})
	s.Do = func(context.Context, *Call) (any, error) { return nil, failure{reasonUsage, "no"} }
	url, client := serving(t, s)
	resp, err := send(t.Context(), client, url, 20<<20)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 422, resp.StatusCode)
}
