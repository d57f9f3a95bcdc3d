package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// serveUDP answers packets one by one until ctx ends.
func (s *Server) serveUDP(ctx context.Context, conn *net.UDPConn) error {
	packet, oob := make([]byte, maxQuery+1), make([]byte, 128)
	failures := 0
	for ctx.Err() == nil {
		n, oobLen, _, from, err := conn.ReadMsgUDPAddrPort(packet, oob)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// An earlier answer's error, for example. A socket that only fails is
			// useless.
			if failures++; failures > 1000 {
				return err
			}
			continue
		}
		failures = 0
		client := from.Addr().Unmap().WithZone("")
		if n > maxQuery || from.Port() == 0 {
			continue
		}
		if answer := s.answerUDP(packet[:n], client, time.Since(s.started)); answer != nil {
			// A client that is gone is not an error here.
			_, _, _ = conn.WriteMsgUDPAddrPort(answer, source(oob[:oobLen]), from)
		}
	}
	return nil
}

// answerUDP is answer within the rate limit. Queries over it cost no choice.
func (s *Server) answerUDP(packet []byte, client netip.Addr, now time.Duration) []byte {
	r := s.begin(packet)
	if r == nil {
		return nil
	}
	switch s.limiter.check(client, r.subject(), now) {
	case dropped:
		s.observe(kindDropped)
		return nil
	case slipped:
		if answer := r.slip(); answer != nil {
			s.observe(kindSlipped)
			return answer
		}
		s.observe(kindDropped)
		return nil
	}
	answer, kind := r.finish(client, true)
	s.observe(kind)
	return answer
}

// askForDestination makes each packet report which of this machine's addresses it was
// sent to, if the socket is bound to all: the answer must come from there.
func askForDestination(conn *net.UDPConn, ip net.IP) error {
	if ip != nil && !ip.IsUnspecified() {
		return nil
	}
	err4 := ipv4.NewPacketConn(conn).SetControlMessage(ipv4.FlagDst, true)
	err6 := ipv6.NewPacketConn(conn).SetControlMessage(ipv6.FlagDst, true)
	if err4 != nil && err6 != nil {
		return errors.Join(err4, err6)
	}
	return nil
}

// source converts a packet's destination to the source of its answer.
func source(oob []byte) []byte {
	if len(oob) == 0 {
		return nil
	}
	var six ipv6.ControlMessage
	if six.Parse(oob) == nil && six.Dst != nil {
		if four := six.Dst.To4(); four != nil {
			return (&ipv4.ControlMessage{Src: four}).Marshal()
		}
		return (&ipv6.ControlMessage{Src: six.Dst}).Marshal()
	}
	var four ipv4.ControlMessage
	if four.Parse(oob) == nil && four.Dst != nil {
		return (&ipv4.ControlMessage{Src: four.Dst}).Marshal()
	}
	return nil
}
