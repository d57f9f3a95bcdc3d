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

// validate checks the listener of this name in listen.
func (d *Decide) validate(f *faults, l *Listen, name string) {
	at := "listen." + name
	f.address(at+".address", d.Address)
	others := map[string]string{"listen.public": l.Public, "listen.admin": l.Admin}
	if name == "spoe" && l.Decide != nil {
		others["listen.decide"] = l.Decide.Address
	}
	if l.RLS != nil {
		others["listen.rls"] = l.RLS.Address
	}
	for taken, other := range others {
		if sameAddress(d.Address, other) {
			f.add(at+".address", "%s is taken by %s, %s; choose another port", d.Address, taken, other)
		}
	}
	d.Gateways = f.networks(at+".from", d.From)
	if t := d.TLS; t != nil {
		f.list.Take(at+".tls", t.Validate())
		f.file(at+".tls.client_ca_file", t.ClientCAFile)
	}
	if len(d.From) == 0 && (d.TLS == nil || d.TLS.ClientCAFile == "") {
		f.add(at+".from", "is required: callers may name any client; list your gateways' addresses, or set %s.tls.client_ca_file", at)
	}
}
