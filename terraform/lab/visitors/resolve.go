package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// resolver keeps answers for their TTL, as resolvers do. While DNS does not answer, it keeps the old
// ones.
type resolver struct {
	ask func(context.Context, netip.Prefix) ([]netip.Addr, time.Duration, error)

	mu    sync.Mutex
	known map[netip.Prefix]known
}

type known struct {
	list  []netip.Addr
	until time.Time
}

// mostWait bounds a query.
const mostWait = time.Second

// addresses returns where DNS sends the clients of a network.
func (r *resolver) addresses(ctx context.Context, network netip.Prefix) ([]netip.Addr, error) {
	r.mu.Lock()
	k := r.known[network]
	fresh := time.Now().Before(k.until)
	if !fresh && k.list != nil { // meanwhile others go where they went
		r.known[network] = known{k.list, time.Now().Add(mostWait)}
	}
	r.mu.Unlock()
	if fresh {
		return k.list, nil
	}
	list, ttl, err := r.ask(ctx, network)
	if err != nil {
		if k.list == nil {
			return nil, err
		}
		return k.list, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[netip.Prefix]known{}
	}
	r.known[network] = known{list, time.Now().Add(ttl)}
	return list, nil
}

// resolve asks for the zone's addresses, as the resolver of a network's clients does (RFC 7871).
func resolve(ctx context.Context, server, zone string, network netip.Prefix) ([]netip.Addr, time.Duration, error) {
	query, err := queryOf(zone, network)
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, mostWait)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "udp", server)
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	answer := make([]byte, 1232)
	n := 0
	if err = conn.SetDeadline(end); err == nil {
		if _, err = conn.Write(query); err == nil {
			n, err = conn.Read(answer)
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("no answer from DNS at %s: %w; is the lab up, with dns = true?", server, err)
	}
	list, ttl, err := addressesOf(answer[:n])
	if err != nil {
		return nil, 0, fmt.Errorf("DNS at %s: %w", server, err)
	}
	return list, ttl, nil
}

func queryOf(zone string, network netip.Prefix) ([]byte, error) {
	name, err := dnsmessage.NewName(zone + ".")
	if err != nil {
		return nil, fmt.Errorf("zone %q: %w", zone, err)
	}
	subnet := network.Addr().As4()
	var edns dnsmessage.ResourceHeader
	if err := edns.SetEDNS0(1232, dnsmessage.RCodeSuccess, false); err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
		Additionals: []dnsmessage.Resource{{Header: edns, Body: &dnsmessage.OPTResource{Options: []dnsmessage.Option{
			{Code: 8, Data: append([]byte{0, 1, byte(network.Bits()), 0}, subnet[:(network.Bits()+7)/8]...)},
		}}}},
	}
	return m.Pack()
}

func addressesOf(answer []byte) (list []netip.Addr, ttl time.Duration, err error) {
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return nil, 0, err
	}
	for _, r := range m.Answers {
		if a, ok := r.Body.(*dnsmessage.AResource); ok {
			list, ttl = append(list, netip.AddrFrom4(a.A)), time.Duration(r.Header.TTL)*time.Second
		}
	}
	if len(list) == 0 {
		return nil, 0, errors.New("it names no address (" + m.RCode.String() + ")")
	}
	return list, ttl, nil
}
