// Package edge is the inside of the edge node: it joins rules, stores and
// upstreams behind an HTTP listener. handler.go is the request path, store.go the
// layers that decide.
package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/shedder"
)

// Edge is one node.
type Edge struct {
	config       *Config
	log          *slog.Logger
	builtinRules string // of -dev; else they come from the configured file

	metrics  *metrics
	store    limiter.TakeReturner
	local    *memory.Store
	shared   *redisstore.Store // nil without Redis
	fallback *limiter.Fallback // nil without Redis
	groups   []*group          // of upstreams
	routes   routes
	running  atomic.Pointer[ruleset] // nil until there are rules
	shedding atomic.Pointer[shedSettings]
	requests sync.Pool

	ruleFile     ruleFile
	state        atomic.Pointer[ruleState]
	stateChanged chan struct{} // holds one signal

	keeper      *shedKeeper
	sampler     *shedder.Sampler
	shedLog     sampler
	shedderMeta atomic.Pointer[map[string]string]
	shedLevel   atomic.Int64 // the highest of all groups as registered, in tenths

	nodes atomic.Int64 // that share the store

	// Unless Consul is followed, these are nil.
	consul       *region.Consul
	follower     *follower
	consulState  *condition
	cacheState   *condition
	registration *condition // nil, too, if the node does not register

	certificate                  *certificate // nil without TLS
	rulesFault, certificateFault string       // last logged
	upstreamLog                  sampler

	draining atomic.Bool
	ctx      context.Context // ends with the node
	stop     context.CancelFunc
	returns  sync.WaitGroup // of concurrency slots
}

// New builds a node from its configuration. builtinRules, if not empty, are used in
// place of a rule file. The rules in a file must be good, for a node without any would
// let everything pass; a Redis or Consul that is away is no reason not to start.
func New(c *Config, builtinRules string, log *slog.Logger) (*Edge, error) {
	e := &Edge{config: c, log: log.With("node", c.Node.ID), builtinRules: builtinRules}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.requests.New = func() any { return &request{} }
	e.metrics = newMetrics(e.rulesAge)
	e.metrics.registry.MustRegister(shedCollector{e})
	e.sampler = shedder.NewSampler(nil)
	e.state.Store(&ruleState{stale: true})
	e.stateChanged = make(chan struct{}, 1)
	e.setNodes(c.Store.nodes())
	load := func() error { return e.loadRules(true) }
	if c.followsConsul() && builtinRules == "" {
		load = e.openConsul
	}
	if err := load(); err != nil {
		return nil, err
	}
	if c.Listen.TLS != nil {
		var err error
		if e.certificate, err = newCertificate(*c.Listen.TLS); err != nil {
			return nil, err
		}
		e.metrics.expiring(e.certificate)
	}
	if err := e.openUpstreams(); err != nil {
		return nil, err
	}
	err := e.openShedder()
	if err == nil {
		err = e.openStore()
	}
	if err != nil {
		e.closeUpstreams()
		return nil, err
	}
	return e, nil
}

