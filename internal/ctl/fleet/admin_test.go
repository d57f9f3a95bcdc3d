package fleet

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestAdminToken(t *testing.T) {
	var given []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(adminapi.HeaderNode, "ams1-1")
		given = append(given, r.Header.Get("Authorization"))
		if r.Header.Get("Authorization") != "Bearer correct horse" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"version": "0123456789ab"}`))
	}))
	defer server.Close()
	addr := server.Listener.Addr().String()
	ask := func(file string, insecure bool, admin string) error {
		a := NewAdmin(file, insecure, 300*time.Millisecond)
		defer a.Close()
		return a.Get(t.Context(), consul.Node{ID: "ams1-1", Admin: admin}, adminapi.PathRules, nil, &adminapi.Rules{})
	}
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	token := write("correct horse\n")
	require.NoError(t, ask(token, false, addr))
	require.EqualError(t, ask("", false, addr), "node ams1-1: admin "+addr+": answered 401: it wants a token; name a file with it as admin_token_file in the fleet file")
	wrong := write("battery staple")
	require.EqualError(t, ask(wrong, false, addr), "node ams1-1: admin "+addr+": answered 401: wrong token; put that of the edge's listen.admin_token_file into "+wrong)
	require.NoError(t, os.Remove(wrong))
	require.ErrorContains(t, ask(wrong, false, addr), "admin_token_file: open")

	// The token never leaves this host in the clear unless that is allowed.
	given = nil
	for _, elsewhere := range []string{"192.0.2.1:8081", "[2001:db8::1]:8081", "edge.example.com:8081"} {
		require.ErrorContains(t, ask(token, false, elsewhere), "the admin token would travel over plain HTTP; use a host next to the edges, or --insecure-admin")
	}
	require.NotContains(t, ask(token, true, "192.0.2.1:8081").Error(), "plain HTTP")
	require.NotContains(t, ask("", false, "192.0.2.1:8081").Error(), "plain HTTP", "without a token there is nothing to protect")
	require.Empty(t, given)
	require.ErrorContains(t, ask("", false, ""), "is no host:port; the node registered none")
	for host, want := range map[string]bool{"127.0.0.1": true, "127.8.8.8": true, "::1": true, "::ffff:127.0.0.1": true, "localhost": true, "10.0.0.1": false, "localhost.example": false} {
		require.Equal(t, want, isLoopback(host), host)
	}
}

func TestAdminIsBounded(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(adminapi.HeaderNode, "x")
		switch r.URL.Path {
		case adminapi.PathRules:
			<-hang
		case adminapi.PathMetrics:
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		default:
			_, _ = w.Write([]byte("<html>"))
		}
	}))
	defer server.Close()
	defer close(hang)
	a := NewAdmin("", false, 200*time.Millisecond)
	defer a.Close()
	n := consul.Node{ID: "x", Admin: server.Listener.Addr().String()}
	require.ErrorContains(t, a.Get(t.Context(), n, adminapi.PathRules, nil, &adminapi.Rules{}), "no answer in time")
	_, err := a.Figures(t.Context(), n)
	require.ErrorContains(t, err, "answered 302", "a redirect is not followed")
	_, err = a.Explain(t.Context(), n, url.Values{})
	require.ErrorContains(t, err, "is not what an edge answers")
}
