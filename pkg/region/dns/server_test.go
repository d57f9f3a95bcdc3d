package dns

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region"
)

func TestNewRefuses(t *testing.T) {
	f := func(change func(*Config), want ...string) {
		t.Helper()
		c := config(view(t, fleet, healthy))
		c.Zone = "edge.example.com"
		change(&c)
		s, err := New(c)
		require.EqualError(t, err, strings.Join(want, "\n"))
		require.Nil(t, s)
	}
	f(func(c *Config) { c.View = nil }, "view: must be set")
	f(func(c *Config) { c.TTL, c.MaxUDP, c.RateLimit = 1500*time.Millisecond, 100, -1 },
		"ttl: must be whole seconds between 1s and 1h (got 1.5s)", "max_udp: must be between 512 and 4096 (got 100)", "rate_limit: must be between 0 and 1000000 (got -1)")
	f(func(c *Config) { c.Zone = "a..b" }, `zone: must be a domain name of at most 180 characters such as edge.example.com (got "a..b")`)
	f(func(c *Config) { c.NS = nil }, "ns: must name at least one name server, as in ns1.edge.example.com")
	f(func(c *Config) { c.Zone, c.NS = "", nil }, "ns: must name at least one name server, as in ns1.edge.example.com")
	f(func(c *Config) { c.Hostmaster = "nobody" }, `hostmaster: must be a mail address (got "nobody")`)
	one := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	f(func(c *Config) {
		c.NS = []NameServer{{Host: "a b"}, {Host: "ns1.edge.example.com"}, {"ns.example.org", one}, {"a.b.edge.example.com", one}, {"pop.edge.example.com", one}, {"edge.example.com", one}}
	},
		`ns[0].host: must be a domain name (got "a b")`,
		"ns[1].addresses: must name those of ns1.edge.example.com, which is in the zone itself",
		"ns[2].addresses: must be left out: ns.example.org is not in the zone edge.example.com",
		`ns[3].host: must be one label in front of the zone, but not pop or region (got "a.b.edge.example.com")`,
		`ns[4].host: must be one label in front of the zone, but not pop or region (got "pop.edge.example.com")`,
		`ns[5].host: must be one label in front of the zone, but not pop or region (got "edge.example.com")`)

	s, err := New(config(nil))
	require.NoError(t, err)
	require.ErrorContains(t, s.Listen("127.0.0.1:x"), "listen for DNS: ")
	require.ErrorContains(t, s.Listen("192.0.2.1:0"), "listen for DNS: ")
	require.Empty(t, s.Addrs())
}

func ask(t testing.TB, name string, qtype uint16) []byte {
	t.Helper()
	m := new(wire.Msg)
	m.SetQuestion(name, qtype)
	packet, err := m.Pack()
	require.NoError(t, err)
	return packet
}

