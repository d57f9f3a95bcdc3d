package blocklist

import (
	"bytes"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/weir-edge/weir/internal/clientlist"
)

// mostShare is how much of all IPv4 addresses, or of all public IPv6 addresses, a list may
// block. More would be an outage, however trustworthy the publisher.
const mostShare = 1.0 / 16

// Contents is what a list says.
type Contents struct {
	Networks []netip.Prefix // distinct, in order
	// Private is how many lines named networks that are not public. They are left out: such
	// clients are one's own.
	Private int
}

// private are the networks of IPv4 whose clients no list knows. In IPv6, public is what is in
// public6.
var private = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("224.0.0.0/3"),
}

var public6 = netip.MustParsePrefix("2000::/3")

// Parse reads CIDR text: one network or address a line, with comments after # or ;. A list with
// a fault is refused whole, and so is one of more than most networks.
func Parse(text []byte, most int) (*Contents, error) {
	c := &Contents{}
	for n := 1; len(text) > 0; n++ {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if end := bytes.IndexAny(line, "#;"); end >= 0 {
			line = line[:end]
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		p, own, err := parseLine(line)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", n, err)
		case own:
			c.Private++
			continue
		}
		if c.Networks = append(c.Networks, p); len(c.Networks) > most {
			return nil, fmt.Errorf("has more than %d networks", most)
		}
	}
	slices.SortFunc(c.Networks, clientlist.Compare)
	c.Networks = slices.Compact(c.Networks)
	if len(c.Networks) == 0 {
		return nil, fmt.Errorf("has no public network")
	}
	for _, of := range []struct {
		is4  bool
		what string
		bits int // of the whole
	}{{true, "IPv4", 0}, {false, "public IPv6", public6.Bits()}} {
		if share := shareOf(c.Networks, of.is4, of.bits); share > mostShare {
			return nil, fmt.Errorf("has %.1f%% of all %s addresses; more than %.1f%% would be an outage", 100*share, of.what, 100*mostShare)
		}
	}
	return c, nil
}

// parseLine reports whether the network is of one's own.
func parseLine(line []byte) (p netip.Prefix, own bool, err error) {
	const longest = 64 // no network has a longer text
	if len(line) > longest {
		return p, false, fmt.Errorf("is %d bytes long, and no network: %.32q…", len(line), line)
	}
	if p, err = clientlist.Parse(string(line)); err != nil {
		return p, false, err
	}
	if p.Addr().Is4() {
		for _, in := range private {
			if in.Bits() <= p.Bits() && in.Contains(p.Addr()) {
				return p, true, nil
			}
		}
	} else if !public6.Overlaps(p) {
		return p, true, nil
	}
	if clientlist.Wide(p) {
		return p, false, fmt.Errorf("%s has a large part of all clients", p)
	}
	for _, in := range private {
		if in.Overlaps(p) {
			return p, false, fmt.Errorf("%s has %s in it, which is not public", p, in)
		}
	}
	return p, false, nil
}

// shareOf returns how much of all addresses, 0 to 1, networks of one family have together. Those
// in others count once.
func shareOf(list []netip.Prefix, is4 bool, whole int) (share float64) {
	var last netip.Prefix
	for _, p := range list {
		if p.Addr().Is4() != is4 || last.IsValid() && last.Contains(p.Addr()) {
			continue
		}
		share += math.Ldexp(1, whole-p.Bits())
		last = p
	}
	return share
}
