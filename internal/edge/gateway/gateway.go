// Package gateway answers gateways that ask about each of their requests whether it may
// pass: nginx, Caddy, Traefik and others, by forward authentication over HTTP.
package gateway

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/certs"
)

// The paths at which gateways ask.
const (
	Path      = "/v1/decide"
	PathNginx = "/v1/decide/nginx" // auth_request forwards only the statuses 401 and 403
)

// Answer is the kind of answer that a gateway received.
type Answer uint8

// The answers.
const (
	Pass            Answer = iota
	Limited                // 429
	Shed                   // 503, by the shedder
	Failed                 // 500 and 503, because of weir itself or its rules
	Malformed              // 400 and 431
	Unauthenticated        // 403: not a gateway
	Blocked                // 403: an operator blocks the client
	Answers                // how many there are
)

var answerNames = [Answers]string{"pass", "limited", "shed", "failed", "malformed", "unauthenticated", "blocked"}

func (a Answer) String() string { return answerNames[a] }

// Config is what a Server needs.
type Config struct {
	Decider *decide.Decider
	// From are the networks of the gateways. Certificates, if not nil, admits those that present
	// a valid certificate. A gateway must satisfy all that is set.
	From         []netip.Prefix
	Certificates *certs.Server
	Legacy       bool                        // add X-RateLimit headers
	MaxHeaders   int                         // bytes of an authorization request's header; a larger one is refused with 431
	Log          *slog.Logger                // of panics
	Answered     func(Answer, time.Duration) // called after each answer
	Panicked     func()
}

// Server answers gateways.
type Server struct {
	config   Config
	requests sync.Pool
}

func New(c Config) *Server {
	s := &Server{config: c}
	s.requests.New = func() any { q := &authRequest{server: s}; q.Fields = q; return q }
	return s
}

// Serve answers one request of a gateway.
func (s *Server) Serve(ctx *fasthttp.RequestCtx) {
	defer proxy.YieldAfterPipelined(ctx.Conn())
	q := s.requests.Get().(*authRequest)
	q.ctx, q.Began, q.Peer = ctx, ctx.Time(), proxy.AddrOf(ctx.RemoteAddr())
	q.Rules, q.FromGateway, q.CompletionUnknown = s.config.Decider.Rules(), true, true
	defer q.end()
	q.decide()
}

// end returns the authorization request to the pool. After a panic it first answers with a status that no
// gateway takes for permission.
func (q *authRequest) end() {
	s := q.server
	p := recover()
	if p != nil {
		s.config.Log.Error("handler panicked", "panic", p, "stack", strings.TrimSpace(string(debug.Stack())))
		s.config.Panicked()
		q.ctx.Response.Reset()
		q.answer = Failed
		q.problem(http.StatusInternalServerError, "internal error", "")
	}
	proxy.CloseUnlessReusable(q.ctx, p == nil)
	q.Permit.Done()
	s.config.Answered(q.answer, time.Since(q.Began))
	q.Reset()
	clear(q.values)
	q.ctx, q.answer, q.nginx, q.scan, q.values = nil, Pass, false, proxy.HeaderScan{}, q.values[:0]
	s.requests.Put(q)
}

var errPath = errors.New("gateways ask at " + Path + ", nginx at " + PathNginx)

// decide answers the authorization request.
func (q *authRequest) decide() {
	if !q.server.admits(q) {
		q.answer = Unauthenticated
		q.problem(http.StatusForbidden, "Not a gateway", "this address is not in listen.decide.from, or presents no certificate of listen.decide.tls.client_ca_file")
		return
	}
	path, _, _ := bytes.Cut(q.ctx.RequestURI(), []byte("?"))
	switch string(path) {
	case PathNginx:
		q.nginx = true
	case Path:
	default:
		q.answer = Malformed
		q.problem(http.StatusNotFound, "Not found", errPath.Error())
		return
	}
	if len(q.ctx.Request.Header.RawHeaders()) > q.server.config.MaxHeaders {
		q.answer = Malformed
		q.problem(http.StatusRequestHeaderFieldsTooLarge, "Request header fields too large", "")
		return
	}
	if h := &q.ctx.Request.Header; !h.IsGet() && !h.IsHead() {
		q.answer = Malformed
		q.problem(http.StatusMethodNotAllowed, "Method not allowed", "gateways ask with GET, and state the method of their client's request in a header")
		return
	}
	v := decide.Malformed
	if q.Err = q.read(); q.Err == nil {
		v = q.server.config.Decider.Decide(&q.Request)
	}
	if v == decide.Pass {
		q.ctx.SetStatusCode(http.StatusNoContent)
		q.setLimitHeaders()
		return
	}
	q.answer = AnswerTo(v, &q.Request)
	q.refuse(v)
}

// admits reports whether a gateway asks.
func (s *Server) admits(q *authRequest) bool {
	if !decide.Within(s.config.From, q.Peer) {
		return false
	}
	if s.config.Certificates == nil {
		return true
	}
	state := q.ctx.TLSConnectionState()
	return state != nil && s.config.Certificates.Vouches(state)
}

// AnswerTo returns the kind of answer to a verdict other than decide.Pass.
func AnswerTo(v decide.Verdict, r *decide.Request) Answer {
	switch {
	case v == decide.Malformed:
		return Malformed
	case v == decide.Blocked:
		return Blocked
	case v == decide.Shed:
		return Shed
	case v == decide.Limited && !r.Decision.StoreUnavailable, v == decide.Misbehaved:
		return Limited
	}
	return Failed
}
