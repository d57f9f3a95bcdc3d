package edge

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

func pairOf(f testenv.TLSFiles) certs.Pair {
	return certs.Pair{CertFile: f.CertFile, KeyFile: f.KeyFile}
}

// startTLS starts a node whose public side is TLS, and points its client there.
func startTLS(t *testing.T, s setup) *node {
	t.Helper()
	files := testenv.Certificates(t)
	configure := s.config
	s.config = func(c *config.Config) {
		c.Listen.TLS = &config.TLS{Pair: pairOf(files)}
		if configure != nil {
			configure(c)
		}
	}
	n := start(t, s)
	n.speak(files.ClientConfig(t))
	return n
}

// speak makes the node's client use TLS and reconnect.
func (n *node) speak(c *tls.Config) {
	n.client.Transport.(*http.Transport).CloseIdleConnections()
	n.client.Transport = &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}
}

// showing adds a client certificate.
func showing(t *testing.T, c *tls.Config, f testenv.TLSFiles) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(f.CertFile, f.KeyFile)
	require.NoError(t, err)
	c.Certificates = []tls.Certificate{pair}
	return c
}

func TestTLSListener(t *testing.T) {
	proto := make(chan string, 1)
	n := startTLS(t, setup{rules: oneRule, origin: func(_ http.ResponseWriter, r *http.Request) {
		proto <- r.Header.Get("X-Forwarded-Proto")
	}})
	a := n.ask("GET", "https://"+n.public+"/")
	require.Equal(t, 200, a.status)
	require.Equal(t, "https", <-proto)
	require.Contains(t, a.header.Get("RateLimit"), `"per-client";r=2`)

	old := &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true} //nolint:gosec // to be refused
	_, err := tls.Dial("tcp", n.public, old)
	require.Error(t, err, "TLS 1.1")
}

// reloads sends a signal and waits until the node has handled it.
func (n *node) reloads() {
	n.t.Helper()
	before := len(n.logs.lines(n.t, "reload requested"))
	n.reload <- syscall.SIGHUP
	n.reload <- syscall.SIGHUP // accepted when the first is done
	eventually(n.t, "a reload", func() bool { return len(n.logs.lines(n.t, "reload requested")) > before+1 })
}

// lastFault returns what the node told last of its certificates, and that once. It may have looked
// between two files.
func (n *node) lastFault() string {
	n.t.Helper()
	told := map[any]int{}
	var last any
	for _, l := range n.logs.lines(n.t, "reload certificate") {
		last = l["error"]
		told[last]++
	}
	require.Equal(n.t, 1, told[last], "told once")
	return last.(string)
}

