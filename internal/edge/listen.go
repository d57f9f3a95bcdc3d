package edge

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/pkg/certs"
)

// ListenConfig says where the node listens.
type ListenConfig struct {
	Public         string               `yaml:"public"`
	Admin          string               `yaml:"admin"`
	AdminTokenFile string               `yaml:"admin_token_file"`
	AdminTLS       *MutualTLSConfig     `yaml:"admin_tls"`
	TLS            *TLSConfig           `yaml:"tls"`
	HTTP2          HTTP2Config          `yaml:"http2"`
	ProxyProtocol  *ProxyProtocolConfig `yaml:"proxy_protocol"`
	Decide         *DecideConfig        `yaml:"decide"`
	SPOE           *DecideConfig        `yaml:"spoe"`
	RLS            *RLSConfig           `yaml:"rls"`
	Peer           *PeerListenConfig    `yaml:"peer"`

	balancers []netip.Prefix
}

// ProxyProtocolConfig names the load balancers whose connections begin with a PROXY header.
type ProxyProtocolConfig struct {
	From []string `yaml:"from"`
}

// TLSConfig names the certificates of the public listener.
type TLSConfig struct {
	certs.Pair   `yaml:",inline"`
	Certificates []certs.Pair `yaml:"certificates"`
}

// MutualTLSConfig names the certificate of a listener that may require certificates of its callers.
type MutualTLSConfig struct {
	certs.Pair `yaml:",inline"`
	// ClientCAFile holds the authorities of its clients, who must show a certificate then.
	ClientCAFile string `yaml:"client_ca_file"`
}

// maxCertificates bounds how many are compared with the name that a client asks for.
const maxCertificates = 256

// pairs are all certificates, the one for clients that ask for another name first.
func (t *TLSConfig) pairs() []certs.Pair {
	if t.Pair == (certs.Pair{}) {
		return t.Certificates
	}
	return append([]certs.Pair{t.Pair}, t.Certificates...)
}

// mutual reports whether callers of the admin side must show a certificate.
func (l *ListenConfig) mutual() bool { return l.AdminTLS != nil && l.AdminTLS.ClientCAFile != "" }

// open reports whether callers of the admin side need neither token nor certificate.
func (l *ListenConfig) open() bool { return l.AdminTokenFile == "" && !l.mutual() }

