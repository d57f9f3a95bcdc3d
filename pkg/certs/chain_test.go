package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/certs"
)

// A chain that clients cannot follow is refused, and at a reload does not replace one that they can.
// Expired certificates at its end are common, and clients ignore them.
func TestChains(t *testing.T) {
	dir := t.TempDir()
	pair := certs.Pair{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	authority := func(serial, hours int64) []byte {
		ca := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(time.Duration(hours) * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
		der, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
		require.NoError(t, err)
		return der
	}
	signer, cross := authority(1, 1), authority(2, -1)
	issuer, err := x509.ParseCertificate(signer)
	require.NoError(t, err)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(3), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, issuer, key.Public(), caKey)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(pair.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	write := func(chain ...[]byte) { writeChain(t, pair.CertFile, chain...) }
	other := makeCertificate(t, -time.Hour, time.Hour).Raw
	for fault, chain := range map[string][][]byte{
		": certificate 2 in it: x509:":                 {der, signer[:len(signer)-1]},
		": certificate 3 in it: x509:":                 {der, signer, {1}},
		": certificate 2 in it did not sign the first": {der, other, signer},
	} {
		write(chain...)
		_, err := certs.NewServer([]certs.Pair{pair}, "")
		require.ErrorContains(t, err, pair.CertFile+fault)

		write(der, signer)
		s, err := certs.NewServer([]certs.Pair{pair}, "")
		require.NoError(t, err)
		write(chain...)
		require.ErrorContains(t, s.Reload(), pair.CertFile+fault)
		own, _ := s.Current()
		require.Len(t, own.Certificate, 2)
		require.Equal(t, signer, own.Certificate[1])
	}
	for _, chain := range [][][]byte{{der}, {der, signer, cross}, {der, cross}, {der, signer, other}} {
		write(chain...)
		_, err := certs.NewServer([]certs.Pair{pair}, "")
		require.NoError(t, err)
	}
}

// writeChain writes certificates into a PEM file.
func writeChain(t *testing.T, file string, chain ...[]byte) {
	t.Helper()
	var text []byte
	for _, der := range chain {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	require.NoError(t, os.WriteFile(file, text, 0o600))
}

// An intermediate that has expired does not replace a valid one, and an early end of it is the
// end of the certificate.
func TestIntermediates(t *testing.T) {
	dir := t.TempDir()
	pair := certs.Pair{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(pair.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	made := func(name string, ends time.Time, by *x509.Certificate) *x509.Certificate {
		c := &x509.Certificate{SerialNumber: big.NewInt(ends.Unix()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: ends, IsCA: by == nil || by.Subject.CommonName == "root", BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
		if by == nil {
			by = c
		}
		der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), key)
		require.NoError(t, err)
		c, err = x509.ParseCertificate(der)
		require.NoError(t, err)
		return c
	}
	now := time.Now().Truncate(time.Second)
	past, soon, later := now.Add(-time.Hour), now.Add(time.Hour), now.Add(2*time.Hour)
	root := made("root", past, nil)
	write := func(list ...*x509.Certificate) {
		var chain [][]byte
		for _, c := range list {
			chain = append(chain, c.Raw)
		}
		writeChain(t, pair.CertFile, chain...)
	}
	ends := func(s *certs.Server) (at time.Time) {
		s.Expiries(func(_ string, t time.Time) { at = t })
		return at.Local()
	}

	between := made("between", soon, root)
	write(made("leaf", later, between), between, root)
	s, err := certs.NewServer([]certs.Pair{pair}, "")
	require.NoError(t, err)
	require.Equal(t, soon, ends(s))

	gone := made("between", past, root)
	write(made("leaf", later, gone), gone)
	require.ErrorContains(t, s.Reload(), pair.CertFile+" has an intermediate that expired at ")
	require.Equal(t, soon, ends(s))
	s, err = certs.NewServer([]certs.Pair{pair}, "")
	require.NoError(t, err, "a node starts with it, as with an expired certificate")
	require.Equal(t, past, ends(s))

	write(made("leaf", later, root), root)
	require.NoError(t, s.Reload())
	require.Equal(t, later, ends(s), "clients have an authority of this name")
}