// served returns the serial number of the certificate for a client that requests this name.
func (n *node) served(addr, name string) int64 {
	n.t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{ServerName: name, InsecureSkipVerify: true}) //nolint:gosec // looks at it
	require.NoError(n.t, err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// A pair is chosen by the name that the client requests; each is reloaded separately, and
// one that does not match, or has expired, leaves the old one in place.
func TestCertificatesByName(t *testing.T) {
	ca := testenv.NewAuthority(t)
	first, shop, wild := ca.Issue(time.Hour), ca.Issue(2*time.Hour, "shop.example"), ca.Issue(3*time.Hour, "*.api.example", "api.example")
	n := start(t, setup{config: func(c *config.Config) {
		c.Listen.TLS = &config.TLS{Pair: pairOf(first), Certificates: []certs.Pair{pairOf(shop), pairOf(wild)}}
	}})
	serves := func(want map[string]int64) {
		t.Helper()
		for name, serial := range want {
			require.Equal(t, serial, n.served(n.public, name), name)
		}
	}
	serves(map[string]int64{"": 2, "localhost": 2, "other.example": 2, "shop.example": 3, "SHOP.example": 3, "api.example": 4, "eu.api.example": 4, "a.eu.api.example": 2})
	left := func(f testenv.TLSFiles) time.Duration {
		v := n.metric(`weir_certificate_expiry_seconds{listener="public",file="` + f.CertFile + `"}`)
		return time.Until(time.Unix(int64(v), 0))
	}
	for f, want := range map[testenv.TLSFiles]time.Duration{first: time.Hour, shop: 2 * time.Hour, wild: 3 * time.Hour} {
		require.InDelta(t, want.Seconds(), left(f).Seconds(), 60)
	}

	next, gone, better := ca.Issue(20*time.Hour, "shop.example"), ca.Issue(-time.Hour, "*.api.example"), ca.Issue(30*time.Hour)
	testenv.Replace(t, shop.CertFile, next.CertFile) // without its key
	wild.Replace(t, gone)
	first.Replace(t, better)
	n.reloads()
	serves(map[string]int64{"": 7, "shop.example": 3, "eu.api.example": 4})
	fault := n.lastFault()
	require.Contains(t, fault, shop.CertFile+", "+shop.KeyFile+": tls: private key does not match")
	require.Contains(t, fault, wild.CertFile+" expired at ")
	require.InDelta(t, (3 * time.Hour).Seconds(), left(wild).Seconds(), 60)

	testenv.Replace(t, shop.KeyFile, next.KeyFile)
	require.NoError(t, os.Remove(wild.CertFile))
	n.reloads()
	serves(map[string]int64{"shop.example": 5, "eu.api.example": 4})
	require.InDelta(t, (20 * time.Hour).Seconds(), left(shop).Seconds(), 60)
}

// Files that were cut short leave the old in place, although what is whole in them could
// be used: clients would miss an intermediate, or an authority its clients.
func TestCertificateCutShort(t *testing.T) {
	ca, others := testenv.NewAuthority(t), testenv.NewAuthority(t)
	served, next, operator, other := ca.Issue(time.Hour), ca.Issue(2*time.Hour), ca.Issue(time.Hour), others.Issue(time.Hour)
	n := start(t, setup{config: func(c *config.Config) {
		c.Listen.AdminTLS = &config.MutualTLS{Pair: pairOf(served), ClientCAFile: other.CAFile}
	}})
	shows := func(f testenv.TLSFiles) error {
		n.speak(showing(t, served.ClientConfig(t), f))
		resp, err := n.client.Get("https://" + n.admin + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	contents := func(file string) []byte {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		return b
	}
	// The whole first and half of a second.
	short := func(file string, first, second []byte) {
		require.NoError(t, os.WriteFile(file, append(first, second[:len(second)/2]...), 0o600))
	}
	require.NoError(t, shows(other))
	authority := contents(ca.Issue(time.Hour).CAFile)
	short(next.CertFile, contents(next.CertFile), authority)
	served.Replace(t, next)
	short(other.CAFile, contents(operator.CAFile), contents(other.CAFile))
	n.reloads()
	require.NoError(t, shows(other))
	require.EqualValues(t, 2, n.served(n.admin, ""))
	fault := n.lastFault()
	require.Contains(t, fault, served.CertFile+" is truncated or damaged")
	require.Contains(t, fault, other.CAFile+" is truncated or damaged")

	_, err := certs.Pool(other.CAFile)
	require.ErrorContains(t, err, other.CAFile+" is truncated or damaged")
}

// Without a signal, a changed pair is loaded within moments.
func TestCertificateIsLoadedWithoutASignal(t *testing.T) {
	ca := testenv.NewAuthority(t)
	files := ca.Issue(time.Hour)
	n := start(t, setup{config: func(c *config.Config) {
		c.Listen.TLS = &config.TLS{Certificates: []certs.Pair{pairOf(files)}}
		c.Listen.AdminTLS = &config.MutualTLS{Pair: pairOf(files)}
	}})
	files.Replace(t, ca.Issue(2*time.Hour))
	for _, addr := range []string{n.public, n.admin} {
		eventually(t, "the new certificate", func() bool { return n.served(addr, "") == 3 })
	}
}

func TestAdminTLS(t *testing.T) {
	files := testenv.Certificates(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("horse"), 0o600))
	for _, c := range []struct {
		name, token string
		mutual      bool
		// what a caller gets: without anything, with the token, with a certificate,
		// with both
		nothing, bearer, certificate, both int
	}{
		{"encrypted", "", false, 200, 200, 200, 200},
		{"token", token, false, 401, 200, 401, 200},
		{"certificate", "", true, 403, 403, 200, 200},
		{"both", token, true, 403, 403, 401, 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			clients := testenv.NewAuthority(t)
			operator, late := clients.Issue(time.Hour, "operator"), clients.Issue(-time.Hour, "operator")
			n := start(t, setup{config: func(node *config.Config) {
				node.Listen.AdminTokenFile = c.token
				node.Listen.AdminTLS = &config.MutualTLS{Pair: pairOf(files)}
				if c.mutual {
					node.Listen.AdminTLS.ClientCAFile = operator.CAFile
				}
			}})
			asks := func(want int, path string, headers ...string) {
				t.Helper()
				require.Equal(t, want, n.ask("GET", "https://"+n.admin+path, headers...).status, "%s %v", path, headers)
			}
			n.speak(files.ClientConfig(t))
			asks(c.nothing, "/v1/rules")
			asks(c.bearer, "/v1/rules", "Authorization: Bearer horse")
			asks(200, "/readyz") // load balancers and Consul present nothing
			asks(200, "/healthz")
			n.speak(showing(t, files.ClientConfig(t), operator))
			asks(c.certificate, "/v1/rules")
			asks(c.both, "/v1/rules", "Authorization: Bearer horse")
			require.Equal(t, 400, n.ask("GET", "http://"+n.admin+"/healthz").status, "plain HTTP")
			if !c.mutual {
				return
			}
			for what, bad := range map[string]testenv.TLSFiles{"another authority's": files, "expired": late} {
				n.speak(showing(t, files.ClientConfig(t), bad))
				_, err := n.client.Get("https://" + n.admin + "/healthz")
				require.ErrorContains(t, err, "remote error: tls: ", what)
			}
			// The clients' authority is reloaded too, and open connections do not outlive it.
			kept := &http.Transport{TLSClientConfig: showing(t, files.ClientConfig(t), operator)}
			t.Cleanup(kept.CloseIdleConnections)
			n.client.Transport = kept
			asks(c.both, "/v1/rules", "Authorization: Bearer horse")
			testenv.Replace(t, operator.CAFile, files.CAFile)
			n.reloads()
			asks(403, "/v1/rules", "Authorization: Bearer horse")
			asks(200, "/healthz")
			n.speak(showing(t, files.ClientConfig(t), files))
			asks(c.both, "/v1/rules", "Authorization: Bearer horse")
			n.speak(showing(t, files.ClientConfig(t), operator))
			_, err := n.client.Get("https://" + n.admin + "/healthz")
			require.ErrorContains(t, err, "remote error: tls: ")
		})
	}
}

// An expired certificate does not keep a node from starting: other pairs may still
// serve.
func TestWarnings(t *testing.T) {
	ca := testenv.NewAuthority(t)
	good, late := ca.Issue(time.Hour), ca.Issue(-time.Hour)
	f := func(change func(*config.Listen), want ...string) {
		t.Helper()
		c := config.Defaults()
		c.Server.MaxConnections = 1
		change(&c.Listen)
		got := c.Warnings()
		require.Len(t, got, len(want))
		for i := range want {
			require.Contains(t, got[i], want[i])
		}
	}
	f(func(*config.Listen) {})
	c := config.Defaults()
	c.Server.MaxConnections = 1 << 40
	require.Len(t, c.Warnings(), 1)
	require.Contains(t, c.Warnings()[0], "server.max_connections: 1099511627776 connections need 2199023256552 open files, and this process may open ")
	f(func(l *config.Listen) { l.Admin, l.AdminTokenFile = "10.0.0.5:8081", "token" }, "listen.admin: the token travels in the clear to 10.0.0.5:8081; set listen.admin_tls")
	f(func(l *config.Listen) { l.Admin, l.AdminTokenFile = "127.0.0.1:8081", "token" })
	f(func(l *config.Listen) {
		l.Admin, l.AdminTokenFile, l.AdminTLS = "10.0.0.5:8081", "token", &config.MutualTLS{Pair: pairOf(good)}
	})
	f(func(l *config.Listen) { l.AdminTLS = &config.MutualTLS{Pair: pairOf(late)} }, "listen.admin_tls: "+late.CertFile+" expired at ")
	f(func(l *config.Listen) {
		l.TLS = &config.TLS{Pair: pairOf(good), Certificates: []certs.Pair{pairOf(late)}}
	}, "listen.tls: "+late.CertFile+" expired at ")

	c = config.Defaults()
	c.Server.MaxConnections = 1
	c.Upstreams = []config.Upstream{{URL: "http://127.0.0.1:1"}, {URL: "http://127.0.0.1:2", Group: "a"}}
	c.Routes = []config.Route{{Match: rules.Conditions{Paths: []string{"/a;b"}}, Group: "a"}}
	c.Shedder.Document = shedding.Defaults()
	c.Shedder.Document.Classes[0].Match[0].Paths = []string{"/x", `/a\b`}
	require.Equal(t, []string{
		`shedder.classes[0].match[0].paths[1]: other origins read "/a\\b" as "/a/b", which leads elsewhere, so every request for it gets 400; add "/a/b"`,
		`routes[0].match.paths[0]: other origins read "/a;b" as "/a", which leads elsewhere, so every request for it gets 400; add "/a"`,
	}, c.Warnings())

	n := start(t, setup{config: func(c *config.Config) { c.Listen.TLS = &config.TLS{Pair: pairOf(late)} }})
	require.Equal(t, 200, n.operate("GET", "/readyz").status)
	require.Contains(t, n.logs.String(), late.CertFile+" expired at ")
	late.Replace(t, good)
	eventually(t, "the good one is served", func() bool { return n.served(n.public, "") == 2 })
}