func (c *Config) validateListen(f *faults) {
	l := &c.Listen
	f.address("listen.public", l.Public)
	f.address("listen.admin", l.Admin)
	if sameAddress(l.Public, l.Admin) {
		f.add("listen.admin", "%s is taken by listen.public, %s; choose another port", l.Admin, l.Public)
	}
	c.validateRLS(f)
	if p := l.ProxyProtocol; p != nil {
		l.balancers = f.networks("listen.proxy_protocol.from", p.From)
		if len(p.From) == 0 {
			f.add("listen.proxy_protocol.from", "is required; list your balancers' addresses, or remove proxy_protocol")
		}
	}
	f.file("listen.admin_token_file", l.AdminTokenFile)
	if l.open() && l.outside() {
		f.add("listen.admin", "%s can be reached from outside; listen on 127.0.0.1 or set listen.admin_token_file", l.Admin)
	}
	if t := l.AdminTLS; t != nil {
		f.list.Take("listen.admin_tls", t.Validate())
		f.file("listen.admin_tls.client_ca_file", t.ClientCAFile)
	}
	if l.Decide != nil {
		l.Decide.validate(f, l, "decide")
	}
	if l.SPOE != nil {
		l.SPOE.validate(f, l, "spoe")
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
func (l *ListenConfig) outside() bool {
	host, _, err := net.SplitHostPort(l.Admin)
	return err == nil && outside(host)
}

// outside reports whether a listener on that host may be reached from other machines.
func outside(host string) bool {
	a, err := netip.ParseAddr(host)
	return host != "localhost" && (err != nil || !a.IsLoopback())
}

// listeners are the certificates of all listeners; nil where one has no TLS.
type listeners struct{ public, admin, decide, spoe, rls, peer *certs.Server }

func (l *ListenConfig) certificates() (s listeners, err error) {
	if l.TLS != nil {
		if s.public, err = certs.NewServer(l.TLS.pairs(), ""); err != nil {
			return s, fmt.Errorf("listen.tls: %w", err)
		}
	}
	if l.AdminTLS != nil {
		if s.admin, err = certs.NewServer([]certs.Pair{l.AdminTLS.Pair}, l.AdminTLS.ClientCAFile); err != nil {
			return s, fmt.Errorf("listen.admin_tls: %w", err)
		}
	}
	if d := l.Decide; d != nil && d.TLS != nil {
		if s.decide, err = certs.NewServer([]certs.Pair{d.TLS.Pair}, d.TLS.ClientCAFile); err != nil {
			return s, fmt.Errorf("listen.decide.tls: %w", err)
		}
	}
	if d := l.SPOE; d != nil && d.TLS != nil {
		if s.spoe, err = certs.NewServer([]certs.Pair{d.TLS.Pair}, d.TLS.ClientCAFile); err != nil {
			return s, fmt.Errorf("listen.spoe.tls: %w", err)
		}
	}
	if r := l.RLS; r != nil && r.TLS != nil {
		if s.rls, err = certs.NewServer([]certs.Pair{r.TLS.Pair}, r.TLS.ClientCAFile); err != nil {
			return s, fmt.Errorf("listen.rls.tls: %w", err)
		}
	}
	if p := l.Peer; p != nil && p.TLS != nil {
		if s.peer, err = certs.NewServer([]certs.Pair{p.TLS.Pair}, p.TLS.CAFile); err != nil {
			return s, fmt.Errorf("listen.peer.tls: %w", err)
		}
	}
	return s, nil
}

// secure wraps a listener that has certificates.
func secure(ln net.Listener, s *certs.Server) net.Listener {
	if s == nil {
		return ln
	}
	return tls.NewListener(ln, s.Config())
}

// each calls f for every certificate of all listeners.
func (s listeners) each(f func(listener, file string, expires time.Time)) {
	for name, server := range map[string]*certs.Server{"public": s.public, "admin": s.admin, "decide": s.decide, "spoe": s.spoe, "rls": s.rls, "peer": s.peer} {
		if server != nil {
			server.Expiries(func(file string, at time.Time) { f(name, file, at) })
		}
	}
}

var certificateExpiry = prometheus.NewDesc("weir_certificate_expiry_seconds",
	"When a certificate of a listener ends, in Unix seconds.", []string{"listener", "file"}, nil)

// Describe implements prometheus.Collector.
func (s listeners) Describe(ch chan<- *prometheus.Desc) { ch <- certificateExpiry }

// Collect implements prometheus.Collector. A file that is named twice has one series.
func (s listeners) Collect(ch chan<- prometheus.Metric) {
	seen := map[string]bool{}
	s.each(func(listener, file string, expires time.Time) {
		if key := listener + file; !seen[key] {
			seen[key] = true
			ch <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, float64(expires.Unix()), listener, file)
		}
	})
}

// reservedFiles are the open files of a node besides its clients and, for each of them, a
// connection to an upstream: the admin side, the store, Consul, logs.
const reservedFiles = 1000

// warnings returns what is likely not meant in a configuration that works.
func (c *Config) warnings() (list []string) {
	if l := &c.Listen; l.AdminTokenFile != "" && l.AdminTLS == nil && l.outside() {
		list = append(list, "listen.admin: the token travels in the clear to "+l.Admin+"; set listen.admin_tls")
	}
	if s, err := c.Listen.certificates(); err == nil {
		s.each(func(listener, file string, expires time.Time) {
			if time.Now().After(expires) {
				at := map[string]string{"public": "listen.tls", "admin": "listen.admin_tls", "decide": "listen.decide.tls", "spoe": "listen.spoe.tls", "rls": "listen.rls.tls", "peer": "listen.peer.tls"}[listener]
				list = append(list, fmt.Sprintf("%s: %s expired at %s, so clients refuse it; replace it and its key", at, file, expires.UTC().Format(time.RFC3339)))
			}
		})
	}
	for _, w := range c.Shedder.settings().Warnings() {
		list = append(list, "shedder."+w)
	}
	list = append(list, c.routeWarnings()...)
	list = append(list, c.trustWarnings()...)
	var files syscall.Rlimit
	needs := 2*uint64(c.Server.MaxConnections) + reservedFiles
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) == nil && files.Cur < needs {
		list = append(list, fmt.Sprintf("server.max_connections: %d connections need %d open files, and this process may open %d; lower it, or raise the limit (LimitNOFILE= in a systemd unit, ulimit -n in a shell)",
			c.Server.MaxConnections, needs, files.Cur))
	}
	return list
}
