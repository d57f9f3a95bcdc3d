package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/certs"
)

// made is an authority that is its own certificate.
type made struct {
	*x509.Certificate
	cert, key []byte // PEM
}

func makeCertificate(t *testing.T, from, until time.Duration) made {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return made{cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})}
}

// A certificate or an authority that nobody would accept, or that cannot be read, does not
// replace a valid one.
func TestReloadKeepsWhatIsValid(t *testing.T) {
	dir := t.TempDir()
	pair := certs.Pair{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	caFile := filepath.Join(dir, "ca.pem")
	write := func(file string, parts ...[]byte) {
		var all []byte
		for _, p := range parts {
			all = append(all, p...)
		}
		require.NoError(t, os.WriteFile(file, all, 0o600))
	}
	valid, next := makeCertificate(t, -time.Hour, time.Hour), makeCertificate(t, -time.Hour, 2*time.Hour)
	gone, early := makeCertificate(t, -2*time.Hour, -time.Hour), makeCertificate(t, time.Hour, 2*time.Hour)
	write(pair.CertFile, valid.cert)
	write(pair.KeyFile, valid.key)
	write(caFile, valid.cert)
	s, err := certs.NewServer([]certs.Pair{pair}, caFile)
	require.NoError(t, err)

	for _, bad := range []struct {
		made
		fault string
	}{{gone, "expired at "}, {early, "is not valid before "}} {
		write(pair.CertFile, bad.cert)
		write(pair.KeyFile, bad.key)
		require.ErrorContains(t, s.Reload(), pair.CertFile+" "+bad.fault)
		own, _ := s.Current()
		require.True(t, own.Leaf.Equal(valid.Certificate))
	}
	write(pair.CertFile, next.cert)
	write(pair.KeyFile, next.key)
	require.NoError(t, s.Reload())
	own, _ := s.Current()
	require.True(t, own.Leaf.Equal(next.Certificate))

	vouches := func(c made) bool {
		return s.Vouches(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{c.Certificate}})
	}
	damaged := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: valid.Raw[:len(valid.Raw)-1]})
	for fault, content := range map[string][][]byte{
		" expired at ":                 {gone.cert, early.cert},
		" is not valid before ":        {early.cert},
		": certificate 2 in it: x509:": {next.cert, damaged},
		" contains no PEM certificate": {next.key},
	} {
		write(caFile, content...)
		require.ErrorContains(t, s.Reload(), caFile+fault)
		require.True(t, vouches(valid), fault)
		require.False(t, vouches(next), fault)
	}
	write(caFile, gone.cert, next.cert)
	require.NoError(t, s.Reload(), "one of them is valid")
	require.True(t, vouches(next))
	require.False(t, vouches(valid))
}
