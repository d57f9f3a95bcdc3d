package proxy

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// tlsOrigin answers "ok" to each request over TLS. With the first answer on its first
// connection it sends ahead in the same packet, and later whatever more sends.
type tlsOrigin struct {
	version   uint16
	ahead     string
	more      func(s *tlsSide)
	due, done chan struct{}
	conns     atomic.Int32
}

// tlsSide is the origin's end of a connection.
type tlsSide struct {
	*tls.Conn
	br     *bufio.Reader
	below  *heldConn
	secret *bytes.Buffer // the key log
	sent   func()        // reports that more's bytes have been sent
}

// heldConn holds back writes, so that several records leave in one packet.
type heldConn struct {
	net.Conn
	held   bool
	buffer bytes.Buffer
}

func (c *heldConn) Write(b []byte) (int, error) {
	if c.held {
		return c.buffer.Write(b)
	}
	return c.Conn.Write(b)
}

// release sends the first n held bytes; all of them if n is negative.
func (c *heldConn) release(n int) {
	if c.held = false; n < 0 {
		n = c.buffer.Len()
	}
	_, _ = c.Conn.Write(c.buffer.Next(n))
}

func (o *tlsOrigin) start(t *testing.T) *edge {
	t.Helper()
	authority := httptest.NewTLSServer(nil)
	authority.Close()
	o.due, o.done = make(chan struct{}), make(chan struct{}, 1)
	url := evil(t, func(nc net.Conn, _ *bufio.Reader) {
		first := o.conns.Add(1) == 1
		s := &tlsSide{below: &heldConn{Conn: nc}, secret: new(bytes.Buffer)}
		s.sent = sync.OnceFunc(func() { o.done <- struct{}{} })
		s.Conn = tls.Server(s.below, &tls.Config{
			Certificates: authority.TLS.Certificates, MaxVersion: o.version,
			KeyLogWriter: s.secret, SessionTicketsDisabled: true, // no record but ours
		})
		s.br = bufio.NewReader(s.Conn)
		for {
			if _, ok := head(s.br); !ok {
				return
			}
			s.below.held = true
			_, _ = io.WriteString(s, okAnswer)
			if first {
				_, _ = io.WriteString(s, o.ahead)
			}
			s.below.release(-1)
			if first {
				first = false
				<-o.due
				o.more(s)
				s.sent()
			}
		}
	})
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate())
	return newEdge(t, Config{
		Upstreams: []string{strings.Replace(url, "http", "https", 1)},
		TLS:       &tls.Config{RootCAs: roots, ServerName: "example.com"},
	}, ForwardOptions{})
}

// seal makes the TLS 1.3 record with that number. Go's server can neither send a ticket
// late nor skip a number.
func (s *tlsSide) seal(t *testing.T, number byte, kind byte, message string) []byte {
	t.Helper()
	require.Equal(t, tls.TLS_AES_128_GCM_SHA256, s.ConnectionState().CipherSuite)
	var traffic []byte
	for line := range strings.Lines(s.secret.String()) {
		if f := strings.Fields(line); f[0] == "SERVER_TRAFFIC_SECRET_0" {
			var err error
			traffic, err = hex.DecodeString(f[2])
			require.NoError(t, err)
		}
	}
	expand := func(label string, n int) []byte {
		label = "tls13 " + label
		info := append(binary.BigEndian.AppendUint16(nil, uint16(n)), byte(len(label)))
		b, err := hkdf.Expand(sha256.New, traffic, string(append(append(info, label...), 0)), n)
		require.NoError(t, err)
		return b
	}
	block, err := aes.NewCipher(expand("key", 16))
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	nonce := expand("iv", 12)
	nonce[11] ^= number
	inner := append([]byte(message), kind)
	header := append([]byte{23, 3, 3}, binary.BigEndian.AppendUint16(nil, uint16(len(inner)+aead.Overhead()))...)
	return aead.Seal(header, nonce, inner, header)
}

func TestUnaskedBytesOverTLS(t *testing.T) {
	const (
		kept, closed, caught = "kept", "closed", "caught"
		handshake, data      = 22, 23
		ticket               = "\x04\x00\x00\x15" + "\x00\x00\x00\x3c" + "\x01\x02\x03\x04" + "\x02\x00\x00" + "\x00\x06ticket" + "\x00\x00"
	)
	f := func(name string, version uint16, ahead, want string, more func(s *tlsSide)) {
		t.Run(name, func(t *testing.T) {
			o := &tlsOrigin{version: version, ahead: ahead, more: more}
			e := o.start(t)
			for i := range 4 {
				resp, body := e.get(t, "/")
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, "ok", body)
				require.NotContains(t, resp.Header, "Poison")
				e.wait(t)
				if i == 0 {
					close(o.due)
					<-o.done
				}
			}
			require.EqualValues(t, map[string]int{kept: 1, closed: 2, caught: 4}[want], o.conns.Load())
			require.Equal(t, want == caught, len(e.caught()) == 1)
		})
	}
	nothing := func(*tlsSide) {}
	poisons := func(s *tlsSide) { _, _ = io.WriteString(s, poison) }
	part := func(n int) func(*tlsSide) {
		return func(s *tlsSide) {
			s.below.held = true
			poisons(s)
			s.below.release(n)
		}
	}
	for name, version := range map[string]uint16{"1.2 ": tls.VersionTLS12, "1.3 ": tls.VersionTLS13} {
		f(name+"nothing", version, "", kept, nothing)
		f(name+"a response", version, "", caught, poisons)
		f(name+"a response read ahead", version, poison, caught, nothing)
		f(name+"half a record", version, "", closed, part(20))
		f(name+"half a record's header", version, "", closed, part(3))
		f(name+"close notify", version, "", closed, func(s *tlsSide) { _ = s.CloseWrite() })
		f(name+"an end without notice", version, "", closed, func(s *tlsSide) { s.below.Close() })
		f(name+"no record", version, "", closed, func(s *tlsSide) { _, _ = io.WriteString(s.below, poison) })
	}
	// From here on the origin's records are handmade.
	f("a late ticket", tls.VersionTLS13, "", kept, func(s *tlsSide) {
		_, _ = s.below.Write(s.seal(t, 1, handshake, ticket))
		s.sent()
		for number := byte(2); ; number++ {
			if _, ok := head(s.br); !ok {
				return
			}
			_, _ = s.below.Write(s.seal(t, number, data, okAnswer))
		}
	})
	f("a late ticket and a response", tls.VersionTLS13, "", caught, func(s *tlsSide) {
		_, _ = s.below.Write(append(s.seal(t, 1, handshake, ticket), s.seal(t, 2, data, poison)...))
	})
}
