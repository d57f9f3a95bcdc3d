package documents

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFetchRefuses(t *testing.T) {
	f := func(want string, answer http.HandlerFunc) {
		t.Helper()
		server := httptest.NewServer(answer)
		defer server.Close()
		_, err := Fetch(t.Context(), "rules.bootstrap", server.URL)
		require.ErrorContains(t, err, want)
	}
	f("is longer than 2097152 bytes", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2<<20+1)) })
	f("redirected to http://192.0.2.1, which is not followed", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
	})
	f("redirected to", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) })
	f("unexpected EOF", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "9")
		_, _ = w.Write([]byte("rules"))
	})
	leads := func(want bool, from, to string) {
		t.Helper()
		a, err := url.Parse(from)
		require.NoError(t, err)
		b, err := url.Parse(to)
		require.NoError(t, err)
		require.Equal(t, want, mayLead(a, b), "%s to %s", from, to)
	}
	leads(true, "https://a.example.com/", "https://b.example.com/")
	leads(true, "http://127.0.0.1:9/", "https://b.example.com/")
	leads(false, "https://a.example.com/", "http://b.example.com/")
	leads(false, "https://a.example.com/", "http://127.0.0.1:8081/v1/rules") // its own admin side
	leads(false, "https://a.example.com/", "https://localhost/")

	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	_, err := Fetch(t.Context(), "rules.bootstrap", server.URL)
	require.ErrorContains(t, err, "certificate signed by unknown authority")

	for text, ok := range map[string]bool{
		"https://bucket.s3.eu-west-1.amazonaws.com/rules.yaml": true, "http://127.0.0.1:9/x": true, "http://localhost/x": true, "http://[::1]/": true,
		"http://example.com/": false, "https:///x": false, "https://u:p@example.com/": false, "s3://bucket/x": false, "rules.yaml": false, "https:x": false,
	} {
		require.Equal(t, ok, IsTrustedURL(text), text)
	}
}
