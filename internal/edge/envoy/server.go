// Package envoy holds what the gRPC services for Envoy share: a listener with health,
// reflection and drain, pooled calls, and the parts of an answer that describe a decision.
package envoy

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Bounds of the listener. A gateway needs one or two connections per thread.
const (
	maxConnections = 4096
	maxStreams     = 1024     // of a connection
	maxWatches     = 1024     // streams of all connections that are not calls: health, reflection
	maxHeaders     = 16 << 10 // bytes
	handshake      = 10 * time.Second
	// callTime is how long a call may last. Without it, one whose message never comes would
	// hold a goroutine for as long as its connection lives.
	callTime       = 10 * time.Second
	healthInterval = 200 * time.Millisecond
	// workers are goroutines that serve calls one after another, so that each stack grows
	// once instead of with every call. When all are busy, a call gets its own goroutine.
	workers         = 256
	certifiedMaxAge = 30 * time.Minute
)

// Service is what a Server serves. Its handlers answer with a Call, or with an error.
type Service interface {
	Name() string
	Register(grpc.ServiceRegistrar)
}

// Server is the listener for the services: gRPC with health, reflection and drain.
type Server struct {
	config Config
	grpc   *grpc.Server
	health *health.Server
	open   atomic.Int64
	calls  []string // what the methods of the services begin with
	// watches counts the open streams that are not calls.
	watches atomic.Int64
}

// Config lists the services and their permitted callers.
type Config struct {
	Services   []Service
	MaxMessage int         // bytes of a request
	TLS        *tls.Config // nil: none
	// Certified says that callers must present a certificate. Their connections are
	// renewed, because a certificate may expire while one is open.
	Certified bool
	From      []netip.Prefix // networks; nil: any
	Refused   func()         // called with each connection that is refused
	Ready     func() bool    // what the health service reports

	handshake, callTime time.Duration // 0: the usual ones
}

// NewServer returns a server that has not begun.
func NewServer(c Config) *Server {
	c.handshake, c.callTime = cmp.Or(c.handshake, handshake), cmp.Or(c.callTime, callTime)
	alive := keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}
	if c.Certified {
		alive.MaxConnectionAge, alive.MaxConnectionAgeGrace = certifiedMaxAge, handshake
	}
	v := &Server{config: c, health: health.NewServer()}
	for _, s := range c.Services {
		v.calls = append(v.calls, "/"+s.Name()+"/")
	}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(NewCodec()),
		grpc.MaxRecvMsgSize(c.MaxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(c.handshake), grpc.InTapHandle(v.bound), grpc.KeepaliveParams(alive), grpc.NumStreamWorkers(workers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if c.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(c.TLS)))
	}
	v.grpc = grpc.NewServer(options...)
	for _, s := range c.Services {
		s.Register(v.grpc)
	}
	v.setHealth()
	healthpb.RegisterHealthServer(v.grpc, v.health)
	reflection.Register(v.grpc)
	return v
}

// bound limits how long a call lasts, and how many other streams are open, before anything
// of a stream is served.
func (v *Server) bound(ctx context.Context, stream *tap.Info) (context.Context, error) {
	for _, prefix := range v.calls {
		if strings.HasPrefix(stream.FullMethodName, prefix) {
			bounded, cancel := context.WithTimeout(ctx, v.config.callTime)
			_ = cancel // the end of the stream cancels ctx, and so releases the timer
			return bounded, nil
		}
	}
	if v.watches.Add(1) > maxWatches {
		v.watches.Add(-1)
		return nil, status.Error(codes.ResourceExhausted, "too many streams watch health or use reflection; close some")
	}
	context.AfterFunc(ctx, func() { v.watches.Add(-1) })
	return ctx, nil
}

// Serve accepts connections until Drain.
func (v *Server) Serve(ln net.Listener) error {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { v.watch(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	return v.grpc.Serve(&listener{ln, v})
}

// watch updates what the health service reports.
func (v *Server) watch(ctx context.Context) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		v.setHealth()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (v *Server) setHealth() {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if v.config.Ready() {
		state = healthpb.HealthCheckResponse_SERVING
	}
	v.health.SetServingStatus("", state)
	for _, s := range v.config.Services {
		v.health.SetServingStatus(s.Name(), state)
	}
}

// Leave tells clients that watch the health service to go elsewhere. Calls are still
// answered.
func (v *Server) Leave() { v.health.Shutdown() }

// Drain stops accepting, lets calls finish, and cuts off those that have not when ctx ends.
// It reports whether all finished.
func (v *Server) Drain(ctx context.Context) bool {
	v.Leave()
	done := make(chan struct{})
	go func() { v.grpc.GracefulStop(); close(done) }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		v.grpc.Stop()
		<-done
		return false
	}
}

// listener closes connections from other networks, and those beyond maxConnections.
type listener struct {
	net.Listener
	server *Server
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	v := l.server
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if v.open.Add(1) <= maxConnections && v.admits(addrOf(c.RemoteAddr())) {
			return &conn{Conn: c, open: &v.open}, nil
		}
		v.open.Add(-1)
		v.config.Refused()
		_ = c.Close()
	}
}

func (v *Server) admits(a netip.Addr) bool {
	for _, p := range v.config.From {
		if p.Contains(a) {
			return true
		}
	}
	return v.config.From == nil
}

// conn counts itself until it is closed.
type conn struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

// Close implements net.Conn.
func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

// Peer returns the address of a call's other end.
func Peer(ctx context.Context) netip.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		return addrOf(p.Addr)
	}
	return netip.Addr{}
}

func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		addr, _ := netip.AddrFromSlice(t.IP)
		return addr.Unmap()
	}
	return netip.Addr{}
}
