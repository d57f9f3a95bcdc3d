package config

import "net/netip"

// Decide is a listener where gateways ask for decisions: over HTTP, or HAProxys by SPOE.
type Decide struct {
	Address string `yaml:"address"`
	// From are the gateways' networks, TLS the certificates. One of From and TLS.ClientCAFile
	// must tell gateways from clients, who could otherwise claim to be anyone.
	From []string   `yaml:"from"`
	TLS  *MutualTLS `yaml:"tls"`

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
