package main

import (
	"net"
	"sync/atomic"
	"testing"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// Clients are led elsewhere at first, and then home.
func TestRouted(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	var asked atomic.Int64
	server := &wire.Server{PacketConn: conn, Handler: wire.HandlerFunc(func(w wire.ResponseWriter, q *wire.Msg) {
		answer := new(wire.Msg).SetReply(q)
		address := "127.1.2.11"
		switch asked.Add(1) {
		case 1:
		case 2:
			address = "127.1.1.11"
		default:
			address = "127.1.2.12"
			if q.IsEdns0().Option[0].(*wire.EDNS0_SUBNET).Address.String() == "198.51.100.0" {
				address = "127.1.1.12"
			}
		}
		if asked.Load() > 1 {
			record, err := wire.NewRR(q.Question[0].Name + " 2 IN A " + address)
			if err != nil {
				t.Error(err)
			}
			answer.Answer = append(answer.Answer, record)
		}
		if err := w.WriteMsg(answer); err != nil {
			t.Error(err)
		}
	})}
	go func() { _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	l := &lab{state: state{DNS: conn.LocalAddr().String(), Zone: "edge.lab.test", Regions: []region{
		{Name: "us-east", Subnet: "203.0.113.0/24", Pops: []pop{{Addresses: []string{"127.1.2.11", "127.1.2.12"}}}},
		{Name: "eu-west", Subnet: "198.51.100.0/24", Pops: []pop{{Addresses: []string{"127.1.1.11"}}, {Addresses: []string{"127.1.1.12"}}}},
	}}}
	require.NoError(t, l.routed(t.Context()))
	require.Equal(t, int64(4), asked.Load())

	l.state.Regions[0].Pops = nil
	require.ErrorContains(t, l.misled(t.Context(), l.state.Regions[0]), "it answers edge.lab.test.")
}
