package rls

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// Bounds of the listener. A gateway needs a connection or two for each of its threads.
const (
	maxConnections  = 4096
	maxStreams      = 1024     // of a connection
	maxMessage      = 64 << 10 // bytes
	maxHeaders      = 16 << 10 // bytes
	handshake       = 10 * time.Second
	healthInterval  = 200 * time.Millisecond
	certifiedMaxAge = 30 * time.Minute
)

// Server is the listener's side of a Service: gRPC with health, reflection and drain.
type Server struct {
	grpc    *grpc.Server
	health  *health.Server
	ready   func() bool
	allowed []netip.Prefix
	refused func()
	open    atomic.Int64
}

// ServerConfig says who may call.
type ServerConfig struct {
	TLS *tls.Config // nil: none
	// Certified says that callers must show a certificate. Their connections are renewed,
	// because a certificate may end while one is open.
	Certified bool
	From      []netip.Prefix // networks; nil: any
	Refused   func()         // called with each connection that is refused
	Ready     func() bool    // what the health service reports
}

// NewServer returns a server that has not begun.
func NewServer(s *Service, c ServerConfig) *Server {
	alive := keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}
	if c.Certified {
		alive.MaxConnectionAge, alive.MaxConnectionAgeGrace = certifiedMaxAge, handshake
	}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(handshake), grpc.KeepaliveParams(alive),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if c.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(c.TLS)))
	}
	v := &Server{grpc: grpc.NewServer(options...), health: health.NewServer(), ready: c.Ready, allowed: c.From, refused: c.Refused}
	v.grpc.RegisterService(&method, s)
	v.setHealth()
	healthpb.RegisterHealthServer(v.grpc, v.health)
	reflection.Register(v.grpc)
	return v
}

// Serve accepts connections until Drain.
func (v *Server) Serve(ln net.Listener) error {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { v.watch(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	return v.grpc.Serve(&listener{ln, v})
}

// watch keeps what the health service reports.
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
	if v.ready() {
		state = healthpb.HealthCheckResponse_SERVING
	}
	v.health.SetServingStatus("", state)
	v.health.SetServingStatus(method.ServiceName, state)
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

// listener drops connections from elsewhere, and those beyond the bound.
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
		v.refused()
		_ = c.Close()
	}
}

func (v *Server) admits(a netip.Addr) bool {
	for _, p := range v.allowed {
		if p.Contains(a) {
			return true
		}
	}
	return v.allowed == nil
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
