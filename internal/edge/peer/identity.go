package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// A certificate names the node in a URI spiffe://weir/<region>/<node>, or in a DNS name
// <node>.<region>.peer.weir. Without the node it is good for every node of the region.
const (
	trustDomain = "weir"
	dnsSuffix   = ".peer.weir"
)

// identity is what a certificate proves.
type identity struct{ region, node string } // node "": any of the region

func (i identity) String() string { return strings.TrimSuffix(i.region+"/"+i.node, "/") }

// is reports whether the identity is that of a node.
func (i identity) is(n Node) bool { return i.region == n.Region && (i.node == "" || i.node == n.ID) }

var errNoIdentity = errors.New("the certificate names no node; it needs a URI spiffe://weir/<region>/<node>, or a DNS name <node>.<region>.peer.weir")

// identify reads the identity in a verified certificate. Two different identities are an
// error, because the holder could choose.
func identify(c *x509.Certificate) (identity, error) {
	var found []identity
	for _, u := range c.URIs {
		if i, ok := identityOfURI(u); ok {
			found = append(found, i)
		}
	}
	for _, name := range c.DNSNames {
		if i, ok := identityOfName(name); ok {
			found = append(found, i)
		}
	}
	found = slices.Compact(found)
	if len(found) == 0 {
		return identity{}, errNoIdentity
	}
	if len(found) > 1 {
		return identity{}, fmt.Errorf("the certificate names both %s and %s; issue one for each", found[0], found[1])
	}
	return found[0], nil
}

func identityOfURI(u *url.URL) (i identity, ok bool) {
	if u.Scheme != "spiffe" || u.Host != trustDomain || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return i, false
	}
	region, node, named := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return newIdentity(region, node, named)
}

func identityOfName(name string) (i identity, ok bool) {
	rest, ok := strings.CutSuffix(strings.ToLower(name), dnsSuffix)
	if !ok {
		return i, false
	}
	node, region, named := strings.Cut(rest, ".")
	if !named {
		node, region = "", node
	}
	return newIdentity(region, node, named)
}

func newIdentity(region, node string, named bool) (identity, bool) {
	ok := consul.CheckName(region) == nil && (!named || consul.CheckNodeID(node) == nil)
	return identity{region, node}, ok
}

// CheckCertificate reports why other nodes would reject this node's own certificate, or
// nil.
func CheckCertificate(s *certs.Server, self Node) error {
	own, authorities := s.Current()
	i, err := identify(own.Leaf)
	if err != nil {
		return err
	}
	if !i.is(self) {
		return fmt.Errorf("the certificate is that of %s, but this node is %s/%s; issue one for it", i, self.Region, self.ID)
	}
	chain := []*x509.Certificate{own.Leaf}
	for _, der := range own.Certificate[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		chain = append(chain, c)
	}
	for name, usage := range map[string]x509.ExtKeyUsage{"server": x509.ExtKeyUsageServerAuth, "client": x509.ExtKeyUsageClientAuth} {
		if err := verify(chain, authorities, usage); err != nil {
			return fmt.Errorf("as a %s's certificate: %w", name, err)
		}
	}
	return nil
}

func verify(chain []*x509.Certificate, authorities *x509.CertPool, usage x509.ExtKeyUsage) error {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// dialing returns the configuration of connections to a node. It accepts that node's
// certificate under any name or address: only the node's identity counts.
func dialing(s *certs.Server, to Node) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{"h2"},
		InsecureSkipVerify: true, // VerifyConnection does all of it
		ServerName:         to.Region + dnsSuffix,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			own, _ := s.Current()
			return own, nil
		},
		VerifyConnection: func(c tls.ConnectionState) error {
			_, authorities := s.Current()
			if err := verify(c.PeerCertificates, authorities, x509.ExtKeyUsageServerAuth); err != nil {
				return &identityError{err}
			}
			i, err := identify(c.PeerCertificates[0])
			if err == nil && !i.is(to) {
				err = fmt.Errorf("it is %s", i)
			}
			if err != nil {
				return &identityError{err}
			}
			return nil
		},
	}
}

// identityError says why a peer is not the expected one.
type identityError struct{ err error }

func (e *identityError) Error() string { return e.err.Error() }
func (e *identityError) Unwrap() error { return e.err }
