package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// Consul says which Consul the node follows and how it is registered there.
type Consul struct {
	consul.Config `yaml:",inline"`

	Register       bool   `yaml:"register"`        // as service weir-edge, while the node runs
	Advertise      string `yaml:"advertise"`       // host or host:port for clients; absent: listen.public; required if that is every address
	AdvertiseAdmin string `yaml:"advertise_admin"` // host or host:port for operators; absent: listen.admin; required if that is every address
}

func (c *Config) validateConsul(f *faults) {
	// They become part of keys and of the registration.
	f.list.Take("node.region", consul.CheckName(c.Node.Region))
	f.list.Take("node.pop", consul.CheckName(c.Node.PoP))
	f.list.Take("consul", c.Consul.Validate())
	if !c.Consul.Register {
		return
	}
	c.validateAdvertised(f, "consul.advertise", c.Consul.Advertise, "listen.public", c.Listen.Public)
	c.validateAdvertised(f, "consul.advertise_admin", c.Consul.AdvertiseAdmin, "listen.admin", c.Listen.Admin)
	f.list.Take("node.id", consul.CheckNodeID(c.Node.ID))
}

// validateAdvertised checks an address at which others reach the node.
func (c *Config) validateAdvertised(f *faults, path, given, listenPath, listen string) {
	host, _, err := Advertised(given, listen)
	if err != nil {
		return // the fault of listen is already reported
	}
	if given == "" {
		if unspecified(host) {
			f.add(path, "must say where others reach this node: %s is %s, every address there is", listenPath, listen)
		}
		return
	}
	good := hostName(host) && !unspecified(host)
	if _, port, err := net.SplitHostPort(given); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		good = good && err == nil && n > 0
	}
	if !good {
		f.add(path, "must be a host or host:port that others reach (got %q)", given)
	}
}

// Advertised returns the address at which others reach a listener: the configured host and
// port, completed from the address it listens on.
func Advertised(given, listen string) (host, port string, err error) {
	if host, port, err = net.SplitHostPort(listen); err != nil || given == "" {
		return host, port, err
	}
	if h, p, err := net.SplitHostPort(given); err == nil {
		return h, p, nil
	}
	return strings.Trim(given, "[]"), port, nil
}

func unspecified(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

// hostName reports whether host is an address or could be a name.
func hostName(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	for _, b := range []byte(host) {
		if !(b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '.' || b == '_') {
			return false
		}
	}
	return host != ""
}

// Registration returns the node's registration in Consul, given the addresses of its
// listeners.
func (c *Config) Registration(public, admin net.Addr) (consul.Registration, error) {
	r := consul.Registration{ID: c.Node.ID, Region: c.Node.Region, PoP: c.Node.PoP}
	host, port, err := Advertised(c.Consul.Advertise, listening(c.Listen.Public, public))
	if err != nil {
		return r, err
	}
	if r.Port, err = strconv.Atoi(port); err != nil {
		return r, fmt.Errorf("consul.advertise: port: %w", err)
	}
	r.Address = host
	adminHost, adminPort, err := Advertised(c.Consul.AdvertiseAdmin, listening(c.Listen.Admin, admin))
	if err != nil {
		return r, err
	}
	r.Admin = net.JoinHostPort(adminHost, adminPort)
	// The agent that runs the check is local, so it gets the address on which the node
	// listens, unless that is the unspecified address.
	check := listening(c.Listen.Admin, admin)
	if h, _, err := net.SplitHostPort(check); err != nil || unspecified(h) {
		check = r.Admin
	}
	r.CheckURL = "http://" + check + "/readyz"
	if c.Listen.AdminTLS != nil {
		r.Admin, r.CheckURL = "https://"+r.Admin, "https://"+check+"/readyz"
	}
	return r, nil
}

// listening is the host as configured with the port that was taken.
func listening(configured string, taken net.Addr) string {
	host, _, err := net.SplitHostPort(configured)
	if t, ok := taken.(*net.TCPAddr); ok && err == nil {
		return net.JoinHostPort(host, strconv.Itoa(t.Port))
	}
	return configured
}
