package edge

import (
	"fmt"
	"net/netip"
)

// anyProxy trusts every peer. It has to be spelled out: 0.0.0.0/0 is too easily written.
const anyProxy = "any"

func (c *Config) validateTrusted(f *faults) {
	for i, text := range c.TrustedProxies {
		at := fmt.Sprintf("trusted_proxies[%d]", i)
		if text == anyProxy {
			c.trusted = append(c.trusted, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if a, aerr := netip.ParseAddr(text); err != nil && aerr == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		switch {
		case err != nil:
			f.add(at, "must be an address or a network such as 10.0.0.0/8 (got %q)", text)
		case p.Addr().Is4In6():
			f.add(at, "is an IPv4 network written as IPv6, which no peer is in; write %s", plainPrefix(p))
		case p != p.Masked():
			f.add(at, "%s has bits set beyond the network; write %s, or the address alone", text, p.Masked())
		case p.Bits() == 0:
			f.add(at, "%s trusts every client to say who it is; write %s if nothing but your proxies can reach this node", text, anyProxy)
		default:
			c.trusted = append(c.trusted, p)
		}
	}
}

// plainPrefix is the IPv4 network of one that is written as IPv6.
func plainPrefix(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(p.Addr().Unmap(), max(0, p.Bits()-96)).Masked()
}