func TestGarbageGetsNoAnswerOrAFault(t *testing.T) {
	s, err := New(config(view(t, fleet, healthy)))
	require.NoError(t, err)
	good := ask(t, "edge.example.com.", wire.TypeA)
	changed := func(at int, b ...byte) []byte {
		packet := append([]byte{}, good...)
		copy(packet[at:], b)
		return packet
	}
	f := func(name string, packet []byte, want string) {
		t.Helper()
		answer, kind := s.answer(packet, netip.MustParseAddr("127.0.0.1"), true)
		require.Equal(t, want, kind, name)
		require.Equal(t, want == "", answer == nil, name)
		if answer != nil {
			m := new(wire.Msg)
			require.NoError(t, m.Unpack(answer), name)
			require.True(t, m.Response)
			require.Equal(t, binary.BigEndian.Uint16(packet), m.Id)
		}
	}
	f("good", good, "answer")
	f("empty", nil, "")
	f("short", good[:11], "")
	f("an answer", changed(2, 0x80), "")
	f("header", good[:12], "formerr")
	f("cut in the name", good[:20], "formerr")
	f("cut in the type", good[:len(good)-3], "formerr")
	f("trailing bytes", append(changed(0), 0), "formerr")
	f("two questions", append(changed(4, 0, 2), good[12:]...), "formerr")
	f("no question", changed(4, 0, 0), "formerr")
	f("an answer section", changed(6, 0, 1), "formerr")
	f("a missing record", changed(10, 0, 1), "formerr")
	f("a pointer to itself", changed(12, 0xc0, 12), "formerr")
	f("a pointer to the header", changed(12, 0xc0, 0), "formerr")
	f("a label of 64", changed(12, 64), "formerr")
	f("status", changed(2, 0x10), "notimp")
	opt := func(data ...byte) []byte {
		return append(append(changed(10, 0, 1), 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, byte(len(data))), data...)
	}
	f("OPT", opt(), "answer")
	f("an option cut short", opt(0, 8, 0, 9), "formerr")
	f("half an option", opt(0, 8, 0), "formerr")
	f("OPT of a name", append(changed(10, 0, 1), 1, 'a', 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0), "formerr")
	f("OPT among the authorities", append(changed(8, 0, 1), opt()[len(good):]...), "formerr")
	two := append(opt(), opt()[len(good):]...)
	two[11] = 2
	f("two OPT", two, "formerr")
}

// A query whose OPT can be parsed gets one, whatever its options are.
func TestFaultyOptionsAreAnsweredWithAnOPT(t *testing.T) {
	s, err := New(config(view(t, fleet, healthy)))
	require.NoError(t, err)
	for _, options := range [][]wire.EDNS0{
		{&wire.EDNS0_LOCAL{Code: wire.EDNS0SUBNET}},
		{&wire.EDNS0_LOCAL{Code: wire.EDNS0SUBNET, Data: []byte{0, 1, 24, 24, 192, 0, 2}}},
		{&wire.EDNS0_LOCAL{Code: wire.EDNS0SUBNET, Data: []byte{0, 1, 24, 0, 192, 0}}},
		{&wire.EDNS0_LOCAL{Code: wire.EDNS0SUBNET, Data: []byte{0, 1, 0, 0}}, &wire.EDNS0_LOCAL{Code: wire.EDNS0SUBNET, Data: []byte{0, 1, 0, 0}}},
	} {
		m := new(wire.Msg)
		m.SetQuestion("edge.example.com.", wire.TypeA)
		m.SetEdns0(1400, true)
		m.IsEdns0().Option = options
		packet, err := m.Pack()
		require.NoError(t, err)
		answer, kind := s.answer(packet, netip.MustParseAddr("127.0.0.1"), true)
		require.Equal(t, "formerr", kind)
		require.NoError(t, m.Unpack(answer))
		require.NotNil(t, m.IsEdns0(), "%v", options)
		require.Empty(t, m.IsEdns0().Option)
	}
}

// No client gets an answer that a family has no address while a healthy PoP has one.
func TestAnswersOfAFamily(t *testing.T) {
	v := view(t, fleet, healthy)
	s, err := New(config(v))
	require.NoError(t, err)
	f := func(name string, qtype uint16, want ...string) {
		t.Helper()
		m := new(wire.Msg)
		m.SetQuestion(name, qtype)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []wire.EDNS0{&wire.EDNS0_SUBNET{Code: wire.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: net.IPv4(198, 51, 100, 0)}}
		packet, err := m.Pack()
		require.NoError(t, err)
		answer, _ := s.answer(packet, netip.MustParseAddr("127.0.0.1"), true)
		require.NoError(t, m.Unpack(answer))
		var got []string
		for _, rr := range m.Answer {
			got = append(got, wire.Field(rr, 1))
		}
		require.Equal(t, want, got)
	}
	f("eu-west.region.edge.example.com.", wire.TypeAAAA, "2001:db8::1")
	v.PoPs["nyc1"], v.PoPs["ams1"] = region.PoPState{}, region.PoPState{}
	f("edge.example.com.", wire.TypeA, "192.0.2.2")
	f("edge.example.com.", wire.TypeAAAA)
	v.PoPs["nyc1"] = healthy
	f("edge.example.com.", wire.TypeAAAA, "2001:db8::3")
}

