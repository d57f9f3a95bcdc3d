// Package edge is the edge node: it joins rules, stores and upstreams behind an HTTP
// listener. handler.go is the request path, store.go the layers that decide.
package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/accesslog"
	"github.com/weir-edge/weir/internal/edge/across"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/h2"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/edge/recent"
	"github.com/weir-edge/weir/pkg/limiter/tally"
)

// Edge is one node.
type Edge struct {
	config  *config.Config
	log     *slog.Logger
	metrics *metrics

	storage
	*upstreams
	registrar
	rules   *ruleKeeper
	keeper  *shedKeeper
	conduct *conductKeeper // nil without a policy
	load    *loadKeeper
	listed  *networkKeeper // nil without Consul
	decider decide.Decider
	files   watchedFiles
	secret  shedSecret
	rls     rlsServer        // set by Run
	spoe    spoeServer       // likewise
	peers   *peers           // nil without listen.peer
	across  *across.Exchange // likewise
	tallies *tally.Store     // of across
	http2   *h2.Server
	public  *fasthttp.Server

	clients              clientConns
	requests             sync.Pool
	shedLog, upstreamLog sampler
	access               *accesslog.Log // nil without one
	recent               *recent.Ring   // likewise

	draining atomic.Bool
	ctx      context.Context // ends with the node
	stop     context.CancelFunc
	returns  sync.WaitGroup // of concurrency slots
}

// New builds a node from its configuration. builtinRules, if not empty, are used in
// place of a rule file. The rules in a file must be good, because a node without any
// would let everything pass; an unreachable Redis or Consul does not keep it from
// starting.
func New(c *config.Config, builtinRules string, log *slog.Logger) (*Edge, error) {
	e := &Edge{config: c, log: log.With("node", c.Node.ID)}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.requests.New = func() any { r := &request{}; r.Fields = r; return r }
	e.stateChanged = make(chan struct{}, 1)
	e.rules = newRuleKeeper(e.log, e.changed)
	e.rules.file.builtin, e.rules.file.path = builtinRules, c.Rules.File
	e.metrics = newMetrics(e.rules.age)
	e.rules.metrics, e.rules.alone = e.metrics, c.Listen.Peer == nil
	e.setNodes(c.Store.NodeCount())
	var err error
	if c.FollowsConsul() && builtinRules == "" {
		err = e.openConsul()
	} else {
		err = e.rules.load(true)
	}
	if err != nil {
		return nil, err
	}
	if e.files.Certificates, err = c.Listen.Certificates(); err != nil {
		return nil, err
	}
	e.metrics.registry.MustRegister(certificateMetrics{e.files.Certificates})
	for _, w := range c.Warnings() {
		e.log.Warn("the configuration works, but", "warning", w)
	}
	e.clients = clientConns{
		config: &c.Server, balancers: c.Listen.Balancers, exempt: e.decider.Trusts,
		log: e.log, refused: e.metrics.connectionsRefused, open: map[netip.Prefix]int{},
	}
	if e.upstreams, err = newUpstreams(c, upstreamWatch{metrics: e.metrics, log: e.log}); err != nil {
		return nil, err
	}
	e.metrics.registry.MustRegister(shedCollector{e.upstreams}, healthCollector{e.upstreams}, experimentMetrics{e.rules.running.Load})
	e.metrics.upgraded(e.tunnels)
	e.keeper = &shedKeeper{config: c, log: e.log, metrics: e.metrics, upstreams: e.upstreams, changed: e.changed}
	followed := e.consul
	if c.Shedder.Source != config.FromConsul {
		followed = nil
	}
	e.decider = decide.Decider{
		Log: e.log, Trusted: c.Trusted, TierHeader: c.TierHeader, Strict: c.Server.Paths == config.PathsStrict,
		Rules: e.rules.rules, Shedding: e.keeper.shedding, Routes: e.routes, Shedders: e.shedders(), Secret: e.secret.active.Load, Shed: e.shed,
	}
	e.public = e.publicServer()
	if err = e.openHTTP2(e.public); err == nil {
		err = e.keeper.open(followed)
	}
	if err == nil {
		err = e.openSecret()
	}
	if err == nil {
		err = e.openConduct()
	}
	if err == nil {
		e.openNetworks()
		err = e.openStore()
	}
	if err == nil {
		e.openUnderLoad()
		err = e.openAccessLog()
	}
	if err == nil {
		err = e.openRecent()
	}
	if err == nil {
		err = e.openPeers()
	}
	if err == nil {
		e.openAcross()
	}
	if err != nil {
		e.upstreams.close()
		return nil, err
	}
	return e, nil
}

