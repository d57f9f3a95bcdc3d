package edge

import (
	"crypto/tls"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// startTLS starts a node whose public side is TLS, and points its client there.
func startTLS(t *testing.T, s setup) *node {
	t.Helper()
	files := testenv.Certificates(t)
	configure := s.config
	s.config = func(c *Config) {
		c.Listen.TLS = &TLSConfig{CertFile: files.CertFile, KeyFile: files.KeyFile}
		if configure != nil {
			configure(c)
		}
	}
	n := start(t, s)
	n.client.Transport.(*http.Transport).TLSClientConfig = files.ClientConfig(t)
	return n
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

func TestCertificateReload(t *testing.T) {
	n := startTLS(t, setup{})
	good := n.config.Listen.TLS
	next := testenv.Certificates(t)
	replace := func(from, to string) {
		b, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to+".next", b, 0o600))
		require.NoError(t, os.Rename(to+".next", to))
	}
	dial := func() error {
		conn, err := tls.Dial("tcp", n.public, next.ClientConfig(t))
		if err != nil {
			return err
		}
		return conn.Close()
	}
	require.Error(t, dial(), "the new authority does not know the old certificate")

	// Half of a pair does not fit: the old one goes on, and the fault is told once.
	replace(next.CertFile, good.CertFile)
	n.reload <- syscall.SIGHUP
	eventually(t, "the fault is logged", func() bool { return len(n.logs.lines(t, "reload certificate")) > 0 })
	require.Equal(t, 200, n.ask("GET", "https://"+n.public+"/").status)
	n.reload <- syscall.SIGHUP
	eventually(t, "two reloads", func() bool { return len(n.logs.lines(t, "reload asked for")) == 2 })

	replace(next.KeyFile, good.KeyFile)
	n.reload <- syscall.SIGHUP
	eventually(t, "the new certificate is served", func() bool { return dial() == nil })
	require.Greater(t, n.metric("weir_certificate_expiry_seconds"), float64(time.Now().Unix()))
	require.Len(t, n.logs.lines(t, "reload certificate"), 1)
}
