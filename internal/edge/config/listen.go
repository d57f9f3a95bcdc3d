package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/weir-edge/weir/pkg/certs"
)

// Listen says where the node listens.
type Listen struct {
	Public         string         `yaml:"public"`           // host:port for clients
	Admin          string         `yaml:"admin"`            // host:port for operators; a loopback address unless callers need a token or a certificate
	AdminTokenFile string         `yaml:"admin_token_file"` // holds the token that all admin requests need, except for /healthz and /readyz
	AdminTLS       *MutualTLS     `yaml:"admin_tls"`        // absent: unencrypted
	TLS            *TLS           `yaml:"tls"`              // with clients, TLS 1.2 or later; absent: unencrypted
	HTTP2          HTTP2          `yaml:"http2"`            // HTTP/2 with clients
	ProxyProtocol  *ProxyProtocol `yaml:"proxy_protocol"`   // TCP load balancers that name clients in PROXY headers
	Decide         *Decide        `yaml:"decide"`           // for gateways, over HTTP
	SPOE           *Decide        `yaml:"spoe"`             // for HAProxys that use SPOE
	RLS            *RLS           `yaml:"rls"`              // as Envoy's rate limit service, over gRPC
	Peer           *PeerListen    `yaml:"peer"`             // for other nodes; absent: it exchanges nothing with them

	Balancers []netip.Prefix `yaml:"-"`
}

// ProxyProtocol names the load balancers whose connections begin with a PROXY header.
type ProxyProtocol struct {
	From []string `yaml:"from"` // required: the balancers' networks; their connections must begin with a PROXY header, others must not
}

// TLS names the certificates of the public listener.
type TLS struct {
	certs.Pair   `yaml:",inline"`
	Certificates []certs.Pair `yaml:"certificates"` // more, 256 in all; a client gets the first for the name it requests (SNI), or else the very first
}

// MutualTLS names the certificate of a listener that may require certificates of its callers.
type MutualTLS struct {
	certs.Pair   `yaml:",inline"`
	ClientCAFile string `yaml:"client_ca_file"` // authorities of callers, who must then present a certificate
}

// maxCertificates bounds how many are compared with the name that a client asks for.
const maxCertificates = 256

// pairs are all certificates, the one for clients that ask for another name first.
func (t *TLS) pairs() []certs.Pair {
	if t.Pair == (certs.Pair{}) {
		return t.Certificates
	}
	return append([]certs.Pair{t.Pair}, t.Certificates...)
}

// Mutual reports whether callers of the admin side must show a certificate.
func (l *Listen) Mutual() bool { return l.AdminTLS != nil && l.AdminTLS.ClientCAFile != "" }

// Open reports whether callers of the admin side need neither token nor certificate.
func (l *Listen) Open() bool { return l.AdminTokenFile == "" && !l.Mutual() }

func (c *Config) validateListen(f *faults) {
	l := &c.Listen
	f.address("listen.public", l.Public)
	f.address("listen.admin", l.Admin)
	l.validatePorts(f)
	c.validateRLS(f)
	if p := l.ProxyProtocol; p != nil {
		l.Balancers = f.networks("listen.proxy_protocol.from", p.From)
		if len(p.From) == 0 {
			f.add("listen.proxy_protocol.from", "is required; list your balancers' addresses, or remove proxy_protocol")
		}
	}
	f.file("listen.admin_token_file", l.AdminTokenFile)
	if l.Open() && l.outside() {
		f.add("listen.admin", "%s can be reached from outside; listen on 127.0.0.1 or set listen.admin_token_file", l.Admin)
	}
	if t := l.AdminTLS; t != nil {
		f.list.Take("listen.admin_tls", t.Validate())
		f.file("listen.admin_tls.client_ca_file", t.ClientCAFile)
	}
	if l.Decide != nil {
		l.Decide.validate(f, "listen.decide")
	}
	if l.SPOE != nil {
		l.SPOE.validate(f, "listen.spoe")
	}
	l.HTTP2.validate(f, l)
	if t := l.TLS; t != nil {
		if len(t.Certificates) == 0 || t.Pair != (certs.Pair{}) {
			f.list.Take("listen.tls", t.Validate())
		}
		for i := range t.Certificates {
			f.list.Take(fmt.Sprintf("listen.tls.certificates[%d]", i), t.Certificates[i].Validate())
		}
		if n := len(t.pairs()); n > maxCertificates {
			f.add("listen.tls.certificates", "must be %d at most (got %d); a certificate may be for many names", maxCertificates, n)
		}
	}
}

