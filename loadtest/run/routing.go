package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	wire "github.com/miekg/dns"
)

// routeLimit is far longer than the router needs to accept that a PoP is back.
const routeLimit = time.Minute

// routed waits until the router sends each region's clients to their region: just after
// a start it sends some elsewhere, and then no region has the load that its limits
// need.
func (l *lab) routed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, routeLimit)
	defer cancel()
	for _, r := range l.state.Regions {
		if why := l.routedTo(ctx, r); why != nil {
			return fmt.Errorf("the router does not send clients of %s there, as the scenarios need; is a PoP drained? %w", r.Name, why)
		}
	}
	return nil
}

// routedTo waits until the router sends a region's clients to its PoPs, or ctx ends.
func (l *lab) routedTo(ctx context.Context, r region) error {
	for {
		why := l.misled(ctx, r)
		if why == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return why
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// misled asks the router as a client of a region, and returns what is wrong with its
// answer.
func (l *lab) misled(ctx context.Context, r region) error {
	network, err := netip.ParsePrefix(r.Subnet)
	if err != nil {
		return err
	}
	addresses, err := l.resolve(ctx, network)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !slices.ContainsFunc(r.Pops, func(p pop) bool { return slices.Contains(p.Addresses, a) }) {
			return fmt.Errorf("it answers %s", a)
		}
	}
	return nil
}

// resolve asks the router as a client of a network; it returns one address at least.
func (l *lab) resolve(ctx context.Context, network netip.Prefix) ([]string, error) {
	q := new(wire.Msg).SetQuestion(wire.Fqdn(l.state.Zone), wire.TypeA)
	q.SetEdns0(wire.DefaultMsgSize, false)
	q.IsEdns0().Option = []wire.EDNS0{&wire.EDNS0_SUBNET{
		Code: wire.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(network.Bits()), Address: network.Addr().AsSlice(),
	}}
	answer, _, err := (&wire.Client{Timeout: time.Second}).ExchangeContext(ctx, q, l.state.DNS)
	if err != nil {
		return nil, err
	}
	if len(answer.Answer) == 0 {
		return nil, fmt.Errorf("it answers %s without an address", wire.RcodeToString[answer.Rcode])
	}
	var addresses []string
	for _, record := range answer.Answer {
		a, ok := record.(*wire.A)
		if !ok {
			return nil, fmt.Errorf("it answers %s", record)
		}
		addresses = append(addresses, a.A.String())
	}
	return addresses, nil
}
