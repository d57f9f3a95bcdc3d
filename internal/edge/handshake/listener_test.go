package handshake_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/testenv"
)

// door is a listener for callers with a certificate of files' authority.
type door struct {
	*handshake.Listener
	t       *testing.T
	files   testenv.TLSFiles
	reasons chan handshake.Reason
	refused chan handshake.Refusal
	entered chan net.Conn
}

func open(t *testing.T, change func(*handshake.Config)) *door {
	t.Helper()
	d := &door{t: t, files: testenv.Certificates(t), reasons: make(chan handshake.Reason, 1000), refused: make(chan handshake.Refusal, 1000), entered: make(chan net.Conn, 1000)}
	pair, err := tls.LoadX509KeyPair(d.files.CertFile, d.files.KeyFile)
	require.NoError(t, err)
	ca, err := os.ReadFile(d.files.CAFile)
	require.NoError(t, err)
	c := handshake.Config{
		TLS:      &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: x509.NewCertPool(), ClientAuth: tls.RequireAndVerifyClientCert},
		Identify: func(netip.Addr, *tls.ConnectionState) (func(), bool) { return nil, true },
		Callers:  2,
		Refused:  func(why handshake.Refusal) { d.refused <- why },
		Failed:   func(why handshake.Reason) { d.reasons <- why },
	}
	require.True(t, c.TLS.ClientCAs.AppendCertsFromPEM(ca))
	if change != nil {
		change(&c)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d.Listener = handshake.Listen(ln, c)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := d.Accept()
			if err != nil {
				return
			}
			d.entered <- c
		}
	})
	t.Cleanup(func() { _ = d.Close(); accepting.Wait() })
	return d
}

func (d *door) dial(from string) net.Conn {
	d.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(d.t.Context(), "tcp", d.Addr().String())
	require.NoError(d.t, err)
	d.t.Cleanup(func() { c.Close() })
	require.NoError(d.t, c.SetDeadline(time.Now().Add(testenv.Patience)))
	return c
}

// client is a caller's configuration.
func (d *door) client() *tls.Config {
	pair, err := tls.LoadX509KeyPair(d.files.CertFile, d.files.KeyFile)
	require.NoError(d.t, err)
	c := d.files.ClientConfig(d.t)
	c.Certificates, c.ServerName = []tls.Certificate{pair}, "localhost"
	return c
}

func (d *door) enter() net.Conn {
	d.t.Helper()
	c := tls.Client(d.dial("127.0.0.1"), d.client())
	require.NoError(d.t, c.Handshake())
	return c
}

func ends(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, c)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it stays open")
}

func TestHandshakesThatFail(t *testing.T) {
	f := func(want handshake.Reason, attack func(d *door, c net.Conn)) {
		t.Helper()
		d := open(t, func(c *handshake.Config) {
			if want == handshake.Timeout {
				c.Within = time.Millisecond
			}
		})
		attack(d, d.dial("127.0.0.1"))
		require.Equal(t, want.String(), (<-d.reasons).String())
		require.Empty(t, d.entered)
	}
	f(handshake.Timeout, func(_ *door, c net.Conn) { ends(t, c) })
	f(handshake.Timeout, func(_ *door, c net.Conn) { _, _ = c.Write([]byte{22, 3, 1}); ends(t, c) })
	f(handshake.Closed, func(_ *door, c net.Conn) { _, _ = c.Write([]byte{22, 3, 1}); _ = c.Close() })
	f(handshake.Certificate, func(d *door, c net.Conn) {
		config := d.client()
		config.Certificates = nil
		_ = tls.Client(c, config).Handshake()
		ends(t, c)
	})
	f(handshake.Certificate, func(d *door, c net.Conn) {
		config, stranger := d.client(), testenv.Certificates(t)
		pair, err := tls.LoadX509KeyPair(stranger.CertFile, stranger.KeyFile)
		require.NoError(t, err)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		_ = tls.Client(c, config).Handshake()
		ends(t, c)
	})
	f(handshake.Rejected, func(d *door, c net.Conn) {
		config := d.client()
		config.ServerName = "other.example"
		require.Error(t, tls.Client(c, config).Handshake())
	})
	f(handshake.Protocol, func(d *door, c net.Conn) {
		_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		b, _ := io.ReadAll(c)
		require.Contains(t, string(b), "Client sent an HTTP request to an HTTPS server")
	})
	f(handshake.Protocol, func(d *door, c net.Conn) {
		_ = tls.Client(c, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true}).Handshake() //nolint:gosec // to be refused
	})
}

// Places are for callers; one that closes its connection makes room.
func TestPlaces(t *testing.T) {
	d := open(t, nil)
	_ = d.dial("127.0.0.1").Close() // as health checks do
	one, two := d.enter(), d.enter()
	first, second := <-d.entered, <-d.entered
	ends(t, d.dial("127.0.0.1"))
	require.Equal(t, handshake.Full, <-d.refused)
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	ends(t, one)
	ends(t, two)
	d.enter()
	<-d.entered
	all, unknown := d.Open()
	require.Equal(t, 1, all-unknown)
	require.Empty(t, d.reasons)
}

// An address with many connections in a handshake makes room for its own and for those of others.
func TestOneAddressTakesNoPlaces(t *testing.T) {
	const most = 100
	d := open(t, func(c *handshake.Config) { c.Pending = most })
	other := d.dial("127.0.0.8")
	var strangers []net.Conn
	for range 3 * most {
		strangers = append(strangers, d.dial("127.0.0.9"))
	}
	for range 2*most + 1 {
		require.Equal(t, handshake.Unauthenticated, <-d.refused)
	}
	ends(t, strangers[0])
	d.enter()
	require.NoError(t, tls.Client(other, d.client()).Handshake(), "the oldest of all")
}

// A listener that is closed ends handshakes.
func TestCloseEndsHandshakes(t *testing.T) {
	d := open(t, nil)
	c := d.dial("127.0.0.1")
	_, err := c.Write([]byte{22, 3, 1})
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, unknown := d.Open(); return unknown == 1 }, testenv.Patience, time.Millisecond)
	require.NoError(t, d.Close())
	ends(t, c)
	require.Empty(t, d.reasons)
}

// A connection that is closed to make room for another is not one that Accept has returned, even
// if its handshake ends at that moment.
func TestRoomIsMadeOfStrangers(t *testing.T) {
	first, accepted := make(chan net.Conn, 1), make(chan net.Conn, 1)
	var d *door
	d = open(t, func(c *handshake.Config) {
		c.Pending = 1
		c.Refused = func(handshake.Refusal) {
			client, closed := tls.Client(<-first, d.client()), make(chan struct{})
			go func() { _, _ = io.Copy(io.Discard, client); close(closed) }()
			select {
			case c := <-d.entered:
				accepted <- c
			case <-closed:
			}
			close(accepted)
		}
	})
	first <- d.dial("127.0.0.8")
	d.enter()
	<-d.entered
	if c := <-accepted; c != nil {
		_, err := c.Write([]byte("a"))
		require.NoError(t, err)
	}
}