// validatePorts reports listeners that would need the same port.
func (l *Listen) validatePorts(f *faults) {
	type listener struct{ name, field, address string }
	list := []listener{{"listen.public", "", l.Public}, {"listen.admin", "", l.Admin}}
	if r := l.RLS; r != nil {
		list = append(list, listener{"listen.rls", ".address", r.Address})
	}
	if d := l.Decide; d != nil {
		list = append(list, listener{"listen.decide", ".address", d.Address})
	}
	if d := l.SPOE; d != nil {
		list = append(list, listener{"listen.spoe", ".address", d.Address})
	}
	if p := l.Peer; p != nil {
		list = append(list, listener{"listen.peer", ".address", p.Address})
	}
	for i, x := range list {
		for _, before := range list[:i] {
			if sameAddress(x.address, before.address) {
				f.add(x.name+x.field, "%s is taken by %s, %s; choose another port", x.address, before.name, before.address)
			}
		}
	}
}

// sameAddress reports whether two listeners of one family would need the same port.
func sameAddress(one, other string) bool {
	host1, port1, err1 := net.SplitHostPort(one)
	host2, port2, err2 := net.SplitHostPort(other)
	if err1 != nil || err2 != nil || port1 != port2 || port1 == "0" {
		return false
	}
	return host1 == host2 || host1 == "" || host2 == ""
}

// outside reports whether the admin side may be reached from other machines.
func (l *Listen) outside() bool {
	host, _, err := net.SplitHostPort(l.Admin)
	return err == nil && outside(host)
}

// outside reports whether a listener on that host may be reached from other machines.
func outside(host string) bool {
	a, err := netip.ParseAddr(host)
	return host != "localhost" && (err != nil || !a.IsLoopback())
}

// Certificates are the certificates of all listeners; nil where one has no TLS.
type Certificates struct{ Public, Admin, Decide, SPOE, RLS, Peer *certs.Server }

// Certificates reads them. Its error names every listener whose certificate it cannot read.
func (l *Listen) Certificates() (s Certificates, err error) {
	load := func(into **certs.Server, name string, pairs []certs.Pair, clientCA string) {
		server, wrong := certs.NewServer(pairs, clientCA)
		if wrong != nil {
			err = errors.Join(err, fmt.Errorf("listen.%s: %w", name, wrong))
			return
		}
		*into = server
	}
	if l.TLS != nil {
		load(&s.Public, "tls", l.TLS.pairs(), "")
	}
	if t := l.AdminTLS; t != nil {
		load(&s.Admin, "admin_tls", []certs.Pair{t.Pair}, t.ClientCAFile)
	}
	if d := l.Decide; d != nil && d.TLS != nil {
		load(&s.Decide, "decide.tls", []certs.Pair{d.TLS.Pair}, d.TLS.ClientCAFile)
	}
	if d := l.SPOE; d != nil && d.TLS != nil {
		load(&s.SPOE, "spoe.tls", []certs.Pair{d.TLS.Pair}, d.TLS.ClientCAFile)
	}
	if r := l.RLS; r != nil && r.TLS != nil {
		load(&s.RLS, "rls.tls", []certs.Pair{r.TLS.Pair}, r.TLS.ClientCAFile)
	}
	if p := l.Peer; p != nil && p.TLS != nil {
		load(&s.Peer, "peer.tls", []certs.Pair{p.TLS.Pair}, p.TLS.CAFile)
	}
	return s, err
}

func (s Certificates) Each(f func(listener, file string, expires time.Time)) {
	for name, server := range map[string]*certs.Server{"public": s.Public, "admin": s.Admin, "decide": s.Decide, "spoe": s.SPOE, "rls": s.RLS, "peer": s.Peer} {
		if server != nil {
			server.Expiries(func(file string, at time.Time) { f(name, file, at) })
		}
	}
}

// HTTP2 says where clients of the public listener may speak HTTP/2.
type HTTP2 struct {
	TLS        bool `yaml:"tls"`         // offer it to clients of listen.tls, by ALPN
	H2C        bool `yaml:"h2c"`         // without listen.tls: accept connections that begin with its preface
	MaxStreams int  `yaml:"max_streams"` // concurrent requests on one connection, 1 to 1000
}

func (c *HTTP2) validate(f *faults, l *Listen) {
	if c.H2C && l.TLS != nil {
		f.add("listen.http2.h2c", "is for a listener without TLS; remove it, clients of listen.tls agree on HTTP/2 by ALPN")
	}
	if c.MaxStreams < 1 || c.MaxStreams > 1000 {
		f.add("listen.http2.max_streams", "must be between 1 and 1000 (got %d)", c.MaxStreams)
	}
}