// Run serves until ctx ends, then drains: readyz fails, the listener closes after
// shutdown.delay, and requests in flight have shutdown.timeout to finish. ready,
// which may be nil, is called once both listeners accept. A signal on reload reloads
// rules and certificate at once.
func (e *Edge) Run(ctx context.Context, reload <-chan os.Signal, ready func(public, admin net.Addr)) error {
	defer e.close()
	unlock, err := e.config.LockCaches()
	if err != nil {
		return err
	}
	defer unlock()
	public, err := net.Listen("tcp", e.config.Listen.Public)
	if err != nil {
		return fmt.Errorf("listen.public: %w", err)
	}
	admin, err := net.Listen("tcp", e.config.Listen.Admin)
	if err != nil {
		public.Close()
		return fmt.Errorf("listen.admin: %w", err)
	}
	asked, err := e.openGateways()
	if err != nil {
		public.Close()
		admin.Close()
		return err
	}
	if e.rls, err = e.openRLS(); err == nil {
		err = e.peers.listen(e.config)
	}
	if err == nil {
		e.spoe, err = e.openSPOE()
	}
	if err != nil {
		public.Close()
		admin.Close()
		return err
	}
	e.awaitStore(ctx)
	server, adminServer := e.public, e.adminServer()

	failed := make(chan error, 6)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if err := e.rls.serve(); err != nil {
			failed <- err
		}
	})
	wg.Go(func() {
		if err := e.spoe.serve(); err != nil {
			failed <- err
		}
	})
	wg.Go(func() {
		if err := e.peers.serve(); err != nil {
			failed <- err
		}
	})
	wg.Go(func() {
		failed <- server.Serve(e.listenHTTP(clientListener{public, &e.clients}))
	})
	wg.Go(func() {
		if err := adminServer.Serve(e.listenAdmin(admin)); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})
	if asked != nil {
		wg.Go(func() { failed <- asked.serve(e) })
	}
	// e.ctx stays active: the last requests' slots are returned under it.
	watching, stopWatching := context.WithCancel(e.ctx)
	defer stopWatching()
	wg.Go(func() { e.watchFiles(watching, reload) })
	wg.Go(func() { e.keeper.run(watching) })
	if e.conduct != nil && e.conduct.follower != nil {
		wg.Go(func() { e.conduct.follower.Run(watching, nil, e.conduct.settle) })
	}
	if e.conduct != nil && e.shared != nil {
		wg.Go(func() { e.shareConduct(watching) })
	}
	if e.listed != nil {
		wg.Go(func() { e.listed.run(watching) })
	}
	wg.Go(func() { e.sample(watching) })
	wg.Go(func() { e.load.run(watching) })
	wg.Go(func() { e.checkHealth(watching) })
	if e.across != nil {
		wg.Go(func() { e.across.Run(watching) })
	}
	if e.shared != nil {
		wg.Go(func() { e.showPresence(watching) })
	}
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
	deregister() // while the drain runs, which takes longer
	e.drain(server, asked)
	// Shutdown before Serve has begun does not close the listener.
	_ = public.Close()
	stopAdmin, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if adminServer.Shutdown(stopAdmin) != nil {
		_ = adminServer.Close()
	}
	return err
}

