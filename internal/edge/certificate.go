package edge

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"sync/atomic"
)

// certificate is a TLS certificate that is read again when its files change.
type certificate struct {
	files   TLSConfig
	current atomic.Pointer[tls.Certificate]
	read    [2][]byte // what current was made of
}

func newCertificate(files TLSConfig) (*certificate, error) {
	c := &certificate{files: files}
	return c, c.reload()
}

// reload reads the files. A pair that does not fit leaves the old one in place.
func (c *certificate) reload() error {
	cert, err := os.ReadFile(c.files.CertFile)
	if err != nil {
		return fmt.Errorf("listen.tls.cert_file: %w", err)
	}
	key, err := os.ReadFile(c.files.KeyFile)
	if err != nil {
		return fmt.Errorf("listen.tls.key_file: %w", err)
	}
	if bytes.Equal(cert, c.read[0]) && bytes.Equal(key, c.read[1]) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("listen.tls: %w", err)
	}
	c.current.Store(&pair)
	c.read = [2][]byte{cert, key}
	return nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}

// expires is when clients will refuse the certificate, in Unix seconds. The leaf alone
// counts: a chain is renewed with it.
func (c *certificate) expires() float64 {
	return float64(c.current.Load().Leaf.NotAfter.Unix())
}
