// Package dns answers for one zone with the nearest healthy PoP.
//
// It is authoritative only: it queries no other server, keeps no cache and delegates no
// zone. Its memory and goroutines are bounded, whatever it receives.
package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/miekg/dns"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region"
)

// Config configures a Server.
type Config struct {
	// View returns the known state of the fleet. It is called for each query.
	View func() *region.View
	// Zone is the zone to answer for; empty: the topology's.
	Zone string
	// NS are the zone's name servers, including this one.
	NS []NameServer
	// Hostmaster is the mail address in the SOA; empty: hostmaster@ the zone.
	Hostmaster string
	// TTL is how long an answer may be cached; 0: 20 s.
	TTL time.Duration
	// MaxUDP is the longest answer over UDP, in bytes; 0: 1232, which no network
	// fragments.
	MaxUDP int
	// RateLimit is how many times per second the clients of one /24 or /56 get one answer
	// over UDP; for all answers together, and those for client subnets, it is ten times
	// that. Every second answer over the limit tells the client to retry over TCP. 0: no
	// limit.
	RateLimit int
	Observer  Observer // may be nil
	// Proof returns what proves to the router that queries for name that this router's facts are
	// fresh, or "" if nothing does.
	Proof func(name string) string // may be nil
	// Yields reports whether resolvers should ask another router for the nearest PoP.
	Yields func() bool // may be nil
}

// NameServer is a name server of the zone.
type NameServer struct {
	Host  string
	Addrs []netip.Addr // if Host is in the zone
}

// Observer counts queries and moves. Many goroutines call it, so it must not block.
type Observer interface {
	// Query reports each query by the kind of its answer, one of a dozen words.
	Query(answer string)
	// Moved reports that a client network is sent to a different PoP than the last time.
	Moved()
}

func (c *Config) ttl() uint32 { return uint32(c.TTL / time.Second) }

// mailbox returns the hostmaster as a domain name.
func (c *Config) mailbox(zone string) string {
	user, host, _ := strings.Cut(cmp.Or(c.Hostmaster, "hostmaster@"+zone), "@")
	return strings.ReplaceAll(user, ".", `\.`) + "." + host + "."
}

// Server answers queries. Make one with New.
type Server struct {
	config  Config
	zone    atomic.Pointer[zone]
	limiter *limiter
	moves   *moves
	seed    uint64 // of the order of addresses
	started time.Time

	timeouts timeouts // of TCP

	udp []*net.UDPConn
	tcp []*net.TCPListener
}

// New returns a server that is not listening yet. Its error names every fault.
func New(c Config) (*Server, error) {
	var faults field.Errors
	add := faults.Add
	if c.View == nil {
		add("view", "must be set")
	}
	c.TTL, c.MaxUDP = cmp.Or(c.TTL, 20*time.Second), cmp.Or(c.MaxUDP, 1232)
	if c.TTL < time.Second || c.TTL > time.Hour || c.TTL%time.Second != 0 {
		add("ttl", "must be whole seconds between 1s and 1h (got %s)", c.TTL)
	}
	if c.MaxUDP < plainUDP || c.MaxUDP > 4096 {
		add("max_udp", "must be between %d and 4096 (got %d)", plainUDP, c.MaxUDP)
	}
	if c.RateLimit < 0 || c.RateLimit > 1_000_000 {
		add("rate_limit", "must be between 0 and 1000000 (got %d)", c.RateLimit)
	}
	c.Zone = strings.TrimSuffix(strings.ToLower(c.Zone), ".")
	if user, host, ok := strings.Cut(c.Hostmaster, "@"); c.Hostmaster != "" {
		_, name := wire.IsDomainName(c.mailbox(""))
		if !ok || user == "" || host == "" || !name {
			add("hostmaster", "must be a mail address (got %q)", c.Hostmaster)
		}
	}
	moved := &moves{seed: maphash.MakeSeed(), last: make([]atomic.Uint64, remembered)}
	s := &Server{config: c, limiter: newLimiter(c.RateLimit), moves: moved, seed: rand.Uint64(), started: time.Now(), timeouts: usualTimeouts}
	if faults = append(faults, c.checkZone(c.Zone)...); faults != nil {
		return nil, faults
	}
	return s, nil
}

// Listen binds addr, a host:port, for UDP and TCP. Port 0 picks one that is free for
// both. Several addresses may be bound before Serve.
func (s *Server) Listen(addr string) error {
	var err error
	for range 10 { // a port that is free for one may be taken for the other
		var udp *net.UDPConn
		var tcp *net.TCPListener
		if udp, tcp, err = listen(addr); err == nil {
			s.udp, s.tcp = append(s.udp, udp), append(s.tcp, tcp)
			return nil
		}
		if !strings.HasSuffix(addr, ":0") {
			break
		}
	}
	return fmt.Errorf("listen for DNS: %w", err)
}

func listen(addr string) (*net.UDPConn, *net.TCPListener, error) {
	at, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, nil, err
	}
	udp, err := net.ListenUDP("udp", at)
	if err != nil {
		return nil, nil, err
	}
	bound := udp.LocalAddr().(*net.UDPAddr)
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: at.IP, Port: bound.Port, Zone: at.Zone})
	if err == nil {
		err = askForDestination(udp, at.IP)
	}
	if err != nil {
		_ = udp.Close() // nothing was sent
		if tcp != nil {
			_ = tcp.Close()
		}
		return nil, nil, err
	}
	return udp, tcp, nil
}

// Addrs returns the bound addresses.
func (s *Server) Addrs() []netip.AddrPort {
	addrs := make([]netip.AddrPort, len(s.udp))
	for i, conn := range s.udp {
		addrs[i] = conn.LocalAddr().(*net.UDPAddr).AddrPort()
	}
	return addrs
}

// Serve answers until ctx ends, then closes what Listen bound, sends the answers in
// progress, and returns nil. It returns early only if a socket fails.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	run := func(serve func() error) {
		all.Go(func() {
			if err := serve(); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("serve DNS: %w", err))
			}
		})
	}
	conns := newConnections()
	for i := range s.udp {
		// Each goroutine answers where it reads: a flood waits in the socket's buffer,
		// not in goroutines.
		for range max(2, runtime.GOMAXPROCS(0)) {
			run(func() error { return s.serveUDP(ctx, s.udp[i]) })
		}
		run(func() error { return s.serveTCP(ctx, s.tcp[i], conns) })
	}
	<-ctx.Done()
	for i := range s.udp {
		_ = s.udp[i].SetReadDeadline(time.Now()) // wakes the readers; answers may still be written
		_ = s.tcp[i].Close()
	}
	conns.stop()
	all.Wait()
	for i := range s.udp {
		_ = s.udp[i].Close()
	}
	s.udp, s.tcp = nil, nil
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func (s *Server) observe(kind string) {
	if s.config.Observer != nil && kind != "" {
		s.config.Observer.Query(kind)
	}
}
