package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weir-edge/weir/pkg/field"
)

// anyProxy trusts every peer. It must be spelled out, because 0.0.0.0/0 is too easily
// written.
const anyProxy = "any"

// networks reads a list of networks whose proxies are trusted to identify clients.
func (f *faults) networks(path string, list []string) (networks []netip.Prefix) {
	for i, text := range list {
		at := field.Index(path, i)
		if text == anyProxy {
			networks = append(networks, netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
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
			f.add(at, "is an IPv4 network written as IPv6, which no peer is in; write %s", netip.PrefixFrom(p.Addr().Unmap(), max(0, p.Bits()-96)).Masked())
		case p != p.Masked():
			f.add(at, "%s has bits set beyond the network; write %s, or the address alone", text, p.Masked())
		case p.Bits() == 0:
			f.add(at, "%s trusts every client to state its own address; write %s if only your proxies can reach this node", text, anyProxy)
		default:
			networks = append(networks, p)
		}
	}
	return networks
}

// trustWarnings returns what is likely a mistake when no peer is trusted, or every one.
func (c *Config) trustWarnings() (list []string) {
	if c.TierHeader != "" && len(c.TrustedProxies) == 0 {
		list = append(list, fmt.Sprintf("tier_header: nobody may state a tier in %s, because trusted_proxies is empty; list the proxies that set it", c.TierHeader))
	}
	if !slices.Contains(c.TrustedProxies, anyProxy) {
		return list
	}
	if n := c.Server.MaxConnectionsPerClient; n > 0 {
		list = append(list, fmt.Sprintf("server.max_connections_per_client: %d has no effect: trusted_proxies is any, and trusted proxies are exempt; list your proxies in trusted_proxies, or remove the limit", n))
	}
	if c.Listen.ProxyProtocol != nil {
		list = append(list, "trusted_proxies: any includes every client that a PROXY header names, so each can claim any address in X-Forwarded-For; list the proxies in front of the balancer, or remove trusted_proxies")
	}
	return list
}