func TestNamesAreWithinAZoneByLabels(t *testing.T) {
	c := config(view(t, fleet, healthy))
	z, err := newZone("edge.example.com", &c, nil)
	require.NoError(t, err)
	f := func(name string, inside bool, label string) {
		t.Helper()
		in, got := z.within(name)
		require.Equal(t, inside, in, name)
		require.Equal(t, label, got, name)
	}
	f("edge.example.com.", true, "")
	f("ams1.pop.edge.example.com.", true, "ams1.pop")
	f(`a\.b.edge.example.com.`, true, `a\.b`)
	f(`a\.edge.example.com.`, false, "")
	f(`a\\.edge.example.com.`, true, `a\\`)
	f("ledge.example.com.", false, "")
	f("example.com.", false, "")
	f(".", false, "")
}

func TestRateLimit(t *testing.T) {
	l := newLimiter(10)
	now := time.Hour
	apex, other := subject{"edge.example.com.", wire.TypeA}, subject{"edge.example.com.", wire.TypeAAAA}
	f := func(client string, of subject, n, wantSent, wantSlips int, why string) {
		t.Helper()
		sent, slips := 0, 0
		for range n {
			switch l.check(netip.MustParseAddr(client), of, now) {
			case send:
				sent++
			case slipped:
				slips++
			}
		}
		require.Equal(t, []int{wantSent, wantSlips}, []int{sent, slips}, why)
	}
	f("203.0.113.7", apex, 40, 10, 15, "every second of those over the limit")
	f("203.0.113.200", apex, 10, 0, 5, "a neighbor")
	f("203.0.113.200", other, 10, 10, 0, "another answer")
	f("203.0.114.7", apex, 10, 10, 0, "another network")
	f("203.0.113.7", subject{}, 80, 80, 0, "for client subnets; refused answers above do not count")
	f("203.0.113.7", subject{}, 10, 0, 5, "100 of all together")
	f("203.0.113.7", subject{"x", 1}, 10, 0, 5, "random names do not evade that")
	now += 500 * time.Millisecond
	f("203.0.113.7", apex, 25, 5, 10, "half a second's")
	f("2001:db8::1", apex, 10, 10, 0, "of IPv6")
	f("2001:db8:0:ff::1", apex, 10, 0, 5, "the same /56")
	f("2001:db8:0:100::1", apex, 10, 10, 0, "another")
	require.Equal(t, send, (*limiter)(nil).check(netip.IPv6Loopback(), apex, now))
	require.Nil(t, newLimiter(0))
}

