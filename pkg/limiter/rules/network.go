package rules

import (
	"net/netip"
	"strconv"
	"strings"
)

// network is how much of a client's address counts, as prefix lengths in bits. 0 means all
// of an IPv4 address, and the /64 of an IPv6 address, because one subscriber has at least
// that many addresses to choose from.
type network struct{ IPv4, IPv6 uint8 }

// The bounds of client_net: the smallest networks that providers are assigned and the
// Internet routes.
const (
	netIPv4 = 24
	netIPv6 = 48
	subnet  = 64
)

var networkForms = map[KeyKind]string{
	ByClient: "must be client_ip, or client_ip/N with N, the length of IPv6 networks, from 32 to 128, as in client_ip/56; IPv4 addresses count whole",
	ByNet:    "must be client_net, or client_net/IPV4/IPV6 with lengths from 8 to 31 and from 16 to 64, as in client_net/24/48",
}

// parseNetwork parses what follows the name of a key part: "", "/56" or "/24/48".
func parseNetwork(kind KeyKind, text string) (n network, ok bool) {
	if kind == ByNet {
		n = network{netIPv4, netIPv6}
	}
	if text == "" {
		return n, true
	}
	lengths := strings.Split(text[1:], "/")
	if kind == ByNet {
		ok = len(lengths) == 2 && length(lengths[0], 8, 31, &n.IPv4) && length(lengths[1], 16, subnet, &n.IPv6)
	} else {
		ok = len(lengths) == 1 && length(lengths[0], 32, 128, &n.IPv6)
		if n.IPv6 == subnet { // the default
			n.IPv6 = 0
		}
	}
	return n, ok
}

func length(text string, least, most int, bits *uint8) bool {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most || strconv.Itoa(n) != text {
		return false
	}
	*bits = uint8(n)
	return true
}

// suffix returns what parseNetwork parsed, "" for the default.
func (n network) suffix(kind KeyKind) string {
	switch {
	case kind == ByClient && n.IPv6 > 0:
		return "/" + strconv.Itoa(int(n.IPv6))
	case kind == ByNet && n != network{netIPv4, netIPv6}:
		return "/" + strconv.Itoa(int(n.IPv4)) + "/" + strconv.Itoa(int(n.IPv6))
	}
	return ""
}

// appendClient appends the part of an address that counts; a network includes its length.
func (n network) appendClient(dst []byte, a netip.Addr) []byte {
	bits := n.IPv4
	switch {
	case !a.IsValid():
		return dst
	case a.Is4() && bits == 0:
		return a.AppendTo(dst)
	case a.Is6():
		if bits = n.IPv6; bits == 0 {
			bits = subnet
		}
	}
	p, _ := a.Prefix(int(bits))
	return p.AppendTo(dst)
}
