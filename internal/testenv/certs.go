package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TLSFiles are PEM files: a throw-away authority, and a certificate it signed
// for 127.0.0.1, ::1 and localhost with its key.
type TLSFiles struct{ CAFile, CertFile, KeyFile string }

// Certificates writes a fresh set, valid for a day, to a temporary directory of
// t. The certificate serves both ends of a connection: on the Redis Cluster bus
// every node is also a client, and always has to show one.
func Certificates(t testing.TB) TLSFiles {
	t.Helper()
	dir := t.TempDir()
	files := TLSFiles{
		CAFile:   filepath.Join(dir, "ca.crt"),
		CertFile: filepath.Join(dir, "weir.crt"),
		KeyFile:  filepath.Join(dir, "weir.key"),
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("testenv: certificates: %v", err)
		}
	}
	writePEM := func(file, kind string, der []byte) {
		t.Helper()
		must(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	newKey := func() *ecdsa.PrivateKey {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		return key
	}

	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "weir test authority"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "localhost"},
		NotBefore:    ca.NotBefore,
		NotAfter:     ca.NotAfter,
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	caKey, leafKey := newKey(), newKey()
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	must(err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, leafKey.Public(), caKey)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	must(err)

	writePEM(files.CAFile, "CERTIFICATE", caDER)
	writePEM(files.CertFile, "CERTIFICATE", leafDER)
	writePEM(files.KeyFile, "PRIVATE KEY", keyDER)
	return files
}

// ClientConfig is what a client of a server with this certificate needs. It
// shows no certificate of its own.
func (f TLSFiles) ClientConfig(t testing.TB) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(f.CAFile)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatalf("testenv: no certificate in %s", f.CAFile)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}