// What a query counts as for its network.
func TestSubjects(t *testing.T) {
	s, err := New(config(view(t, fleet+records, healthy)))
	require.NoError(t, err)
	of := func(name string, qtype uint16, subnet ...byte) subject {
		m := new(wire.Msg)
		m.SetQuestion(name, qtype)
		if subnet != nil {
			m.SetEdns0(1232, false)
			m.IsEdns0().Option = []wire.EDNS0{&wire.EDNS0_LOCAL{Code: wire.EDNS0SUBNET, Data: subnet}}
		}
		packet, err := m.Pack()
		require.NoError(t, err)
		return s.begin(packet).subject()
	}
	require.Equal(t, subject{"edge.example.com.", wire.TypeA}, of("Edge.example.com.", wire.TypeA))
	require.Equal(t, of("a.edge.example.com.", wire.TypeA), of("b.c.edge.example.com.", wire.TypeTXT), "no such name")
	require.Equal(t, of("a.example.org.", wire.TypeA), of("example.com.", wire.TypeA), "not in the zone")
	require.Equal(t, subject{"*.dev.edge.example.com.", wire.TypeTXT}, of("a.dev.edge.example.com.", wire.TypeTXT))
	require.Equal(t, of("a.dev.edge.example.com.", wire.TypeTXT), of("b.dev.edge.example.com.", wire.TypeTXT))
	require.Zero(t, of("edge.example.com.", wire.TypeA, 0, 1, 24, 0, 203, 0, 113), "tailored")
	require.Zero(t, of("www.edge.example.com.", wire.TypeAAAA, 0, 1, 24, 0, 203, 0, 113), "tailored behind a CNAME")
	require.Zero(t, of("x.to.edge.example.com.", wire.TypeA, 0, 1, 24, 0, 203, 0, 113), "behind two, of which one is a wildcard's")
	require.Zero(t, of("eu-west.region.edge.example.com.", wire.TypeA, 0, 1, 24, 0, 203, 0, 113), "of one region")
	for _, name := range []string{"far-too", "lost", "direct", "status"} {
		require.NotZero(t, of(name+".edge.example.com.", wire.TypeA, 0, 1, 24, 0, 203, 0, 113), name)
	}
	require.NotZero(t, of("www.edge.example.com.", wire.TypeTXT, 0, 1, 24, 0, 203, 0, 113), "the same for all clients")
	require.NotZero(t, of("edge.example.com.", wire.TypeMX, 0, 1, 24, 0, 203, 0, 113), "the same for all clients")
	require.NotZero(t, of("edge.example.com.", wire.TypeA, 0, 1, 0, 0), "no subnet")
}

func TestDigOverTheRate(t *testing.T) {
	t.Parallel()
	c, seen := config(view(t, fleet, healthy)), &counts{}
	c.RateLimit, c.Observer = 1, seen
	s := serve(t, c)
	conn, err := net.Dial("udp", "127.0.0.1:"+s.port)
	require.NoError(t, err)
	defer conn.Close()
	require.Eventually(t, func() bool { // many queries within a second
		for range 10 {
			_, err := conn.Write(ask(t, "edge.example.com.", wire.TypeA))
			require.NoError(t, err)
		}
		return seen.of("dropped") > 0 && seen.of("slipped") > 0
	}, patience, time.Millisecond)
	for range 5 {
		require.Contains(t, dig(t, s, "+tcp", "edge.example.com", "A"), "192.0.2.1", "TCP is not rate-limited")
	}
	sent := &counts{}
	c.Observer = sent
	silent, err := New(c)
	require.NoError(t, err)
	garbage := func() []byte { return silent.answerUDP([]byte("garbage garbage"), netip.MustParseAddr("127.0.0.1"), 0) }
	for garbage() != nil { // until it exceeds the rate
	}
	for range 10 {
		require.Nil(t, garbage())
	}
	require.Zero(t, sent.of("slipped"), "only what is sent")
	require.Positive(t, sent.of("dropped"))
	slip := func(packet []byte) []byte { return s.begin(packet).slip() }
	m := new(wire.Msg)
	require.NoError(t, m.Unpack(slip(ask(t, "EDGE.example.com.", wire.TypeA))))
	require.True(t, m.Truncated && m.Response)
	require.Equal(t, "EDGE.example.com.", m.Question[0].Name)
	require.Nil(t, m.IsEdns0())
	require.NoError(t, m.Unpack(slip(ask(t, "x.edge.example.com.", wire.TypeA))))
	require.True(t, m.Truncated && m.Rcode == wire.RcodeSuccess && len(m.Ns) == 0, "a missing name is also answered over TCP")
	require.Nil(t, slip([]byte("garbage garbage")))

	m = new(wire.Msg)
	m.SetQuestion("edge.example.com.", wire.TypeA)
	m.SetEdns0(1400, true)
	query, err := m.Pack()
	require.NoError(t, err)
	require.NoError(t, m.Unpack(slip(query)))
	require.True(t, m.Truncated)
	require.EqualValues(t, 1232, m.IsEdns0().UDPSize())
}

