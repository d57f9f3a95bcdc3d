// Package edge is the edge node: it joins rules, stores and upstreams behind an HTTP
// listener. handler.go is the request path, package chain the layers that decide.
package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/accesslog"
	"github.com/weir-edge/weir/internal/edge/admin"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/edge/exchange"
	"github.com/weir-edge/weir/internal/edge/h2"
	"github.com/weir-edge/weir/internal/edge/listeners"
	"github.com/weir-edge/weir/internal/edge/load"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/edge/recent"
	"github.com/weir-edge/weir/internal/edge/ruleset"
	"github.com/weir-edge/weir/internal/edge/tiers"
	"github.com/weir-edge/weir/internal/edge/upstreams"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/internal/logs"
)

// Edge is one node.
type Edge struct {
	config  *config.Config
	log     *slog.Logger
	metrics *metrics

	storage
	upstreams *upstreams.Set
	registrar
	rules      *ruleset.Active
	shedding   *load.Shedding
	tiers      *tiers.Evaluator // nil without a policy
	underLoad  *load.UnderLoad
	registered *load.Registered
	clients    *documents.ClientLists // nil without Consul
	decider    decide.Decider
	files      watchedFiles
	secret     *load.Secret
	spoe       spoeServer // set by Run
	admin      *admin.Admin
	listeners  *listeners.Set
	exchange   *exchange.Exchange // nil without listen.peer

	requests    sync.Pool
	upstreamLog logs.Sampler
	access      *accesslog.Log // nil without one
	recent      *recent.Ring   // likewise

	draining atomic.Bool
	linger   func(time.Duration) // time.Sleep: listeners stay open, for shutdown.delay
	ctx      context.Context     // ends with the node
	stop     context.CancelFunc
	returns  sync.WaitGroup // of concurrency slots
}

