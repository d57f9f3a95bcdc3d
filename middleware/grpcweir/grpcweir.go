// Package grpcweir limits the calls of a gRPC server by weir's rules.
//
//	limiter, err := middleware.New(middleware.Config{Rules: rules})
//	if err != nil {
//		log.Fatal(err)
//	}
//	server := grpc.NewServer(grpc.UnaryInterceptor(grpcweir.Unary(limiter)), grpc.StreamInterceptor(grpcweir.Stream(limiter)))
//
// To the rules, a call is a request with the method POST and the path /package.Service/Method, and metadata
// are headers. A call that a rule refuses ends with RESOURCE_EXHAUSTED and a google.rpc.RetryInfo. While a rule with
// on_store_failure: closed cannot be counted, its calls end with UNAVAILABLE. A call that repeats a value that a rule
// counts by ends with INVALID_ARGUMENT. A stream counts once, when it begins, and holds its concurrency slots until it
// ends.
package grpcweir

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weir-edge/weir/middleware"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Unary returns an interceptor for unary calls. The header metadata of the answer describes the limits.
func Unary(l *middleware.Limiter) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		c := begin(ctx, l, info.FullMethod)
		defer c.End()
		_ = grpc.SetHeader(ctx, describe(c)) // fails only if it was sent
		if !c.Passed() {
			return nil, refusal(c)
		}
		return next(ctx, request)
	}
}

// Stream returns an interceptor for streams. The header metadata describes the limits.
func Stream(l *middleware.Limiter) grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		c := begin(stream.Context(), l, info.FullMethod)
		defer c.End()
		_ = stream.SetHeader(describe(c))
		if !c.Passed() {
			return refusal(c)
		}
		return next(service, stream)
	}
}

func begin(ctx context.Context, l *middleware.Limiter, method string) *middleware.Call {
	md, _ := metadata.FromIncomingContext(ctx)
	f := fields(md)
	var host []byte
	if hosts := f.values(":authority"); len(hosts) > 0 {
		host = hosts[0]
	}
	return l.Begin(middleware.Request{Peer: peerOf(ctx), Method: []byte(http.MethodPost), Host: host, Target: []byte(method), Fields: f})
}

func peerOf(ctx context.Context) netip.Addr {
	if p, ok := peer.FromContext(ctx); ok {
		if t, ok := p.Addr.(*net.TCPAddr); ok {
			return t.AddrPort().Addr()
		}
	}
	return netip.Addr{}
}

func describe(c *middleware.Call) metadata.MD {
	md := metadata.MD{}
	c.Describe(func(name string, value []byte) { md.Set(name, string(value)) })
	return md
}

func refusal(c *middleware.Call) error {
	code := codes.ResourceExhausted
	switch c.Status() {
	case http.StatusBadRequest:
		code = codes.InvalidArgument
	case http.StatusServiceUnavailable:
		code = codes.Unavailable
	}
	s := status.New(code, string(c.Body()))
	if after := c.RetryAfter(); after > 0 {
		if detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(after) * time.Second)}); err == nil {
			s = detailed
		}
	}
	return s.Err()
}

// fields are the metadata of a call.
type fields metadata.MD

var _ middleware.Fields = fields(nil)

func (f fields) values(name string) (out [][]byte) {
	for _, v := range f[name] {
		out = append(out, []byte(v))
	}
	return out
}

// Header implements middleware.Fields.
func (f fields) Header(name string) [][]byte {
	if name == "Host" {
		return f.values(":authority")
	}
	return f.values(strings.ToLower(name))
}

// Cookie implements middleware.Fields.
func (f fields) Cookie(name string) (value []byte, n int) {
	for _, line := range f["cookie"] {
		value, n = rules.FindCookie([]byte(line), name, value, n)
	}
	return value, n
}
