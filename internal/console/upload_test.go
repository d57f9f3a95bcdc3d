package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
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

// A log is streamed to the command and not stored. The document is a file until the command
// ends, and the answer does not contain its name.
func TestUpload(t *testing.T) {
	const size = 100 << 20
	s := newServer(t, &recorder{})
	var file string
	var most uint64
	s.Run = func(_ context.Context, user string, args []string, in io.Reader, out, errOut io.Writer) int {
		file = args[len(args)-2]
		document, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, "rules: []", string(document))
		require.Equal(t, []string{"rules", "test", "--output=json", "--", file, "-"}, args)
		b, n := make([]byte, 64<<10), 0
		for step := 0; err == nil; step++ {
			var read int
			read, err = in.Read(b)
			if n += read; step%2000 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapInuse)
			}
		}
		require.Equal(t, io.EOF, err)
		_, _ = fmt.Fprintf(out, `{"bytes": %d}`, n)
		_, _ = fmt.Fprintf(errOut, "%s: read from standard input as %s\n", file, user)
		return 0
	}
	url, client := serving(t, s)
	resp, err := send(t.Context(), client, url, size)
	require.NoError(t, err)
	defer resp.Body.Close()
	var a Answer
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&a))
	require.Equal(t, 200, resp.StatusCode)
	require.JSONEq(t, fmt.Sprintf(`{"bytes": %d}`, size), string(a.Result))
	require.Equal(t, []string{"rules.yaml: read from access.log as ana@desk"}, a.Notes)
	require.Equal(t, "regionctl rules test rules.yaml access.log", a.Command)
	require.Less(t, most, uint64(50<<20), "the console kept the log")
	require.NoFileExists(t, file)
}

// Canceling an upload ends its command and frees its place. Other requests wait no longer than
// Retry-After says.
func TestUploadCancelled(t *testing.T) {
	s := newServer(t, &recorder{})
	begun, ended := make(chan struct{}), make(chan error)
	s.Run = func(ctx context.Context, _ string, _ []string, in io.Reader, _, _ io.Writer) int {
		_, _ = io.ReadFull(in, make([]byte, 1000))
		begun <- struct{}{}
		_, err := io.Copy(io.Discard, in)
		ended <- err
		return exitUsage
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

// A command that does not read the log still answers.
func TestUploadUnread(t *testing.T) {
	s := newServer(t, &recorder{})
	s.Run = func(_ context.Context, _ string, _ []string, _ io.Reader, _, errOut io.Writer) int {
		_, _ = io.WriteString(errOut, `{"error":{"status":2,"reason":"usage","message":"no"}}`+"\n")
		return exitUsage
	}
	url, client := serving(t, s)
	resp, err := send(t.Context(), client, url, 20<<20)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 422, resp.StatusCode)
}
