package main

import (
	"net"
	"sync/atomic"
	"testing"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// serveDNS answers every question with the address for the client's subnet, or with none.
func serveDNS(t *testing.T, conn net.PacketConn, address func(subnet string) string) {
	t.Helper()
	server := &wire.Server{PacketConn: conn, Handler: wire.HandlerFunc(func(w wire.ResponseWriter, q *wire.Msg) {
		answer := new(wire.Msg).SetReply(q)
		if a := address(q.IsEdns0().Option[0].(*wire.EDNS0_SUBNET).Address.String()); a != "" {
			answer.Answer = []wire.RR{&wire.A{Hdr: wire.RR_Header{Name: q.Question[0].Name, Rrtype: wire.TypeA, Class: wire.ClassINET, Ttl: 2}, A: net.ParseIP(a)}}
		}
		if err := w.WriteMsg(answer); err != nil {
			t.Error(err)
		}
	})}
	ended := make(chan error)
	go func() { ended <- server.ActivateAndServe() }()
	t.Cleanup(func() {
		_ = conn.Close() // that ends it, with an error
		<-ended
	})
}

// Clients are sent elsewhere at first, and then home.
func TestRouted(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	var asked atomic.Int64
	serveDNS(t, conn, func(subnet string) string {
		switch n := asked.Add(1); {
		case n == 1:
			return ""
		case n == 2:
			return "127.1.1.11"
		case subnet == "198.51.100.0":
			return "127.1.1.12"
		default:
			return "127.1.2.12"
		}
	})
	l := &lab{state: state{DNS: conn.LocalAddr().String(), Zone: "edge.lab.test", Regions: []region{
		{Name: "us-east", Subnet: "203.0.113.0/24", Pops: []pop{{Addresses: []string{"127.1.2.11", "127.1.2.12"}}}},
		{Name: "eu-west", Subnet: "198.51.100.0/24", Pops: []pop{{Addresses: []string{"127.1.1.11"}}, {Addresses: []string{"127.1.1.12"}}}},
	}}}
	require.NoError(t, l.routed(t.Context()))
	require.GreaterOrEqual(t, asked.Load(), int64(4), "a late answer is asked for again")

	l.state.Regions[0].Pops = nil
	require.ErrorContains(t, l.misled(t.Context(), l.state.Regions[0]), "it answers 127.1.2.12")
}
