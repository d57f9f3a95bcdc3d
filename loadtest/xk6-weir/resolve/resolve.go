// Package resolve looks names up as a client in one region would: it asks one DNS
// server, states the client's network (EDNS client subnet, RFC 7871), and remembers an
// answer exactly as long as its TTL allows.
package resolve

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Config of a Resolver.
type Config struct {
	Server  string       // host:port
	Subnet  netip.Prefix // zero: not stated
	IPv6    bool         // ask for AAAA instead of A
	Timeout time.Duration
	// Attempts for an answer over UDP; 0 means 2.
	Attempts int
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)
	Now      func() time.Time
}

// Answer is what a name resolves to.
type Answer struct {
	Addresses []netip.Addr // in the server's order
	Expires   time.Time
	// Scope is how many bits of the client's network the answer covers; -1: not stated.
	Scope int
}

// Resolver is one client's stub resolver. It is not safe for concurrent use.
type Resolver struct {
	config Config
	known  map[string]Answer
	// Queries is how many questions were sent.
	Queries int
}

// maxUDP is the largest answer that is never fragmented in transit.
const maxUDP = 1232

// New returns a resolver with an empty cache.
func New(c Config) *Resolver {
	if c.Timeout <= 0 {
		c.Timeout = 2 * time.Second
	}
	if c.Attempts <= 0 {
		c.Attempts = 2
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Resolver{config: c, known: map[string]Answer{}}
}

// NotFoundError is an answer without addresses.
type NotFoundError struct {
	Name  string
	Rcode int
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("resolve %s: no addresses (%s)", e.Name, dns.RcodeToString[e.Rcode])
}

// Lookup returns the addresses of a name, from memory while its TTL lasts. The TTL
// counts from before the question was sent, so memory never outlives the answer. A
// failure is not remembered, and an expired answer is never used, even if no new one
// arrives.
func (r *Resolver) Lookup(ctx context.Context, name string) (Answer, error) {
	name = dns.CanonicalName(name)
	now := r.config.Now()
	if a, ok := r.known[name]; ok {
		if now.Before(a.Expires) {
			return a, nil
		}
		delete(r.known, name)
	}
	var msg *dns.Msg
	err := errors.New("no attempt was made")
	for range r.config.Attempts {
		now = r.config.Now()
		if msg, err = r.ask(ctx, name); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return Answer{}, fmt.Errorf("resolve %s at %s: %w", strings.TrimSuffix(name, "."), r.config.Server, err)
	}
	a, ttl := r.read(msg, name)
	if len(a.Addresses) == 0 {
		return a, &NotFoundError{strings.TrimSuffix(name, "."), msg.Rcode}
	}
	a.Expires = now.Add(time.Duration(ttl) * time.Second)
	if ttl > 0 {
		r.known[name] = a
	}
	return a, nil
}

func (r *Resolver) kind() uint16 {
	if r.config.IPv6 {
		return dns.TypeAAAA
	}
	return dns.TypeA
}

// read follows the answer's aliases and returns their addresses, with the shortest TTL
// of all the records used.
func (r *Resolver) read(msg *dns.Msg, name string) (a Answer, ttl uint32) {
	a.Scope = -1
	if opt := msg.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if s, ok := o.(*dns.EDNS0_SUBNET); ok {
				a.Scope = int(s.SourceScope)
			}
		}
	}
	ttl = ^uint32(0)
	for range 16 { // an alias of an alias …; a loop ends here
		next := ""
		for _, rr := range msg.Answer {
			if !strings.EqualFold(rr.Header().Name, name) {
				continue
			}
			var ip net.IP
			switch rr := rr.(type) {
			case *dns.A:
				ip = rr.A
			case *dns.AAAA:
				ip = rr.AAAA
			case *dns.CNAME:
				next, ttl = rr.Target, min(ttl, rr.Hdr.Ttl)
			}
			if addr, ok := netip.AddrFromSlice(ip); ok && rr.Header().Rrtype == r.kind() {
				a.Addresses, ttl = append(a.Addresses, addr.Unmap()), min(ttl, rr.Header().Ttl)
			}
		}
		if next == "" || len(a.Addresses) > 0 {
			break
		}
		name = next
	}
	if ttl > 1<<31-1 { // RFC 2181: the top bit means 0
		ttl = 0
	}
	return a, ttl
}

func (r *Resolver) question(name string) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(name, r.kind())
	q.Id = uint16(rand.Uint32())
	q.SetEdns0(maxUDP, false)
	if p := r.config.Subnet; p.IsValid() {
		family, addr := uint16(1), p.Masked().Addr()
		if addr.Is6() {
			family = 2
		}
		opt := q.IsEdns0()
		opt.Option = append(opt.Option, &dns.EDNS0_SUBNET{
			Code: dns.EDNS0SUBNET, Family: family, SourceNetmask: uint8(p.Bits()), Address: addr.AsSlice(),
		})
	}
	return q
}

func (r *Resolver) ask(ctx context.Context, name string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	q := r.question(name)
	answer, err := r.exchange(ctx, "udp", q)
	if err == nil && answer.Truncated {
		answer, err = r.exchange(ctx, "tcp", q)
	}
	if err != nil {
		return nil, err
	}
	switch answer.Rcode {
	case dns.RcodeSuccess, dns.RcodeNameError:
		return answer, nil
	}
	return nil, fmt.Errorf("the server answered %s", dns.RcodeToString[answer.Rcode])
}

func (r *Resolver) exchange(ctx context.Context, network string, q *dns.Msg) (*dns.Msg, error) {
	r.Queries++
	conn, err := r.config.Dial(ctx, network, r.config.Server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	wire, err := q.Pack()
	if err != nil {
		return nil, err
	}
	stream := network == "tcp"
	if stream {
		wire = append(binary.BigEndian.AppendUint16(nil, uint16(len(wire))), wire...)
	}
	if _, err := conn.Write(wire); err != nil {
		return nil, err
	}
	buf := make([]byte, 1<<16)
	for {
		n := 0
		if stream {
			if _, err := io.ReadFull(conn, buf[:2]); err != nil {
				return nil, err
			}
			n = int(binary.BigEndian.Uint16(buf))
			_, err = io.ReadFull(conn, buf[:n])
		} else {
			n, err = conn.Read(buf)
		}
		if err != nil {
			return nil, err
		}
		answer := new(dns.Msg)
		// Ignore a datagram that does not answer this question.
		if err := answer.Unpack(buf[:n]); err == nil && answers(answer, q) {
			return answer, nil
		} else if stream {
			return nil, errors.New("the server's answer is malformed or to another question")
		}
	}
}

func answers(a, q *dns.Msg) bool {
	return a.Response && a.Id == q.Id && len(a.Question) == 1 &&
		a.Question[0].Qtype == q.Question[0].Qtype && strings.EqualFold(a.Question[0].Name, q.Question[0].Name)
}
