package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TLSFiles are PEM files: an authority, a certificate that it signed, and that
// certificate's key.
type TLSFiles struct{ CAFile, CertFile, KeyFile string }

// Authority signs certificates that are valid for a test.
type Authority struct {
	t      testing.TB
	dir    string
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	issued int64
}

// Certificates writes a fresh authority and a certificate for 127.0.0.1, ::1 and
// localhost, valid for a day, to a temporary directory of t.
func Certificates(t testing.TB) TLSFiles {
	t.Helper()
	return NewAuthority(t).Issue(24 * time.Hour)
}

// NewAuthority creates a throwaway authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir(), key: newKey(t)}
	a.cert = &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "weir test authority"},
		NotBefore:             time.Now().Add(-48 * time.Hour),
		NotAfter:              time.Now().Add(48 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	require.NoError(a.t, err)
	a.write("ca.crt", "CERTIFICATE", der)
	return a
}

// Issue writes a certificate for 127.0.0.1, ::1 and names; without names, for localhost.
// A name with a scheme becomes a URI. It expires after lasts, or has already expired if that is negative. It serves both ends
// of a connection: on the Redis Cluster bus every node is also a client, and must always
// present one.
func (a *Authority) Issue(lasts time.Duration, names ...string) TLSFiles {
	a.t.Helper()
	a.issued++
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(1 + a.issued),
		Subject:      pkix.Name{CommonName: "localhost"},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     time.Now().Add(lasts),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if u, err := url.Parse(name); err == nil && u.Scheme != "" {
			leaf.URIs = append(leaf.URIs, u)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	if len(names) == 0 {
		leaf.DNSNames = []string{"localhost"}
	}
	key := newKey(a.t)
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, key.Public(), a.key)
	require.NoError(a.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(a.t, err)
	return TLSFiles{
		CAFile:   filepath.Join(a.dir, "ca.crt"),
		CertFile: a.write(fmt.Sprintf("%d.crt", a.issued), "CERTIFICATE", der),
		KeyFile:  a.write(fmt.Sprintf("%d.key", a.issued), "PRIVATE KEY", keyDER),
	}
}

func (a *Authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	file := filepath.Join(a.dir, name)
	require.NoError(a.t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// Replace replaces the certificate and key of f by those of next.
func (f TLSFiles) Replace(t testing.TB, next TLSFiles) {
	t.Helper()
	Replace(t, f.CertFile, next.CertFile)
	Replace(t, f.KeyFile, next.KeyFile)
}

// Replace replaces file by a copy of next, by a rename.
func Replace(t testing.TB, file, next string) {
	t.Helper()
	b, err := os.ReadFile(next)
	if err == nil {
		err = os.WriteFile(file+".next", b, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".next", file)
	}
	require.NoError(t, err)
}

// ClientConfig returns what a client of a server with this certificate needs. It presents
// no certificate of its own.
func (f TLSFiles) ClientConfig(t testing.TB) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(f.CAFile)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("testenv: no certificate in %s", f.CAFile)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}
