package dns

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region"
)

// FuzzServe sends packets to the server and parses the answers with the library.
func FuzzServe(f *testing.F) {
	for _, name := range []string{"edge.example.com.", "eDgE.example.com.", "x.edge.example.com.", "ams1.pop.edge.example.com.", "us-east.region.edge.example.com.", "ns1.edge.example.com.", "www.edge.example.com.", "far-too.edge.example.com.", "lost.edge.example.com.", "a.b.dev.edge.example.com.", "*.to.edge.example.com.", `\\*.to.edge.example.com.`, "long.edge.example.com.", "down.dev.edge.example.com.", ".", `a\.b\000.edge.example.com.`} {
		for _, qtype := range []uint16{wire.TypeA, wire.TypeAAAA, wire.TypeANY, wire.TypeAXFR, wire.TypeNS, wire.TypeSOA, wire.TypeTXT, wire.TypeCNAME, wire.TypeMX, wire.TypeCAA, 65280} {
			f.Add(ask(f, name, qtype), true)
		}
	}
	for _, option := range []wire.EDNS0{
		&wire.EDNS0_LOCAL{Code: wire.EDNS0SUBNET, Data: []byte{0, 1, 24, 0, 203, 0, 113}},
		&wire.EDNS0_LOCAL{Code: wire.EDNS0SUBNET, Data: []byte{0, 2, 48, 0, 0x20, 1, 0xd, 0xb8, 0, 1}},
		&wire.EDNS0_LOCAL{Code: wire.EDNS0SUBNET, Data: []byte{0, 1, 24, 0, 203, 0}},
		&wire.EDNS0_COOKIE{Code: wire.EDNS0COOKIE, Cookie: "0102030405060708"},
	} {
		m := new(wire.Msg)
		m.SetQuestion("edge.example.com.", wire.TypeA)
		m.SetEdns0(700, true)
		m.IsEdns0().Option = append(m.IsEdns0().Option, option)
		packet, err := m.Pack()
		require.NoError(f, err)
		f.Add(packet, true)
		f.Add(packet, false)
	}
	f.Add([]byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1}, true)

	from := netip.MustParseAddr("127.0.0.1")
	var servers []*Server
	for _, v := range []*region.View{view(f, fleet+records, healthy), view(f, many(256), region.PoPState{}), region.NewView(nil, nil, nil)} {
		c := config(v)
		c.Zone = "edge.example.com"
		s, err := New(c)
		require.NoError(f, err)
		servers = append(servers, s)
	}
	f.Fuzz(func(t *testing.T, packet []byte, udp bool) {
		before := string(packet)
		for _, s := range servers {
			start := time.Now()
			answer, kind := s.answer(packet, from, udp)
			require.Less(t, time.Since(start), patience)
			require.Equal(t, before, string(packet), "the packet is not modified")
			require.Equal(t, answer == nil, kind == "")
			if answer == nil {
				require.True(t, len(packet) < 12 || packet[2]&0x80 != 0)
				continue
			}
			check(t, packet, answer, udp)
		}
	})
}

// check verifies what holds for every answer.
func check(t *testing.T, packet, answer []byte, udp bool) {
	t.Helper()
	m := new(wire.Msg)
	require.NoError(t, m.Unpack(answer))
	require.True(t, m.Response)
	require.False(t, m.RecursionAvailable)
	require.Equal(t, binary.BigEndian.Uint16(packet), m.Id)
	q := new(wire.Msg)
	readable := q.Unpack(packet) == nil
	limit := wire.MaxMsgSize
	if udp {
		limit = 512
		if opt := m.IsEdns0(); opt != nil {
			limit = 1232
			if asked := q.IsEdns0(); readable && asked != nil {
				limit = min(1232, max(512, int(asked.UDPSize())))
			}
		}
	}
	require.LessOrEqual(t, len(answer), limit)
	if len(m.Question) > 0 && readable && len(q.Question) > 0 {
		require.Equal(t, q.Question[0], m.Question[0], "in the same letter case")
	}
	owner, last := "", m.Answer == nil
	if len(m.Question) > 0 {
		owner = m.Question[0].Name
	}
	for _, rr := range m.Answer { // CNAMEs, each owned by the target of the previous, and the final records
		require.False(t, last && rr.Header().Rrtype == wire.TypeCNAME)
		require.Equal(t, owner, rr.Header().Name)
		require.True(t, m.Authoritative)
		if alias, ok := rr.(*wire.CNAME); ok && m.Question[0].Qtype != wire.TypeCNAME && m.Question[0].Qtype != wire.TypeANY {
			owner = alias.Target
		} else {
			last = true
		}
	}
	if m.Rcode == wire.RcodeNameError || m.Rcode == wire.RcodeSuccess && last == (len(m.Answer) == 0) && strings.HasSuffix(strings.ToLower(owner), "edge.example.com.") && !m.Truncated {
		require.Len(t, m.Ns, 1)
		require.Equal(t, wire.TypeSOA, m.Ns[0].Header().Rrtype)
		require.True(t, strings.EqualFold("edge.example.com.", m.Ns[0].Header().Name))
	}
}