// New builds a node from its configuration. builtinRules, if not empty, are used in
// place of a rule file. The rules in a file must be good, because a node without any
// would let everything pass; an unreachable Redis or Consul does not keep it from
// starting.
func New(c *config.Config, builtinRules string, log *slog.Logger) (*Edge, error) {
	e := &Edge{config: c, log: log.With("node", c.Node.ID), linger: time.Sleep}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.requests.New = func() any { r := &request{}; r.Fields = r; return r }
	e.stateChanged = make(chan struct{}, 1)
	e.metrics = newMetrics()
	e.setNodes(c.Store.NodeCount())
	var err error
	if c.FollowsConsul() && builtinRules == "" {
		if err = e.openConsul(); err != nil {
			return nil, err
		}
	}
	node := documents.Node{Log: e.log, Changed: e.changed, Unsigned: e.metrics.documentsUnsigned, Consul: e.consul, Owner: c.CacheOwner()}
	if e.rules, err = ruleset.Open(node, c, e.metrics.registry, builtinRules); err != nil {
		return nil, err
	}
	for _, w := range c.Warnings() {
		e.log.Warn("the configuration works, but", "warning", w)
	}
	if e.upstreams, err = upstreams.New(c, e.log, e.metrics.registry); err != nil {
		return nil, err
	}
	if err = e.openParts(node); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// openParts opens what a request passes, and what shows it.
func (e *Edge) openParts(node documents.Node) (err error) {
	c, registry, shedders := e.config, e.metrics.registry, e.upstreams.Shedders()
	if e.shedding, err = load.OpenShedding(node, c, registry, shedders); err != nil {
		return err
	}
	e.registered = load.NewRegistered(e.shedding)
	if e.secret, err = load.OpenSecret(c, e.log, registry); err != nil {
		return err
	}
	e.decider = decide.Decider{
		Log: e.log, Trusted: c.Trusted, TierHeader: c.TierHeader, Strict: c.Server.Paths == config.PathsStrict,
		Rules: e.rules.Rules, Shedding: e.shedding.Settings, Routes: e.upstreams.Routes, Shedders: shedders, Secret: e.secret.Active, Shed: e.shedding.Shed,
	}
	if e.tiers, err = tiers.Open(node, c, registry, e.ctx.Done()); err != nil {
		return err
	}
	if e.tiers != nil {
		e.decider.Behavior = e.tiers.Behavior
	}
	if e.clients, err = documents.OpenClientLists(node, c.Clients.Cache, registry); err != nil {
		return err
	}
	if e.clients != nil {
		e.decider.ClientLists, e.decider.Blocked = e.clients.Table, e.clients.Blocked
	}
	if err = e.openStore(); err != nil {
		return err
	}
	e.underLoad = load.OpenUnderLoad(c, e.log, registry, shedders, e.rules.Set, e.chain.Shared, func() int { return int(e.nodes.Load()) })
	e.decider.UnderLoad = e.underLoad.UnderLoad
	if err = e.openAccessLog(); err != nil {
		return err
	}
	if err = e.openRecent(); err != nil {
		return err
	}
	if err = e.openListeners(); err != nil {
		return err
	}
	e.openExchange()
	return nil
}

func (e *Edge) openListeners() error {
	certificates, err := e.config.Listen.Certificates()
	if err != nil {
		return err
	}
	e.files.Certificates = certificates
	e.openAdmin()
	e.listeners, err = listeners.New(listeners.Config{
		Config: e.config, Certificates: certificates, Log: e.log, Registry: e.metrics.registry, Decider: &e.decider, Panics: e.metrics.panics,
		Ready:  func() bool { return e.rules.Running() != nil && !e.draining.Load() },
		Public: e.publicServer(), Malformed: e.malformed, Unreadable: func(ctx *fasthttp.RequestCtx, err error) { answerUnreadable(ctx, err) },
		Admin: e.admin.Handler(),
	})
	if err == nil {
		e.metrics.gateways = e.listeners.Gateways
	}
	return err
}

// openAdmin prepares to answer operators.
func (e *Edge) openAdmin() {
	e.admin = &admin.Admin{
		Config: e.config, Certificates: e.files.Certificates, Log: e.log, Registry: e.metrics.registry, Decider: &e.decider, Chain: e.chain,
		Nodes: func() int { return int(e.nodes.Load()) }, Rules: e.rules.Keeper, Shedding: e.shedding.Keeper,
		Tally: func(rule string) *experiment.Tally { return e.rules.Running().Tally(rule) }, Recent: e.recent,
		Top:      func(now time.Time, most int) []adminapi.TopRule { return e.rules.Running().Top(now, most) },
		Draining: e.draining.Load, Store: e.shards.text, Registration: e.registration, Meta: e.meta,
	}
	if e.tiers != nil {
		e.admin.Policy = e.tiers.Policies
	}
	if e.clients != nil {
		e.admin.Clients = e.clients.Keeper
	}
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
		ReadBufferSize:               s.MaxHeaderBytes,
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		Logger:                       listeners.Quiet{},
	}
}

// unreadable answers a request that could not be parsed; the connection then closes.
func (e *Edge) unreadable(ctx *fasthttp.RequestCtx, err error) {
	if status := answerUnreadable(ctx, err); proxy.HasReceivedBytes(ctx.Conn()) {
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

// malformed answers an HTTP/2 request that has no form in HTTP/1.1, or for which there is
// no room.
func (e *Edge) malformed(ctx *fasthttp.RequestCtx, err error) {
	status := fasthttp.StatusServiceUnavailable
	if h2.IsFull(err) {
		ctx.SetStatusCode(status)
		ctx.Response.Header.SetContentTypeBytes(problemJSON)
		ctx.Response.Header.SetCanonical(headerRetryAfter, []byte("1"))
		ctx.Response.SetBodyRaw(decide.Problem(status, "Too many requests are open", ""))
	} else {
		status = answerUnreadable(ctx, err)
	}
	e.metrics.requests[status/100].Inc()
}
