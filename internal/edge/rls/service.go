// Package rls implements Envoy's rate limit service (envoy.service.ratelimit.v3) over gRPC.
// It turns the descriptors of a call into checks, asks package decide for a decision, and
// fills in the answer. Calls are pooled objects, so the limiter's own part allocates nothing.
package rls

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
)

// Service answers calls. Its fields are set before the first one.
type Service struct {
	Decider *decide.Decider
	// Separate decides each descriptor of a call separately, as the reference service
	// does. Otherwise a call that one descriptor refuses charges none.
	Separate bool
	// Headers describes the limits in fields of the response, and Legacy also by the
	// older names.
	Headers, Legacy bool
	// Done is called after each call.
	Done func(Outcome, time.Duration)
	// Panicked receives the value of a call's panic.
	Panicked func(any)

	calls sync.Pool
}

// Outcome is the result of a call.
type Outcome uint8

// The outcomes, and their names in the metrics.
const (
	OK Outcome = iota
	OverLimit
	Invalid     // the caller's fault
	Unavailable // there are no rules yet
	Failed      // a fault of this program
	Canceled    // the caller gave up before its message was read
)

// Outcomes are the names of the outcomes.
var Outcomes = [...]string{"ok", "over_limit", "invalid", "unavailable", "failed", "canceled"}

// method is the service's only method. Envoy's generated description would allocate a request
// for each call.
var method = grpc.ServiceDesc{
	ServiceName: "envoy.service.ratelimit.v3.RateLimitService",
	HandlerType: (*any)(nil),
	Metadata:    "envoy/service/ratelimit/v3/rls.proto",
	Methods: []grpc.MethodDesc{{
		MethodName: "ShouldRateLimit",
		Handler: func(srv any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return srv.(*Service).handle(ctx, read)
		},
	}},
}

// MaxMessage bounds a request, in bytes.
const MaxMessage = 64 << 10

var _ envoy.Service = (*Service)(nil)

// Name implements envoy.Service.
func (s *Service) Name() string { return method.ServiceName }

// Register implements envoy.Service.
func (s *Service) Register(r grpc.ServiceRegistrar) { r.RegisterService(&method, s) }

// handle returns a *call, which the codec writes and releases, or an error.
func (s *Service) handle(ctx context.Context, read func(any) error) (answer any, err error) {
	began, outcome := time.Now(), Failed
	c, _ := s.calls.Get().(*call)
	if c == nil {
		c = &call{service: s}
	}
	defer func() { s.Done(outcome, time.Since(began)) }()
	defer envoy.Finish(c, s.Panicked, &answer, &err)
	if err := read(c); err != nil {
		// The context has ended even if the message was read and is invalid.
		if outcome = Invalid; status.Code(err) == codes.Canceled || status.Code(err) == codes.DeadlineExceeded {
			outcome = Canceled
		}
		return nil, err
	}
	if c.malformed {
		outcome = Invalid
		return nil, status.Error(codes.InvalidArgument, "the message is not a RateLimitRequest of envoy.service.ratelimit.v3")
	}
	c.Began, c.Rules, c.Peer = began, s.Decider.Rules(), envoy.Peer(ctx)
	if outcome, err = c.decide(); err != nil {
		return nil, err
	}
	return c, nil
}
