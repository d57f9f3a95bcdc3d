// Package certs reads certificates from PEM files: those that a client presents and
// verifies servers by, and those of a listener, which it reloads when they change.
package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"time"

	"github.com/weir-edge/weir/pkg/field"
)

// Client configures TLS to a server. Without a CAFile, it trusts the system's
// authorities. The client certificate is read again for each connection.
type Client struct {
	// CAFile is the file with the certificates of trusted authorities; absent: the system's.
	CAFile string `yaml:"ca_file" json:"ca_file,omitempty"`
	// CertFile is the file with the client certificate; it requires key_file.
	CertFile string `yaml:"cert_file" json:"cert_file,omitempty"`
	// KeyFile is the file with the client certificate's private key.
	KeyFile string `yaml:"key_file" json:"key_file,omitempty"`
	// ServerName is the name that the server's certificate must have; absent: the host of the
	// address.
	ServerName string `yaml:"server_name" json:"server_name,omitempty"`
}

// Validate returns every fault as field.Errors, or nil. Named files must exist.
func (c *Client) Validate() error {
	if c == nil {
		return nil
	}
	f := &field.Errors{}
	f.File("ca_file", c.CAFile)
	f.File("cert_file", c.CertFile)
	f.File("key_file", c.KeyFile)
	if (c.CertFile == "") != (c.KeyFile == "") {
		f.Add("", "must name both cert_file and key_file, or neither")
	}
	return f.Err()
}

// Load reads the files. A nil c trusts the system's authorities. An error names its field
// and file.
func (c *Client) Load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c == nil {
		return config, nil
	}
	config.ServerName = c.ServerName
	var err error
	if config.RootCAs, err = Pool(c.CAFile); err != nil {
		return nil, fmt.Errorf("ca_file: %w", err)
	}
	if c.CertFile == "" {
		return config, nil
	}
	if _, err := c.pair(); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := c.pair()
		if err == nil && expired(pair) {
			err = fmt.Errorf("cert_file: %s expired at %s; renew it", c.CertFile, rfc3339(pair.Leaf.NotAfter))
		}
		return pair, err
	}
	return config, nil
}

func (c *Client) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("cert_file: %s, %s: %w", c.CertFile, c.KeyFile, err)
	}
	return &pair, nil
}

// Pool reads a file of authorities; it returns nil, which means the system's, if none is
// named.
func Pool(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return poolOf(file, text)
}

func poolOf(file string, text []byte) (*x509.CertPool, error) {
	if err := whole(file, text); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s contains no PEM certificate", file)
	}
	return pool, nil
}

// authoritiesOf reads a file of authorities. Unlike poolOf, it refuses a certificate that it
// cannot read: callers with a certificate of that authority would be locked out.
func authoritiesOf(file string, text []byte) (list []*x509.Certificate, err error) {
	if err := whole(file, text); err != nil {
		return nil, err
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: certificate %d in it: %w", file, len(list)+1, err)
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s contains no PEM certificate", file)
	}
	return list, nil
}

// whole returns an error for a file of which crypto/tls and crypto/x509 would silently skip
// a part, because it is damaged or still being written.
func whole(file string, text []byte) error {
	begun := bytes.Count(text, []byte("-----BEGIN "))
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		begun--
	}
	if begun != 0 {
		return fmt.Errorf("%s is truncated or damaged: it has more BEGIN than END lines; write it again", file)
	}
	return nil
}

// chained returns an error for a chain that clients cannot follow: a certificate after the first
// that cannot be parsed, or the second if it did not sign the first. Expired certificates and
// extra ones after that pass: many chains in use end with an expired cross-signed root, which
// clients ignore.
func chained(chain [][]byte) error {
	var list []*x509.Certificate
	for i, der := range chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("certificate %d in it: %w", i+1, err)
		}
		list = append(list, c)
	}
	if len(list) > 1 {
		if err := list[0].CheckSignatureFrom(list[1]); err != nil {
			return fmt.Errorf("certificate 2 in it did not sign the first: %w; put each certificate after the one that it signed", err)
		}
	}
	return nil
}

// signerOf returns the intermediate that signed the leaf; nil if the file has none. An
// authority that signed itself does not count: clients look for their own copy of it.
func signerOf(c *tls.Certificate) *x509.Certificate {
	if len(c.Certificate) < 2 {
		return nil
	}
	signer, err := x509.ParseCertificate(c.Certificate[1])
	if err != nil || bytes.Equal(signer.RawSubject, signer.RawIssuer) {
		return nil
	}
	return signer
}

func expired(c *tls.Certificate) bool { return time.Now().After(c.Leaf.NotAfter) }

// untimelyPair says why clients would refuse a certificate or its signer now; it returns nil
// if they would not.
func untimelyPair(c *tls.Certificate) error {
	if err := untimely(c.Leaf); err != nil {
		return err
	}
	if signer := signerOf(c); signer != nil {
		if err := untimely(signer); err != nil {
			return fmt.Errorf("has an intermediate that %w", err)
		}
	}
	return nil
}

// untimely says why a certificate is not valid now; it returns nil if it is.
func untimely(c *x509.Certificate) error {
	switch now := time.Now(); {
	case now.After(c.NotAfter):
		return fmt.Errorf("expired at %s", rfc3339(c.NotAfter))
	case now.Before(c.NotBefore):
		return fmt.Errorf("is not valid before %s", rfc3339(c.NotBefore))
	}
	return nil
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