// exchange sends messages over one connection and reads as many answers.
func exchange(t testing.TB, conn net.Conn, packets ...[]byte) []*wire.Msg {
	t.Helper()
	var out []byte
	for _, p := range packets {
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(p))), p...)
	}
	_, err := conn.Write(out)
	require.NoError(t, err)
	var answers []*wire.Msg
	for range packets {
		m, err := receive(conn)
		require.NoError(t, err)
		answers = append(answers, m)
	}
	return answers
}

func receive(conn net.Conn) (*wire.Msg, error) {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	packet := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, packet); err != nil {
		return nil, err
	}
	m := new(wire.Msg)
	return m, m.Unpack(packet)
}

func (s *server) dial(t testing.TB) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", "127.0.0.1:"+s.port)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestTCPConnections(t *testing.T) {
	t.Parallel()
	patient := timeouts{idle: time.Hour, io: time.Hour}
	s := serveWithin(t, config(view(t, fleet, healthy)), patient)
	good := ask(t, "edge.example.com.", wire.TypeA)
	closed := func(conn net.Conn) {
		t.Helper()
		_, err := receive(conn)
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it stays open")
	}

	conn := s.dial(t)
	for range 3 {
		for _, m := range exchange(t, conn, good, good, good) {
			require.Len(t, m.Answer, 1)
		}
	}
	require.NoError(t, conn.Close())
	// Bytes that cannot be a query end the connection.
	for _, bytes := range [][]byte{{0, 0}, {0, 5, 1, 2, 3, 4, 5}, {0xff, 0xff}, append([]byte{0, 12}, []byte("\x00\x01\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00")...)} {
		conn := s.dial(t)
		_, err := conn.Write(bytes)
		require.NoError(t, err)
		closed(conn)
	}
	// So does silence in the middle of a query, and between queries.
	limits := timeouts{idle: time.Hour, io: 50 * time.Millisecond}
	slow := serveWithin(t, config(view(t, fleet, healthy)), limits).dial(t)
	_, err := slow.Write([]byte{0, 40, 1})
	require.NoError(t, err)
	closed(slow)
	limits = timeouts{idle: 50 * time.Millisecond, io: time.Hour}
	closed(serveWithin(t, config(view(t, fleet, healthy)), limits).dial(t))
	require.Less(t, usualTimeouts.io, usualTimeouts.idle)

	// A connection has a limited number of queries.
	conn = s.dial(t)
	for range maxPerConnection {
		exchange(t, conn, good)
	}
	closed(conn)

	// One network cannot take all connections, but its silent ones keep no others of it out.
	first := s.dial(t)
	for range maxFromOne {
		s.dial(t)
	}
	require.Len(t, exchange(t, s.dial(t), good)[0].Answer, 1)
	closed(first)

	s.stop() // idle connections delay nothing
}