// drain stops accepting requests and lets those in flight finish.
func (e *Edge) drain(server *fasthttp.Server, asked *gateways) {
	e.draining.Store(true)
	e.rls.leave()
	e.log.Info("draining", "delay", e.config.Shutdown.Delay.String(), "timeout", e.config.Shutdown.Timeout.String())
	time.Sleep(e.config.Shutdown.Delay)
	ctx, cancel := context.WithTimeout(context.Background(), e.config.Shutdown.Timeout)
	defer cancel()
	var rest sync.WaitGroup
	defer rest.Wait()
	rest.Go(func() { e.drainTunnels(e.config.Shutdown.Timeout) })
	rest.Go(func() { e.drainPeers(e.config.Shutdown.Timeout) })
	rest.Go(func() {
		if err := asked.shutdown(ctx); err != nil {
			e.log.Warn("questions of gateways cut off", "error", err)
		}
	})
	rest.Go(func() {
		if !e.spoe.drain(ctx) {
			e.log.Warn("questions of HAProxy cut off")
		}
	})
	rest.Go(e.http2.Drain)
	defer e.http2.Close()
	rest.Go(func() {
		if !e.rls.drain(ctx) {
			e.log.Warn("calls of the rate limit service cut off")
		}
	})
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
	e.peers.close()
	e.stop()
	<-done
	if e.access != nil {
		e.access.Close()
	}
	e.upstreams.close()
	if e.shared != nil {
		e.reports.Close()
		e.leases.Close() // while the store still takes back what they hold
		e.fallback.Close()
		_ = e.shared.Close()
	}
	if e.consul != nil {
		e.consul.Close()
	}
}

// timeouts are those of clients and gateways.
func timeouts(s *config.Server) proxy.Timeouts {
	return proxy.Timeouts{Idle: s.IdleTimeout, Read: s.ReadTimeout, Write: s.WriteTimeout}
}

// publicServer has no timeouts: its listener has.
func (e *Edge) publicServer() *fasthttp.Server {
	s := &e.config.Server
	return &fasthttp.Server{
		Handler:                      e.serve,
		HeaderReceived:               headerReceived,
		ExpectHandler:                e.expect,
		ErrorHandler:                 e.unreadable,
		Name:                         "weir",
		NoDefaultServerHeader:        true,
		Concurrency:                  2 * s.MaxConnections, // never reached: clients counts connections
		ConnState:                    e.clients.changed,
		ReadBufferSize:               s.MaxHeaderBytes,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		NoDefaultContentType:         true,
		CloseOnShutdown:              true,
		SecureErrorLogMessage:        true,
		Logger:                       quiet{},
	}
}

// unreadable answers a request that could not be parsed; the connection then closes.
func (e *Edge) unreadable(ctx *fasthttp.RequestCtx, err error) {
	if status := answerUnreadable(ctx, err); proxy.Begun(ctx.Conn()) {
		e.metrics.requests[status/100].Inc()
	}
}

func answerUnreadable(ctx *fasthttp.RequestCtx, err error) (status int) {
	status, title := fasthttp.StatusBadRequest, "the request could not be parsed"
	var small *fasthttp.ErrSmallBuffer
	var netErr net.Error
	switch {
	case errors.As(err, &small):
		status, title = fasthttp.StatusRequestHeaderFieldsTooLarge, "the request's header is too large"
	case errors.Is(err, fasthttp.ErrBodyTooLarge): // of a gateway: other bodies are streamed
		status, title = fasthttp.StatusRequestEntityTooLarge, "the gateway must forward neither a body nor a Content-Length"
	case errors.As(err, &netErr) && netErr.Timeout():
		status, title = fasthttp.StatusRequestTimeout, "the request did not arrive in time"
	}
	ctx.Response.Reset()
	ctx.SetStatusCode(status)
	ctx.Response.Header.SetContentTypeBytes(problemJSON)
	fmt.Fprintf(ctx, `{"type":"about:blank","title":%q,"status":%d}`, title, status)
	return status
}

// quiet drops fasthttp's log line for every client that disconnects.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

func (e *Edge) adminServer() *http.Server {
	return &http.Server{
		Handler:           e.adminHandler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnState:         newAdminConns().changed,
		ErrorLog:          slog.NewLogLogger(e.log.Handler(), slog.LevelDebug),
	}
}
