package fleet

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/region"
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
	networks := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")}
	ask := func(file string, insecure bool, admin string) error {
		limit := testenv.Patience
		if strings.HasPrefix(admin, "192.0.2.") { // where nobody answers
			limit = time.Second
		}
		a, err := NewAdmin(&region.FleetRegion{AdminTokenFile: file, AdminNetworks: networks}, insecure, limit)
		require.NoError(t, err)
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
	require.EqualError(t, ask("", false, addr), "node ams1-1: admin "+addr+": answered 401: it requires a token; name a file with it as admin_token_file in the fleet file")
	wrong := write("battery staple")
	require.EqualError(t, ask(wrong, false, addr), "node ams1-1: admin "+addr+": answered 401: wrong token; put the one in the edge's listen.admin_token_file into "+wrong)
	require.NoError(t, os.Remove(wrong))
	require.ErrorContains(t, ask(wrong, false, addr), "admin_token_file: open")

	// The token never leaves this host unencrypted unless configured.
	given = nil
	for _, elsewhere := range []string{"192.0.2.1:8081", "[2001:db8::1]:8081", "edge.example.com:8081"} {
		require.ErrorContains(t, ask(token, false, elsewhere), "the admin token would travel over plain HTTP; set listen.admin_tls of the edge, or pass --insecure-admin")
	}
	require.NotContains(t, ask(token, true, "192.0.2.1:8081").Error(), "plain HTTP")
	require.NotContains(t, ask("", false, "192.0.2.1:8081").Error(), "plain HTTP", "without a token there is nothing to protect")
	require.Empty(t, given)

	// Nor does it reach an address that the fleet file does not name, whatever a node registered.
	networks = networks[1:]
	for _, insecure := range []bool{false, true} {
		require.ErrorContains(t, ask(token, insecure, addr), "is not in admin_networks of the fleet file")
		require.ErrorContains(t, ask(token, insecure, strings.Replace(addr, "127.0.0.1", "localhost", 1)), "is not in admin_networks")
	}
	require.Empty(t, given)
	require.ErrorContains(t, ask("", false, addr), "is not in admin_networks", "nor does a request")
	require.ErrorContains(t, ask("", false, ""), `admin : must be host:port or https://host:port (got "")`)
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
	n := consul.Node{ID: "x", Admin: server.Listener.Addr().String()}
	hasty, err := NewAdmin(&region.FleetRegion{}, false, time.Second)
	require.NoError(t, err)
	defer hasty.Close()
	require.ErrorContains(t, hasty.Get(t.Context(), n, adminapi.PathRules, nil, &adminapi.Rules{}), "no answer in time")
	a, err := NewAdmin(&region.FleetRegion{}, false, testenv.Patience)
	require.NoError(t, err)
	defer a.Close()
	_, err = a.Figures(t.Context(), n)
	require.ErrorContains(t, err, "answered 302", "a redirect is not followed")
	_, err = a.Explain(t.Context(), n, url.Values{})
	require.ErrorContains(t, err, "is not an edge's answer")
}

// serveTLS answers like an edge with listen.admin_tls that requires client certificates.
func serveTLS(t *testing.T, files testenv.TLSFiles, clientCA string) (addr string) {
	t.Helper()
	certificates, err := certs.NewServer([]certs.Pair{{CertFile: files.CertFile, KeyFile: files.KeyFile}}, clientCA)
	require.NoError(t, err)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", certificates.Config())
	require.NoError(t, err)
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(adminapi.HeaderNode, "ams1-1")
		if clientCA != "" && len(r.TLS.VerifiedChains) == 0 {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"detail": "show a client certificate"}`))
			return
		}
		_, _ = w.Write([]byte(`{"version": "0123456789ab"}`))
	})}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { server.Close() })
	return ln.Addr().String()
}

func TestAdminOverTLS(t *testing.T) {
	ca, clients := testenv.NewAuthority(t), testenv.NewAuthority(t)
	files, other, late := ca.Issue(time.Hour), ca.Issue(time.Hour, "edge.example"), ca.Issue(-time.Hour)
	operator, former, stranger := clients.Issue(time.Hour, "operator"), clients.Issue(-time.Hour, "operator"), testenv.Certificates(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("horse"), 0o600))
	ask := func(addr string, c *certs.Client) error {
		a, err := NewAdmin(&region.FleetRegion{AdminTokenFile: token, AdminTLS: c, AdminNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, false, testenv.Patience)
		require.NoError(t, err)
		defer a.Close()
		return a.Get(t.Context(), consul.Node{ID: "ams1-1", Admin: addr}, adminapi.PathRules, nil, &adminapi.Rules{})
	}
	trusting := &certs.Client{CAFile: files.CAFile}
	addr := "https://" + serveTLS(t, files, "")
	require.NoError(t, ask(addr, trusting))
	for _, anyone := range []*certs.Client{nil, {}, {ServerName: "edge.example"}} {
		require.ErrorContains(t, ask(addr, anyone), "any public authority could vouch for it; name that of the edges in admin_tls.ca_file")
	}
	require.ErrorContains(t, ask(addr, &certs.Client{CAFile: stranger.CAFile}), "certificate signed by unknown authority")
	require.ErrorContains(t, ask("https://"+serveTLS(t, late, ""), trusting), "certificate has expired or is not yet valid")

	named := "https://" + strings.Replace(serveTLS(t, other, ""), "127.0.0.1", "localhost", 1)
	require.ErrorContains(t, ask(named, trusting), "certificate is valid for edge.example, not localhost")
	require.NoError(t, ask(named, &certs.Client{CAFile: files.CAFile, ServerName: "edge.example"}))

	mutual := "https://" + serveTLS(t, files, operator.CAFile)
	showing := func(f testenv.TLSFiles) *certs.Client {
		return &certs.Client{CAFile: files.CAFile, CertFile: f.CertFile, KeyFile: f.KeyFile}
	}
	require.NoError(t, ask(mutual, showing(operator)))
	require.ErrorContains(t, ask(mutual, trusting), "answered 403: show a client certificate")
	require.ErrorContains(t, ask(mutual, showing(stranger)), ": tls: ")
	require.ErrorContains(t, ask(mutual, showing(former)), "cert_file: "+former.CertFile+" expired at ")
	_, err := NewAdmin(&region.FleetRegion{AdminTLS: &certs.Client{CAFile: token}}, false, 0)
	require.EqualError(t, err, "admin_tls.ca_file: "+token+" contains no PEM certificate")
}
