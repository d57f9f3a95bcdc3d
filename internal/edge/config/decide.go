package config

import "net/netip"

// Decide is a listener where gateways ask for decisions: over HTTP, or HAProxys by SPOE.
type Decide struct {
	Address string     `yaml:"address"` // host:port
	From    []string   `yaml:"from"`    // the callers' networks; required without client_ca_file, because callers can name any client
	TLS     *MutualTLS `yaml:"tls"`     // absent: unencrypted

	Gateways []netip.Prefix `yaml:"-"`
}

func (d *Decide) validate(f *faults, at string) {
	f.address(at+".address", d.Address)
	d.Gateways = f.networks(at+".from", d.From)
	if t := d.TLS; t != nil {
		f.list.Take(at+".tls", t.Validate())
		f.file(at+".tls.client_ca_file", t.ClientCAFile)
	}
	if len(d.From) == 0 && (d.TLS == nil || d.TLS.ClientCAFile == "") {
		f.add(at+".from", "is required: callers may name any client; list your gateways' addresses, or set %s.tls.client_ca_file", at)
	}
}
