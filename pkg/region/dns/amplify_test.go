package dns

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region"
)

// TestAmplification bounds how much larger than a forged query its answer over UDP is; -v
// prints the factors.
func TestAmplification(t *testing.T) {
	c := config(view(t, many(25)+"\nrecords: [{name: txt, type: TXT, values: ["+strings.Repeat("x", 1000)+"]}]", region.PoPState{}))
	c.NS = nil
	for i := range 15 {
		n := NameServer{Host: fmt.Sprintf("ns%d.edge.example.com", i)}
		for j := range 1 {
			n.Addrs = append(n.Addrs, netip.AddrFrom4([4]byte{192, 0, byte(i), byte(j)}), netip.AddrFrom16([16]byte{0x20, 1, byte(i), byte(j)}))
		}
		c.NS = append(c.NS, n)
	}
	s, err := New(c)
	require.NoError(t, err)
	for _, row := range []struct {
		name   string
		qtype  uint16
		edns   bool
		factor float64
	}{
		{"edge.example.com.", wire.TypeNS, true, 7.5}, {"edge.example.com.", wire.TypeNS, false, 9.5},
		{"edge.example.com.", wire.TypeA, true, 10}, {"edge.example.com.", wire.TypeA, false, 13}, // no PoP is healthy
		{"edge.example.com.", wire.TypeANY, true, 2}, {"edge.example.com.", wire.TypeSOA, true, 2.5},
		{"txt.edge.example.com.", wire.TypeTXT, true, 22}, {"txt.edge.example.com.", wire.TypeTXT, false, 1.5},
		{"x.edge.example.com.", wire.TypeA, true, 2.5}, {"ns1.edge.example.com.", wire.TypeAAAA, true, 2.5},
	} {
		m := new(wire.Msg)
		m.SetQuestion(row.name, row.qtype)
		if row.edns {
			m.SetEdns0(1232, false)
		}
		query, err := m.Pack()
		require.NoError(t, err)
		answer, _ := s.answer(query, netip.MustParseAddr("127.0.0.1"), true)
		factor := float64(len(answer)) / float64(len(query))
		t.Logf("%-22s %-5s edns=%-5v %4d bytes for %2d: ×%.1f", row.name, wire.TypeToString[row.qtype], row.edns, len(answer), len(query), factor)
		require.LessOrEqual(t, factor, row.factor, row.name)
	}
}
