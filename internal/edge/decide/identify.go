package decide

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"unsafe"
)

// identify determines the client. Only the nearest address that no trusted proxy vouches
// for counts, because a client may have written anything to its left.
func (d *Decider) identify(r *Request) {
	if r.DryRun {
		if r.Tier == nil && r.Fields != nil {
			r.Tier = d.statedTier(r)
		}
		return
	}
	r.Client, r.Trusted = r.Peer, d.Trusts(r.Peer)
	r.Tier = nil
	if !r.Trusted && !r.FromGateway {
		return
	}
	r.Tier = d.statedTier(r)
	if r.Source.IsValid() {
		if r.Client = r.Source; !d.Trusts(r.Source) {
			return
		}
	}
	hops := r.Fields.Header("X-Forwarded-For")
	for i := len(hops) - 1; i >= 0; i-- {
		for rest := hops[i]; len(rest) > 0; {
			var a netip.Addr
			var ok bool
			if a, rest, ok = NearestHop(rest); !ok {
				return // the last known proxy is taken as the client
			}
			r.Client = a
			if !d.Trusts(a) {
				return
			}
		}
	}
}

// statedTier returns the tier that a trusted proxy states. A second value means that the proxy
// added its own to one that may be the client's.
func (d *Decider) statedTier(r *Request) []byte {
	if r.Trusted && d.TierHeader != "" {
		if tiers := r.Fields.Header(d.TierHeader); len(tiers) == 1 {
			return tiers[0]
		}
	}
	return nil
}

func (d *Decider) Trusts(a netip.Addr) bool {
	for _, p := range d.Trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Within reports whether an address is in one of the networks. A nil list is every network.
func Within(networks []netip.Prefix, a netip.Addr) bool {
	return networks == nil || slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// NearestHop returns the last address of an X-Forwarded-For header, which the nearest proxy
// wrote, and what precedes it.
func NearestHop(hops []byte) (a netip.Addr, rest []byte, ok bool) {
	hop := hops
	if comma := bytes.LastIndexByte(hops, ','); comma >= 0 {
		rest, hop = hops[:comma], hops[comma+1:]
	}
	a, ok = parseHop(bytes.TrimSpace(hop))
	return a, rest, ok
}

// parseHop parses an element of X-Forwarded-For: an address, optionally in brackets or with a port.
func parseHop(hop []byte) (netip.Addr, bool) {
	const longest = 64 // an IPv6 address with brackets, zone and port is shorter
	if len(hop) == 0 || len(hop) > longest {
		return netip.Addr{}, false
	}
	s := unsafe.String(unsafe.SliceData(hop), len(hop)) // not kept: a zone is copied, and then dropped
	if a, err := netip.ParseAddr(s); err == nil {
		return a.WithZone("").Unmap(), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().WithZone("").Unmap(), true
	}
	if s[0] == '[' && s[len(s)-1] == ']' {
		a, err := netip.ParseAddr(s[1 : len(s)-1])
		return a.WithZone("").Unmap(), err == nil && a.Is6()
	}
	return netip.Addr{}, false
}

// consults reports whether any decision depends on a header. Its name is in lower case.
func (d *Decider) consults(r *Request, header string) bool {
	s := d.Shedding()
	if d.Behavior.consults(header) || strings.EqualFold(header, d.TierHeader) || d.Routes.Conditions.ReadsHeader(header) || s.Classes.ReadsHeader(header) ||
		r.Rules != nil && r.Rules.Set().ReadsHeader(header) {
		return true
	}
	for _, part := range s.User {
		if part.Header() == header {
			return true
		}
	}
	return false
}
