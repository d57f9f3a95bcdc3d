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
		for {
			why := l.misled(ctx, r)
			if why == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the router does not send clients of %s there, as the scenarios need; is a PoP drained? %w", r.Name, why)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

// misled asks the router as a client of a region, and returns what is wrong with its
// answer.
func (l *lab) misled(ctx context.Context, r region) error {
	network, err := netip.ParsePrefix(r.Subnet)
	if err != nil {
		return err
	}
	q := new(wire.Msg).SetQuestion(wire.Fqdn(l.state.Zone), wire.TypeA)
	q.SetEdns0(wire.DefaultMsgSize, false)
	q.IsEdns0().Option = []wire.EDNS0{&wire.EDNS0_SUBNET{
		Code: wire.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(network.Bits()), Address: network.Addr().AsSlice(),
	}}
	answer, _, err := (&wire.Client{Timeout: time.Second}).ExchangeContext(ctx, q, l.state.DNS)
	if err != nil {
		return err
	}
	if len(answer.Answer) == 0 {
		return fmt.Errorf("it answers %s without an address", wire.RcodeToString[answer.Rcode])
	}
	for _, record := range answer.Answer {
		a, ok := record.(*wire.A)
		if !ok || !slices.ContainsFunc(r.Pops, func(p pop) bool { return slices.Contains(p.Addresses, a.A.String()) }) {
			return fmt.Errorf("it answers %s", record)
		}
	}
	return nil
}
