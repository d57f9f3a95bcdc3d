package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/field"
)

// Pair names a certificate chain and its key.
type Pair struct {
	CertFile string `yaml:"cert_file"` // PEM certificate chain
	KeyFile  string `yaml:"key_file"`  // its private key
}

// Validate returns every fault as field.Errors, or nil. Both files must exist.
func (p *Pair) Validate() error {
	f := &field.Errors{}
	if p.CertFile == "" || p.KeyFile == "" {
		f.Add("", "must name both cert_file and key_file")
	}
	f.File("cert_file", p.CertFile)
	f.File("key_file", p.KeyFile)
	return f.Err()
}

// Server holds the certificates of a listener. All methods are safe for concurrent use,
// except that only one goroutine at a time may call Reload.
type Server struct {
	pairs       []*loaded
	caFile      string
	ca          []byte // what authorities was made from
	authorities []*x509.Certificate
	current     atomic.Pointer[tls.Config]
}

// loaded is a pair and its last valid content.
type loaded struct {
	Pair
	cert, key   []byte
	certificate tls.Certificate
}

// NewServer reads the certificates of a listener. A client gets the first one for the
// name that it requests, or else the first of all. If clientCA names a file, one of its
// authorities must have signed any certificate that a client presents; the caller decides
// whether a client must present one.
func NewServer(pairs []Pair, clientCA string) (*Server, error) {
	s := &Server{caFile: clientCA}
	for _, p := range pairs {
		s.pairs = append(s.pairs, &loaded{Pair: p})
	}
	return s, s.Reload()
}

// Config returns the configuration to listen with; it follows Reload.
func (s *Server) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current.Load(), nil },
	}
}

// Speaking is Config for protocols other than HTTP/1.1, whose callers must present a
// certificate if the listener has authorities.
func (s *Server) Speaking(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := s.current.Load().Clone()
			c.NextProtos = protocols
			if c.ClientCAs != nil {
				c.ClientAuth = tls.RequireAndVerifyClientCert
			}
			return c, nil
		},
	}
}

// Reload reads the files. If one is missing, invalid, expired or not valid yet, its previous
// content stays active; the error names each such file.
func (s *Server) Reload() error {
	changed := false
	var faults []error
	note := func(is bool, err error) {
		changed = changed || is
		faults = append(faults, err)
	}
	for _, l := range s.pairs {
		note(l.reload())
	}
	note(s.reloadClients())
	err := errors.Join(faults...)
	if changed && (err == nil || s.current.Load() != nil) {
		s.current.Store(s.build())
	}
	return err
}

func (s *Server) build() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	for _, l := range s.pairs {
		c.Certificates = append(c.Certificates, l.certificate)
	}
	if s.caFile != "" {
		c.ClientCAs = x509.NewCertPool()
		for _, a := range s.authorities {
			c.ClientCAs.AddCert(a)
		}
		// A resumed session would outlive the authority that vouched for it.
		c.ClientAuth, c.SessionTicketsDisabled = tls.VerifyClientCertIfGiven, true
	}
	return c
}

func (s *Server) reloadClients() (changed bool, err error) {
	if s.caFile == "" {
		return false, nil
	}
	pem, err := os.ReadFile(s.caFile)
	if err != nil || bytes.Equal(pem, s.ca) {
		return false, err
	}
	next, err := authoritiesOf(s.caFile, pem)
	if err != nil {
		return false, err
	}
	valid := func(c *x509.Certificate) bool { return untimely(c) == nil }
	if !slices.ContainsFunc(next, valid) && slices.ContainsFunc(s.authorities, valid) {
		return false, fmt.Errorf("%s %w; keeping the previous one", s.caFile, untimely(next[0]))
	}
	s.ca, s.authorities = pem, next
	return true, nil
}

func (l *loaded) reload() (changed bool, err error) {
	cert, err := os.ReadFile(l.CertFile)
	if err != nil {
		return false, err
	}
	key, err := os.ReadFile(l.KeyFile)
	if err != nil || bytes.Equal(cert, l.cert) && bytes.Equal(key, l.key) {
		return false, err
	}
	if err := whole(l.CertFile, cert); err != nil {
		return false, err
	}
	next, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("%s, %s: %w", l.CertFile, l.KeyFile, err)
	}
	if err := chained(next.Certificate); err != nil {
		return false, fmt.Errorf("%s: %w", l.CertFile, err)
	}
	if fault := untimelyPair(&next); fault != nil && l.cert != nil && untimelyPair(&l.certificate) == nil {
		return false, fmt.Errorf("%s %w; keeping the previous one", l.CertFile, fault)
	}
	l.cert, l.key, l.certificate = cert, key, next
	return true, nil
}

// Vouches reports whether the certificate that a client presented when it connected is
// still valid and issued by a current authority. A connection may outlive both.
func (s *Server) Vouches(c *tls.ConnectionState) bool {
	authorities := s.current.Load().ClientCAs
	if authorities == nil || len(c.PeerCertificates) == 0 {
		return false
	}
	between := x509.NewCertPool()
	for _, cert := range c.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := c.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}

// Expiries calls each with the file of every certificate and the time from which clients
// will refuse it: it or the intermediate that signed it has expired.
func (s *Server) Expiries(each func(file string, at time.Time)) {
	for i, c := range s.current.Load().Certificates {
		at := c.Leaf.NotAfter
		if signer := signerOf(&c); signer != nil && signer.NotAfter.Before(at) {
			at = signer.NotAfter
		}
		each(s.pairs[i].CertFile, at)
	}
}

// Current returns the first certificate and the client authorities as of the last Reload,
// for nodes that call each other with their listener's certificate.
func (s *Server) Current() (*tls.Certificate, *x509.CertPool) {
	c := s.current.Load()
	return &c.Certificates[0], c.ClientCAs
}
