package blocklist

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

func source(t *testing.T, from string) *Source {
	t.Helper()
	s, err := NewSource(from, testenv.Patience, 1000)
	require.NoError(t, err)
	return s
}

func TestSources(t *testing.T) {
	f := func(from, want string) {
		t.Helper()
		require.Equal(t, want, source(t, from).String())
	}
	f("https://ana:secret@lists.example.com/drop.txt?key=secret", "https://lists.example.com/drop.txt")
	f("lists/drop.txt", "lists/drop.txt")
	f("file:///lists/drop.txt", "/lists/drop.txt")
	for _, from := range []string{"ftp://lists.example.com/drop.txt", "https://", "http:///drop.txt", "file://elsewhere/drop.txt", "file:", "https://exa mple.com", "gopher:x"} {
		_, err := NewSource(from, time.Second, 1000)
		require.ErrorContains(t, err, "must be", from)
	}
}

// A text that is in use is not sent again, and one that was refused is.
func TestFetchAsksOnlyForChanges(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		user, password, _ := r.BasicAuth()
		require.Equal(t, []string{"ana", "secret", "k=1"}, []string{user, password, r.URL.RawQuery})
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, "203.0.113.1")
	}))
	defer server.Close()
	s := source(t, strings.Replace(server.URL, "http://", "http://ana:secret@", 1)+"/list?k=1")
	for range 2 {
		text, _, err := s.Fetch(t.Context())
		require.NoError(t, err)
		require.Equal(t, "203.0.113.1", string(text))
	}
	_, use, err := s.Fetch(t.Context())
	require.NoError(t, err)
	use()
	for range 2 {
		text, use, err := s.Fetch(t.Context())
		require.NoError(t, err)
		require.Nil(t, text)
		use()
	}
	require.Equal(t, 5, asked)
}

func TestFetchFails(t *testing.T) {
	hang := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/long", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1001)) })
	mux.HandleFunc("/exact", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1000)) })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "900")
		_, _ = w.Write(make([]byte, 100))
	})
	mux.HandleFunc("/nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop?again", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(hang)
	f := func(path, want string) {
		t.Helper()
		s := source(t, server.URL+path+"?key=secret")
		if path == "/hangs" {
			s.bound = 50 * time.Millisecond
		}
		_, _, err := s.Fetch(t.Context())
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, server.URL+path+": ")
		require.NotContains(t, err.Error(), "secret")
	}
	f("/missing", "answers 404 Not Found")
	f("/long", "is longer than 1000 bytes")
	f("/cut", "unexpected EOF")
	f("/nothing", "answers 304") // nobody has asked for changes alone
	f("/loop", "more than 5 redirects")
	f("/away", "file")
	f("/hangs", "took longer than 50ms")
	_, _, err := source(t, server.URL+"/exact").Fetch(t.Context())
	require.NoError(t, err)

	_, _, err = source(t, fmt.Sprintf("http://127.0.0.1:%d/", testenv.FreePorts(t, 1)[0])).Fetch(t.Context())
	require.ErrorContains(t, err, "connection refused")

	dir := t.TempDir()
	_, _, err = source(t, dir+"/missing.txt").Fetch(t.Context())
	require.ErrorContains(t, err, "missing.txt: no such file or directory")
	_, _, err = source(t, dir).Fetch(t.Context())
	require.ErrorContains(t, err, "is not a file")
	file := filepath.Join(dir, "list.txt")
	require.NoError(t, os.WriteFile(file, make([]byte, 1001), 0o600))
	_, _, err = source(t, file).Fetch(t.Context())
	require.ErrorContains(t, err, "is longer than 1000 bytes")
}

// A redirect never takes the question, and its password, from https to http.
func TestFetchStaysEncrypted(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusFound))
	defer server.Close()
	s := source(t, server.URL)
	s.client.Transport = server.Client().Transport
	_, _, err := s.Fetch(t.Context())
	require.ErrorContains(t, err, "a redirect leads from https to http")
}
