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
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/weir-edge/weir/internal/edge/frames"
	"github.com/weir-edge/weir/internal/edge/handshake"
)

// Bounds of the listener. A gateway needs one or two connections per thread.
const (
	maxConnections = 4096
	maxStreams     = 1024     // of a connection
	maxWatches     = 1024     // streams of all connections that ask for health, or a method that does not exist
	maxReflections = 16       // streams of all connections that use reflection, whose answers are large
	maxHeaders     = 16 << 10 // bytes
	// handshakeTime is for the beginning of HTTP/2, after the handshake of TLS.
	handshakeTime = 10 * time.Second
	// callTime is how long a call may last. Without it, one whose message never comes would
	// hold a goroutine for as long as its connection lives.
	callTime = 10 * time.Second
	// writeTime is how long a write may wait for the caller to read, and maxAhead is how many bytes
	// are read from the caller meanwhile. gRPC would keep up to 10,000 streams that the caller has
	// reset, and window updates without a bound.
	writeTime      = 10 * time.Second
	maxAhead       = 64 << 10
	healthInterval = 200 * time.Millisecond
	// Flow control: how much of a stream or connection may arrive before gRPC says that it was
	// read. gRPC would otherwise enlarge both up to 16 MiB, and send PINGs to find by how much.
	leastWindow = 64 << 10
	connWindow  = 1 << 20
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
	calls  []string // what the methods of the services begin with
	// watches and reflections count the open streams that are not calls.
	watches, reflections atomic.Int64

	mu    sync.Mutex
	conns map[*conn]struct{}
	ticks atomic.Int64 // how often watch has ticked; never 0

	metering sync.Mutex
	meters   map[*meter]struct{} // guarded by metering
	held     atomic.Int64        // bytes, by all of them
}

// Config lists the services and their permitted callers.
type Config struct {
	Services   []Service
	MaxMessage int         // bytes of a request
	TLS        *tls.Config // nil: none
	// Certified says that callers must present a certificate. Their connections are
	// renewed, because a certificate may expire while one is open.
	Certified bool
	From      []netip.Prefix         // networks; nil: any
	Refused   func(Refusal)          // called for each connection that is closed because of a bound
	Ready     func() bool            // what the health service reports
	Failed    func(handshake.Reason) // called after each handshake that fails; may be nil

	handshake, callTime, writeTime time.Duration // 0: the usual ones
	maxHeld                        int64         // likewise
	extra                          frames.Budget // likewise
}

// NewServer returns a server that has not begun.
func NewServer(c Config) *Server {
	c.handshake, c.callTime, c.writeTime = cmp.Or(c.handshake, handshakeTime), cmp.Or(c.callTime, callTime), cmp.Or(c.writeTime, writeTime)
	c.maxHeld, c.extra = cmp.Or(c.maxHeld, maxHeld), cmp.Or(c.extra, extraFrames)
	alive := keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}
	if c.Certified {
		alive.MaxConnectionAge, alive.MaxConnectionAgeGrace = certifiedMaxAge, handshakeTime
	}
	v := &Server{config: c, health: health.NewServer(), conns: map[*conn]struct{}{}, meters: map[*meter]struct{}{}}
	v.ticks.Store(1)
	for _, s := range c.Services {
		v.calls = append(v.calls, "/"+s.Name()+"/")
	}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(NewCodec()),
		grpc.MaxRecvMsgSize(c.MaxMessage), grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(c.handshake), grpc.InTapHandle(v.bound), grpc.KeepaliveParams(alive), grpc.NumStreamWorkers(workers),
		grpc.StaticStreamWindowSize(int32(max(leastWindow, c.MaxMessage))), grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	v.grpc = grpc.NewServer(options...)
	for _, s := range c.Services {
		s.Register(v.grpc)
	}
	v.setHealth()
	healthpb.RegisterHealthServer(v.grpc, v.health)
	registerReflection(v.grpc)
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
	open, most, what := &v.watches, int64(maxWatches), "watch health"
	if strings.HasPrefix(stream.FullMethodName, "/grpc.reflection.") {
		open, most, what = &v.reflections, maxReflections, "use reflection"
	}
	if open.Add(1) > most {
		open.Add(-1)
		return nil, status.Errorf(codes.ResourceExhausted, "too many streams %s; close some", what)
	}
	context.AfterFunc(ctx, func() { open.Add(-1) })
	return ctx, nil
}

// Serve accepts connections until Drain.
func (v *Server) Serve(ln net.Listener) error {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { v.watch(ctx); close(ended) }()
	defer func() { stop(); <-ended }()
	return v.grpc.Serve(metered{handshake.Listen(&listener{ln, v}, v.bounds()), v})
}

// bounds are those of the connections. A handshake fails without a certificate where callers
// must present one.
func (v *Server) bounds() handshake.Config {
	c := handshake.Config{
		TLS: v.config.TLS, From: v.config.From, Callers: maxConnections,
		Refused: func(why handshake.Refusal) { v.config.Refused(refusals[why]) }, Failed: v.config.Failed,
	}
	if v.config.Certified {
		c.Identify = func(netip.Addr, *tls.ConnectionState) (func(), bool) { return nil, true }
	}
	return c
}

// watch updates what the health service reports, and closes connections that cannot be written.
func (v *Server) watch(ctx context.Context) {
	tick := time.NewTicker(healthInterval)
	defer tick.Stop()
	for {
		v.setHealth()
		v.closeUnread()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			v.ticks.Add(1)
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
