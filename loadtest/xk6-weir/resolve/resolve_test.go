package resolve

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
)

// serve answers with f over UDP and TCP on one port.
func serve(t *testing.T, f func(q *dns.Msg, tcp bool) *dns.Msg) string {
	t.Helper()
	var ln net.Listener
	var pc net.PacketConn
	var err error
	for range 20 { // a port that is free for TCP may be taken for UDP
		ln, err = net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		if pc, err = net.ListenPacket("udp", ln.Addr().String()); err == nil {
			break
		}
		_ = ln.Close()
	}
	require.NoError(t, err)
	for _, s := range []*dns.Server{{PacketConn: pc}, {Listener: ln}} {
		s.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			if m := f(q, s.Listener != nil); m != nil {
				_ = w.WriteMsg(m)
			}
		})
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { _ = s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { _ = s.Shutdown() })
	}
	return pc.LocalAddr().String()
}

func reply(t *testing.T, q *dns.Msg, records ...string) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	for _, text := range records {
		rr, err := dns.NewRR(text)
		require.NoError(t, err)
		m.Answer = append(m.Answer, rr)
	}
	return m
}

func resolver(server string, now *time.Time) *Resolver {
	return New(Config{
		Server: server, Timeout: time.Minute, Dial: new(net.Dialer).DialContext,
		Subnet: netip.MustParsePrefix("203.0.113.77/24"), Now: func() time.Time { return *now },
	})
}

func addrs(list ...string) (a []netip.Addr) {
	for _, s := range list {
		a = append(a, netip.MustParseAddr(s))
	}
	return a
}

func TestTTLIsKeptToTheInstant(t *testing.T) {
	var asked atomic.Int32
	server := serve(t, func(q *dns.Msg, _ bool) *dns.Msg {
		asked.Add(1)
		return reply(t, q, "edge.example. 20 A 192.0.2.1", "edge.example. 30 A 192.0.2.2")
	})
	now := time.Unix(1000, 0)
	r := resolver(server, &now)
	for _, step := range []struct {
		at    time.Duration
		asked int
	}{{0, 1}, {19999 * time.Millisecond, 1}, {20 * time.Second, 2}, {39 * time.Second, 2}, {40 * time.Second, 3}} {
		now = time.Unix(1000, 0).Add(step.at)
		a, err := r.Lookup(context.Background(), "Edge.example")
		require.NoError(t, err)
		require.Equal(t, addrs("192.0.2.1", "192.0.2.2"), a.Addresses)
		require.EqualValues(t, step.asked, asked.Load(), step.at)
		require.Equal(t, step.asked, r.Queries)
	}
}

func TestZeroTTLIsNotRemembered(t *testing.T) {
	var asked atomic.Int32
	server := serve(t, func(q *dns.Msg, _ bool) *dns.Msg { asked.Add(1); return reply(t, q, "e.example. 0 A 192.0.2.1") })
	now := time.Unix(1000, 0)
	r := resolver(server, &now)
	for range 3 {
		_, err := r.Lookup(context.Background(), "e.example")
		require.NoError(t, err)
	}
	require.EqualValues(t, 3, asked.Load())
}

func TestSubnetIsStated(t *testing.T) {
	server := serve(t, func(q *dns.Msg, _ bool) *dns.Msg {
		m := reply(t, q, "e.example. 5 CNAME pop.example.", "pop.example. 3 A 192.0.2.9")
		s := q.IsEdns0().Option[0].(*dns.EDNS0_SUBNET)
		if s.Family != 1 || s.SourceNetmask != 24 || s.Address.String() != "203.0.113.0" {
			m.Rcode = dns.RcodeRefused
		}
		s.SourceScope = 16
		m.SetEdns0(maxUDP, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, s)
		return m
	})
	now := time.Unix(1000, 0)
	a, err := resolver(server, &now).Lookup(context.Background(), "e.example")
	require.NoError(t, err)
	require.Equal(t, Answer{addrs("192.0.2.9"), now.Add(3 * time.Second), 16}, a)
}

func TestTruncatedGoesOverTCP(t *testing.T) {
	server := serve(t, func(q *dns.Msg, tcp bool) *dns.Msg {
		m := reply(t, q)
		if m.Truncated = !tcp; tcp {
			m = reply(t, q, "e.example. 5 A 192.0.2.4")
		}
		return m
	})
	now := time.Unix(1000, 0)
	a, err := resolver(server, &now).Lookup(context.Background(), "e.example.")
	require.NoError(t, err)
	require.Equal(t, addrs("192.0.2.4"), a.Addresses)
}

func TestFailuresAreNotRemembered(t *testing.T) {
	var mu sync.Mutex
	answer := func(q *dns.Msg) *dns.Msg { return nil }
	server := serve(t, func(q *dns.Msg, _ bool) *dns.Msg { mu.Lock(); defer mu.Unlock(); return answer(q) })
	set := func(f func(q *dns.Msg) *dns.Msg) { mu.Lock(); answer = f; mu.Unlock() }
	now := time.Unix(1000, 0)
	r := resolver(server, &now)
	within := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_, err := r.Lookup(ctx, "e.example")
		return err
	}
	lookup, silent := func() error { return within(time.Minute) }, func() error { return within(100 * time.Millisecond) }
	require.ErrorContains(t, silent(), "resolve e.example at "+server)
	set(func(q *dns.Msg) *dns.Msg { m := reply(t, q); m.Rcode = dns.RcodeNameError; return m })
	var none *NotFoundError
	require.ErrorAs(t, lookup(), &none)
	require.Equal(t, dns.RcodeNameError, none.Rcode)
	set(func(q *dns.Msg) *dns.Msg { m := reply(t, q); m.Rcode = dns.RcodeServerFailure; return m })
	require.ErrorContains(t, lookup(), "SERVFAIL")
	set(func(q *dns.Msg) *dns.Msg { return reply(t, q, "e.example. 1 A 192.0.2.4") })
	require.NoError(t, lookup())
	set(func(q *dns.Msg) *dns.Msg { return nil })
	require.NoError(t, lookup(), "from memory")
	now = now.Add(time.Second)
	require.Error(t, silent(), "an expired answer is not used")
}

func TestAnswersToOthersAreIgnored(t *testing.T) {
	q, a := new(dns.Msg), new(dns.Msg)
	q.SetQuestion("e.example.", dns.TypeA)
	require.True(t, answers(a.SetReply(q), q))
	a.Id++
	require.False(t, answers(a, q))
	a.SetReply(q)
	a.Question[0].Name = "f.example."
	require.False(t, answers(a, q))
}
