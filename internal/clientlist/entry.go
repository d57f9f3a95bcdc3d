// Package clientlist keeps the clients that operators block or allow manually: networks, each
// with an author, a reason and an expiry. A region's Consul stores them in chunks, so a change
// rewrites only one. A node looks clients up in an index that is as fast with 100,000 networks
// as with 10.
package clientlist

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode"

	"github.com/weir-edge/weir/pkg/field"
)

const (
	// Max is the most networks in a region.
	Max = 100_000
	// MaxReason and MaxBy bound an entry's texts, in bytes.
	MaxReason = 200
	MaxBy     = 128
)

// Action is what happens to a network's clients.
type Action string

// The actions.
const (
	Block Action = "block" // their requests get 403 before any rule
	Allow Action = "allow" // neither a wider block nor the behavior policy applies to them
)

// Entry is one network.
type Entry struct {
	Network netip.Prefix `json:"network"`
	Decision
}

// Decision is an operator's decision about one or more networks.
type Decision struct {
	Action Action    `json:"action"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until,omitzero"` // zero: until removed
}

func (d *Decision) Expired(now time.Time) bool { return !d.Until.IsZero() && !now.Before(d.Until) }

// same reports whether other would change nothing. Repeating a decision keeps its first author
// and time.
func (d *Decision) same(other *Decision) bool {
	return d.Action == other.Action && d.Reason == other.Reason && d.Until.Equal(other.Until)
}

func (d *Decision) validate() error {
	f := &field.Errors{}
	if d.Action != Block && d.Action != Allow {
		f.Add("action", "must be %s or %s (got %q)", Block, Allow, d.Action)
	}
	line := func(path, text string, longest int) {
		if text == "" || len(text) > longest || strings.ToValidUTF8(text, "") != text || strings.ContainsFunc(text, unicode.IsControl) {
			f.Add(path, "must be 1 to %d bytes in one line (got %q)", longest, text[:min(len(text), longest)])
		}
	}
	line("by", d.By, MaxBy)
	line("reason", d.Reason, MaxReason)
	if d.Since.IsZero() {
		f.Add("since", "must be the time of the decision, such as 2006-01-02T15:04:05Z")
	}
	return f.Err()
}

// Parse reads a network in CIDR form, or an address. It unmaps IPv4-mapped IPv6.
func Parse(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q has a zone; leave it out", text)
		}
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("must be an address or a network, such as 203.0.113.7 or 2001:db8::/32 (got %.64q)", text)
	}
	if a := p.Addr(); a.Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%s covers IPv4 and IPv6; write two networks", text)
		}
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	if whole := p.Masked(); whole != p {
		return netip.Prefix{}, fmt.Errorf("%s has bits after its prefix; write %s for the network, or %s for the one address", text, whole, p.Addr())
	}
	return p, nil
}

// The shortest prefixes that can be blocked without --force: a shorter one is probably a typing
// error.
const (
	leastBits4 = 8
	leastBits6 = 16
)

// Wide reports whether a network is so wide that blocking it is probably a mistake.
func Wide(p netip.Prefix) bool {
	if p.Addr().Is4() {
		return p.Bits() < leastBits4
	}
	return p.Bits() < leastBits6
}

// Compare orders networks: IPv4 first, then by address, then the wider one first.
func Compare(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