// Neither networks that hold all connections nor the silent ones of its own network keep a
// client out: a new connection replaces the one that has been without an answer for longest, of
// the networks with the most.
func TestConnectionsAreBounded(t *testing.T) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	defer l.Close()
	last := 0
	dial := func() *net.TCPConn {
		conn, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	c := newConnections()
	enter := func(conn *net.TCPConn, third byte) bool {
		last++
		return c.enter(conn, netip.AddrFrom4([4]byte{10, 0, third, byte(last)}), at(last))
	}
	single, first, oldest, second := dial(), dial(), dial(), dial()
	require.True(t, enter(single, 200))
	require.True(t, enter(first, 0))
	require.True(t, enter(oldest, 0))
	require.True(t, enter(second, 0))
	for i := 4; i < maxConnections; i++ {
		require.True(t, enter(new(net.TCPConn), byte((i-1)/maxFromOne)), i)
	}
	require.Len(t, c.open, maxConnections)
	require.True(t, enter(new(net.TCPConn), 0), "its own oldest makes room")
	require.Len(t, c.open, maxConnections)
	require.NotContains(t, c.open, first)
	require.ErrorIs(t, first.SetDeadline(time.Time{}), net.ErrClosed)

	c.answered(oldest, at(last))
	require.True(t, enter(new(net.TCPConn), 100))
	require.Len(t, c.open, maxConnections)
	require.Contains(t, c.open, single)
	require.Contains(t, c.open, oldest)
	require.NotContains(t, c.open, second)
	require.ErrorIs(t, second.SetDeadline(time.Time{}), net.ErrClosed)
	c.answered(second, at(last))
	c.leave(second) // as its goroutine does

	for conn := range c.open {
		c.leave(conn)
	}
	require.Empty(t, c.from)
	require.Empty(t, c.open)
	c.stop()
	require.False(t, enter(new(net.TCPConn), 1))
}

// A query received before the end is answered.
func TestStopAnswersWhatCame(t *testing.T) {
	t.Parallel()
	came, release := make(chan struct{}, 8), make(chan struct{})
	v := view(t, fleet, healthy)
	c := config(v)
	c.View = func() *region.View {
		came <- struct{}{}
		<-release
		return v
	}
	s := serve(t, c)
	good := ask(t, "edge.example.com.", wire.TypeA)
	tcp := s.dial(t)
	_, err := tcp.Write(append([]byte{0, byte(len(good))}, good...))
	require.NoError(t, err)
	udp, err := net.Dial("udp", "127.0.0.1:"+s.port)
	require.NoError(t, err)
	defer udp.Close()
	_, err = udp.Write(good)
	require.NoError(t, err)
	<-came
	<-came
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+s.port)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, patience, time.Millisecond, "no longer listening")
	close(release)
	m, err := receive(tcp)
	require.NoError(t, err)
	require.Len(t, m.Answer, 1)
	require.NoError(t, udp.SetReadDeadline(time.Now().Add(patience)))
	n, err := udp.Read(make([]byte, 2000))
	require.NoError(t, err)
	require.Positive(t, n)
	<-stopped
}

func TestServeReportsASocketThatFails(t *testing.T) {
	s, err := New(config(view(t, fleet, healthy)))
	require.NoError(t, err)
	require.NoError(t, s.Listen("127.0.0.1:0"))
	require.NoError(t, s.tcp[0].Close())
	require.ErrorContains(t, s.Serve(t.Context()), "serve DNS: accept tcp")
}

func TestAnswerAllocates(t *testing.T) {
	s, err := New(config(view(t, fleet, healthy)))
	require.NoError(t, err)
	m := new(wire.Msg)
	m.SetQuestion("edge.example.com.", wire.TypeA)
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = append(m.IsEdns0().Option, &wire.EDNS0_SUBNET{Code: wire.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: net.IPv4(203, 0, 113, 0)})
	packet, err := m.Pack()
	require.NoError(t, err)
	from := netip.MustParseAddr("127.0.0.1")
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { s.answer(packet, from, true) }), 45.0)
	// Queries over the rate cost almost nothing.
	s.limiter = newLimiter(1)
	for range total {
		_ = s.answerUDP(packet, from, 0)
	}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { s.answerUDP(packet, from, 0) }), 10.0)
}

func BenchmarkAnswer(b *testing.B) {
	for _, pops := range []int{5, 256} {
		b.Run(fmt.Sprint(pops), func(b *testing.B) {
			s, err := New(config(view(b, many(pops), healthy)))
			require.NoError(b, err)
			packet, from := ask(b, "edge.example.com.", wire.TypeA), netip.MustParseAddr("127.0.0.1")
			b.ReportAllocs()
			for b.Loop() {
				s.answer(packet, from, true)
			}
		})
	}
}
