package command

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

// ParseListen accepts only a literal address, because a name may change.
func ParseListen(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	if err == nil && host == "localhost" {
		host = "127.0.0.1"
	}
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err == nil && host == "" && portErr == nil {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(n)), nil
	}
	addr, addrErr := netip.ParseAddr(host)
	if err != nil || portErr != nil || addrErr != nil {
		return netip.AddrPort{}, fmt.Errorf("must be address:port, as 127.0.0.1:5300 or [::]:53")
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}
