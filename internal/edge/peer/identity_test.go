package peer

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestIdentities(t *testing.T) {
	for _, c := range []struct {
		uris, names []string
		want        identity
		fault       string
	}{
		{uris: []string{"spiffe://weir/eu-west/ams1-1"}, want: identity{"eu-west", "ams1-1"}},
		{uris: []string{"spiffe://weir/eu-west"}, want: identity{"eu-west", ""}},
		{names: []string{"localhost", "Ams1-1.EU-west.peer.weir"}, want: identity{"eu-west", "ams1-1"}},
		{names: []string{"eu-west.peer.weir"}, want: identity{"eu-west", ""}},
		{uris: []string{"spiffe://weir/eu-west/a"}, names: []string{"a.eu-west.peer.weir"}, want: identity{"eu-west", "a"}},
		{uris: []string{"spiffe://weir/eu-west/a", "spiffe://weir/eu-west/b"}, fault: "names both eu-west/a and eu-west/b"},
		{uris: []string{"spiffe://weir/eu-west"}, names: []string{"us-east.peer.weir"}, fault: "names both"},
		{uris: []string{"https://weir/eu-west/a", "spiffe://weir/", "spiffe://weir/eu-west/", "spiffe://weir/eu-west/a/b", "spiffe://weir/EU/a", "spiffe://weir/eu-west/a?x"}, fault: "names no node"},
		{names: []string{"*.eu-west.peer.weir", ".peer.weir", "a.b.eu-west.peer.weir", "eu-west.peer.weir.example"}, fault: "names no node"},
		{fault: "names no node"},
	} {
		cert := &x509.Certificate{DNSNames: c.names}
		for _, text := range c.uris {
			u, err := url.Parse(text)
			require.NoError(t, err)
			cert.URIs = append(cert.URIs, u)
		}
		got, err := identify(cert)
		if c.fault != "" {
			require.ErrorContains(t, err, c.fault, "%v", c)
			continue
		}
		require.NoError(t, err, "%v", c)
		require.Equal(t, c.want, got)
	}
}

// Neither side accepts the other without a good certificate.
func TestWhoIsRefused(t *testing.T) {
	authority, other := testenv.NewAuthority(t), testenv.NewAuthority(t)
	good := authority.Issue(time.Hour, "spiffe://weir/eu-west/a")
	mixed := other.Issue(time.Hour, "spiffe://weir/eu-west/a")
	mixed.CAFile = good.CAFile // trusts the others, who do not trust it
	for name, c := range map[string]struct {
		files  testenv.TLSFiles
		region string
		why    string // in any of the ways in which a refused handshake shows; "": any
	}{
		"another authority":              {files: other.Issue(time.Hour, "spiffe://weir/eu-west/a"), region: "eu-west", why: "this node does not accept its certificate"},
		"another authority's, here only": {files: mixed, region: "eu-west"},
		"expired":                        {files: authority.Issue(-time.Hour, "spiffe://weir/eu-west/a"), region: "eu-west"},
		"no name":                        {files: authority.Issue(time.Hour), region: "eu-west"},
		"a region not in the topology":   {files: authority.Issue(time.Hour, "spiffe://weir/mars/a"), region: "mars", why: "region mars is not in the topology"},
		"another region's":               {files: good, region: "ap-south", why: "the message is from ap-south/a, but the certificate is that of eu-west/a"},
	} {
		files := authority.Issue(time.Hour, "spiffe://weir/us-east/b")
		b := newEnd(t, "us-east", "b", &files)
		to := b.start(t)
		a := newEnd(t, c.region, "a", &c.files)
		a.Directory.SetRegions([]string{"eu-west", "us-east", "ap-south", c.region})
		_, err := a.call(t, to, "x")
		var failed *CallError
		require.ErrorAs(t, err, &failed, name)
		if c.why != "" {
			require.ErrorIs(t, err, ErrRefused, name)
			require.ErrorContains(t, err, c.why, name)
		}
		require.Zero(t, b.seen.count(Incoming, OK), name)
		t.Logf("%s: %v", name, err)
	}
}

// A caller without a certificate, or of TLS 1.2, gets no answer.
func TestStrangers(t *testing.T) {
	_, b, authority := pair(t)
	to := b.start(t)
	files := authority.Issue(time.Hour, "spiffe://weir/eu-west/a")
	cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	require.NoError(t, err)
	for name, change := range map[string]func(*tls.Config){
		"no certificate": func(c *tls.Config) { c.Certificates = nil },
		"TLS 1.2":        func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
		"HTTP/1.1":       func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} },
	} {
		config := files.ClientConfig(t)
		config.InsecureSkipVerify, config.Certificates, config.NextProtos = true, []tls.Certificate{cert}, []string{"h2"}
		change(config)
		c, err := tls.Dial("tcp", to.Addr, config)
		if err == nil { // the server's verdict comes after the client's last message
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
			_, err = c.Read(make([]byte, 1))
			_ = c.Close()
		}
		require.Error(t, err, name)
		require.NotErrorIs(t, err, net.ErrClosed)
		t.Logf("%s: %v", name, err)
	}
	require.Empty(t, b.seen.list)
	eventually(t, "no connection is left", func() bool {
		all, _ := b.server.listener.Load().Open()
		return all == 0
	})
}

// Certificates and authorities change while nodes run: new connections use them, and open
// ones end with what vouched for them.
func TestCertificatesAreReplaced(t *testing.T) {
	old, next := testenv.NewAuthority(t), testenv.NewAuthority(t)
	one, two := old.Issue(time.Hour, "spiffe://weir/eu-west/a"), old.Issue(time.Hour, "spiffe://weir/us-east/b")
	a, b := newEnd(t, "eu-west", "a", &one), newEnd(t, "us-east", "b", &two)
	to := b.start(t)
	_, err := a.call(t, to, "x")
	require.NoError(t, err)

	replace := func(e *end, files testenv.TLSFiles, name string) {
		fresh := next.Issue(time.Hour, name)
		files.Replace(t, fresh)
		testenv.Replace(t, files.CAFile, fresh.CAFile)
		require.NoError(t, e.Certificates.Reload())
	}
	replace(b, two, "spiffe://weir/us-east/b")
	_, err = a.call(t, to, "x")
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "no longer valid")

	replace(a, one, "spiffe://weir/eu-west/a")
	eventually(t, "both have the new authority", func() bool { _, err := a.call(t, to, "x"); return err == nil })
}
