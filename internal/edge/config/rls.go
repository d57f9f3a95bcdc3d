package config

import (
	"net"
	"net/netip"
)

// RLS says where the node is Envoy's rate limit service, and to whom.
type RLS struct {
	Address string `yaml:"address"`
	// From lists the networks of the Envoys; others are refused.
	From []string   `yaml:"from"`
	TLS  *MutualTLS `yaml:"tls"`
	// Descriptors says whether a call that one descriptor refuses charges the others.
	Descriptors string `yaml:"descriptors"`
	// Headers says whether answers name the response headers that describe the limits.
	Headers *bool `yaml:"headers"`
	// Authorization says whether the node also answers Envoy's external authorization.
	Authorization bool `yaml:"authorization"`

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
