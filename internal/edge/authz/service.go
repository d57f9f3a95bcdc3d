// Package authz implements Envoy's external authorization (envoy.service.auth.v3) over
// gRPC: it turns the request that Envoy describes into one for package decide, and fills in
// the answer, which Envoy gives to its client. Calls are pooled objects.
package authz

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/internal/edge/gateway"
)

// Service answers calls. Its fields are set before the first one.
type Service struct {
	Decider *decide.Decider
	Legacy  bool // add X-RateLimit headers
	// MaxHeaders bounds the header of a request, in bytes; a larger one is denied with 431.
	MaxHeaders int
	// Answered is called after each answer.
	Answered func(gateway.Answer, time.Duration)
	// Panicked receives the value of a call's panic.
	Panicked func(any)

	calls sync.Pool
}

// MaxMessage bounds a call, in bytes, given a bound of a request's header. It leaves room
// for what Envoy repeats and adds: Envoy treats a larger call as an error and may let such
// requests pass.
func MaxMessage(maxHeaders int) int { return 256<<10 + 2*maxHeaders }

// method is the service's only method. Envoy's generated description would allocate a request
// for each call.
var method = grpc.ServiceDesc{
	ServiceName: "envoy.service.auth.v3.Authorization",
	HandlerType: (*any)(nil),
	Metadata:    "envoy/service/auth/v3/external_auth.proto",
	Methods: []grpc.MethodDesc{{
		MethodName: "Check",
		Handler: func(srv any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return srv.(*Service).handle(ctx, read)
		},
	}},
}

var _ envoy.Service = (*Service)(nil)

// Name implements envoy.Service.
func (s *Service) Name() string { return method.ServiceName }

// Register implements envoy.Service.
func (s *Service) Register(r grpc.ServiceRegistrar) { r.RegisterService(&method, s) }

// handle returns a *call, which the codec writes and releases, or an error.
func (s *Service) handle(ctx context.Context, read func(any) error) (answer any, err error) {
	began, outcome := time.Now(), gateway.Failed
	c, _ := s.calls.Get().(*call)
	if c == nil {
		c = &call{service: s}
		c.Fields = c
	}
	defer func() { s.Answered(outcome, time.Since(began)) }()
	defer envoy.Finish(c, s.Panicked, &answer, &err)
	if err := read(c); err != nil {
		outcome = gateway.Malformed
		return nil, err
	}
	c.Began, c.Rules, c.Peer, c.FromGateway, c.CompletionUnknown = began, s.Decider.Rules(), envoy.Peer(ctx), true, true
	outcome = c.decide()
	return c, nil
}

// call is one call in progress. It is pooled, so no part of it may be retained.
type call struct {
	decide.Request
	service   *Service
	wire      []byte // the request as received
	request   request
	malformed bool

	name   []byte   // scratch: of a header, in lower case
	values [][]byte // scratch: of a header
	answer
}

var _ envoy.Call = (*call)(nil)

// Release implements envoy.Call.
func (c *call) Release() {
	c.Permit.Done()
	c.Reset()
	c.forget()
	clear(c.values)
	c.values = c.values[:0]
	c.answer.reset()
	c.service.calls.Put(c)
}

func (c *call) decide() gateway.Answer {
	d := c.service.Decider
	if c.Err = c.read(); c.Err != nil {
		if c.Err == errHeaders {
			c.deny(refusal431)
		} else {
			c.deny(d.Refuse(&c.Request, decide.Malformed))
		}
		return gateway.Malformed
	}
	v := d.Decide(&c.Request)
	if v == decide.Pass {
		c.describe()
		c.metadata.Note(&c.Request)
		return gateway.Pass
	}
	c.deny(d.Refuse(&c.Request, v))
	return gateway.AnswerTo(v, &c.Request)
}
