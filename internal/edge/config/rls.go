package config

import (
	"net"
	"net/netip"
)

// RLS says where the node is Envoy's rate limit service, and to whom.
type RLS struct {
	Address       string     `yaml:"address"`       // host:port
	From          []string   `yaml:"from"`          // the Envoys' networks; required without client_ca_file, unless address is a loopback address
	TLS           *MutualTLS `yaml:"tls"`           // absent: unencrypted
	Descriptors   string     `yaml:"descriptors"`   // together: if one descriptor of a call is refused, none is charged; or separate; absent: together
	Headers       *bool      `yaml:"headers"`       // name RateLimit-Policy and RateLimit among the response headers to add; absent: true
	Authorization bool       `yaml:"authorization"` // also answer Envoy's external authorization; needs from or client_ca_file

	Networks []netip.Prefix `yaml:"-"`
}

// The values of RLSConfig.Descriptors.
const (
	descriptorsTogether = "together"
	DescriptorsSeparate = "separate"
)

func (r *RLS) Mutual() bool        { return r.TLS != nil && r.TLS.ClientCAFile != "" }
func (r *RLS) Separate() bool      { return r.Descriptors == DescriptorsSeparate }
func (r *RLS) AnswerHeaders() bool { return r.Headers == nil || *r.Headers }

func (c *Config) validateRLS(f *faults) {
	r := c.Listen.RLS
	if r == nil {
		return
	}
	f.address("listen.rls.address", r.Address)
	r.Networks = f.networks("listen.rls.from", r.From)
	if t := r.TLS; t != nil {
		f.list.Take("listen.rls.tls", t.Validate())
		f.file("listen.rls.tls.client_ca_file", t.ClientCAFile)
	}
	if host, _, err := net.SplitHostPort(r.Address); err == nil && !r.Authorization && outside(host) && len(r.From) == 0 && !r.Mutual() {
		f.add("listen.rls.from", "is required: %s can be reached from outside, and any caller can spend your limits; list your Envoys, or set listen.rls.tls.client_ca_file", r.Address)
	}
	if r.Authorization && len(r.From) == 0 && !r.Mutual() {
		f.add("listen.rls.from", "is required with authorization: callers may name any client; list your Envoys, or set listen.rls.tls.client_ca_file")
	}
	if r.Descriptors != "" {
		f.word("listen.rls.descriptors", r.Descriptors, descriptorsTogether, DescriptorsSeparate)
	}
}