// Run serves until ctx ends, then drains: readyz fails, the listener closes after
// shutdown.delay, and requests in flight have shutdown.timeout to finish. ready,
// which may be nil, is called once both listeners accept. A signal on reload reads
// rules and certificate again at once.
func (e *Edge) Run(ctx context.Context, reload <-chan os.Signal, ready func(public, admin net.Addr)) error {
	defer e.close()
	public, err := net.Listen("tcp", e.config.Listen.Public)
	if err != nil {
		return fmt.Errorf("listen.public: %w", err)
	}
	admin, err := net.Listen("tcp", e.config.Listen.Admin)
	if err != nil {
		public.Close()
		return fmt.Errorf("listen.admin: %w", err)
	}
	server, adminServer := e.publicServer(), e.adminServer()

	failed := make(chan error, 2)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		ln := public
		if e.certificate != nil {
			ln = tls.NewListener(public, e.certificate.config())
		}
		failed <- server.Serve(proxy.Listen(ln))
	})
	wg.Go(func() {
		if err := adminServer.Serve(admin); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})
	// e.ctx goes on: slots of the last requests are returned under it.
	watching, stopWatching := context.WithCancel(e.ctx)
	defer stopWatching()
	wg.Go(func() { e.watchFiles(watching, reload) })
	wg.Go(func() { e.keeper.run(watching) })
	wg.Go(func() { e.sample(watching) })
	registered, deregister := context.WithCancel(watching)
	defer deregister()
	if e.consul != nil {
		e.followConsul(&wg, watching, registered, public.Addr(), admin.Addr())
	}

	e.log.Info("serving", "public", public.Addr().String(), "admin", admin.Addr().String(), "store", e.config.Store.Kind)
	if ready != nil {
		ready(public.Addr(), admin.Addr())
	}
	select {
	case err = <-failed:
		err = fmt.Errorf("listener failed: %w", err)
	case <-ctx.Done():
	}
	deregister() // beside the drain, which takes longer
	e.drain(server)
	// A server that is shut down before its Serve has begun does not know of it.
	_ = public.Close()
	stopAdmin, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if adminServer.Shutdown(stopAdmin) != nil {
		_ = adminServer.Close()
	}
	return err
}

// drain stops taking requests and lets those in flight finish.
func (e *Edge) drain(server *fasthttp.Server) {
	e.draining.Store(true)
	e.log.Info("draining", "delay", e.config.Shutdown.Delay.String(), "timeout", e.config.Shutdown.Timeout.String())
	time.Sleep(e.config.Shutdown.Delay)
	ctx, cancel := context.WithTimeout(context.Background(), e.config.Shutdown.Timeout)
	defer cancel()
	if err := server.ShutdownWithContext(ctx); err != nil {
		e.log.Warn("requests cut off", "error", err)
		return
	}
	e.log.Info("drained")
}

func (e *Edge) close() {
	done := make(chan struct{})
	go func() { e.returns.Wait(); close(done) }()
	select { // the slots of the last requests; bounded, and they expire anyway
	case <-done:
	case <-time.After(4 * e.config.Store.Timeout):
	}
	e.stop()
	<-done
	e.closeUpstreams()
	if e.shared != nil {
		e.fallback.Close()
		_ = e.shared.Close()
	}
	if e.consul != nil {
		e.consul.Close()
	}
}

func (e *Edge) publicServer() *fasthttp.Server {
	s := &e.config.Server
	return &fasthttp.Server{
		Handler:                      e.serve,
		ErrorHandler:                 unreadable,
		Name:                         "weir",
		NoDefaultServerHeader:        true,
		Concurrency:                  s.MaxConnections,
		ReadBufferSize:               s.MaxHeaderBytes,
		ReadTimeout:                  s.ReadTimeout,
		WriteTimeout:                 s.WriteTimeout,
		IdleTimeout:                  s.IdleTimeout,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		SecureErrorLogMessage:        true,
		Logger:                       quiet{},
	}
}

// unreadable answers what could not be parsed; the connection closes after it.
func unreadable(ctx *fasthttp.RequestCtx, err error) {
	status, title := fasthttp.StatusBadRequest, "the request could not be parsed"
	var small *fasthttp.ErrSmallBuffer
	var netErr net.Error
	switch {
	case errors.As(err, &small):
		status, title = fasthttp.StatusRequestHeaderFieldsTooLarge, "the request's header is too large"
	case errors.As(err, &netErr) && netErr.Timeout():
		status, title = fasthttp.StatusRequestTimeout, "the request did not arrive in time"
	}
	ctx.Response.Reset()
	ctx.SetStatusCode(status)
	ctx.Response.Header.SetContentTypeBytes(problemJSON)
	fmt.Fprintf(ctx, `{"type":"about:blank","title":%q,"status":%d}`, title, status)
}

// quiet drops what fasthttp would print about every client that hangs up.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

func (e *Edge) adminServer() *http.Server {
	return &http.Server{
		Handler:           e.adminHandler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
}

// jittered spreads the clients of an outage, so that they do not return as one.
func (e *Edge) jittered() time.Duration {
	return time.Second + rand.N(4*time.Second)
}
