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
	records := "\nrecords: [{name: txt, type: TXT, values: [" + strings.Repeat("x", 1000) + "]}, {name: www, type: CNAME, values: [edge.example.com]}]"
	c := config(view(t, many(25)+records, region.PoPState{}))
	c.NS = nil
	for i := range 15 {
		n := NameServer{Host: fmt.Sprintf("ns%d.edge.example.com", i)}
		for j := range 1 {
			n.Addrs = append(n.Addrs, netip.AddrFrom4([4]byte{192, 0, byte(i), byte(j)}), netip.AddrFrom16([16]byte{0x20, 1, byte(i), byte(j)}))
		}
		c.NS = append(c.NS, n)
	}
	down, err := New(c)
	require.NoError(t, err)
	var addresses []string
	for i := range 100 {
		addresses = append(addresses, fmt.Sprintf("192.0.2.%d", i))
	}
	large, err := New(config(view(t, "{zone: edge.example.com, regions: [{name: eu, pops: [{name: ams1, addresses: ["+strings.Join(addresses, ", ")+"]}]}]}", healthy)))
	require.NoError(t, err)
	for _, row := range []struct {
		s      *Server
		name   string
		qtype  uint16
		edns   bool
		factor float64
	}{
		{down, "edge.example.com.", wire.TypeNS, true, 7.5}, {down, "edge.example.com.", wire.TypeNS, false, 9.5},
		{down, "edge.example.com.", wire.TypeA, true, 10}, {down, "edge.example.com.", wire.TypeA, false, 13}, // no PoP is healthy
		{down, "edge.example.com.", wire.TypeANY, true, 2}, {down, "edge.example.com.", wire.TypeSOA, true, 2.5},
		{down, "txt.edge.example.com.", wire.TypeTXT, true, 22}, {down, "txt.edge.example.com.", wire.TypeTXT, false, 1.5},
		{down, "x.edge.example.com.", wire.TypeA, true, 2.5}, {down, "ns1.edge.example.com.", wire.TypeAAAA, true, 2.5},
		{down, "www.edge.example.com.", wire.TypeTXT, false, 2.8}, // a CNAME, and the SOA
		{down, "x._weir-facts.edge.example.com.", wire.TypeTXT, true, 1}, {down, "x._weir-facts.edge.example.com.", wire.TypeTXT, false, 1},
		{large, "edge.example.com.", wire.TypeA, true, 27.4}, {large, "edge.example.com.", wire.TypeA, false, 15.1},
	} {
		m := new(wire.Msg)
		m.SetQuestion(row.name, row.qtype)
		if row.edns {
			m.SetEdns0(1232, false)
		}
		query, err := m.Pack()
		require.NoError(t, err)
		answer, _ := row.s.answer(query, netip.MustParseAddr("127.0.0.1"), true)
		factor := float64(len(answer)) / float64(len(query))
		t.Logf("%-22s %-5s edns=%-5v %4d bytes for %2d: ×%.1f", row.name, wire.TypeToString[row.qtype], row.edns, len(answer), len(query), factor)
		require.LessOrEqual(t, factor, row.factor, row.name)
	}
}
