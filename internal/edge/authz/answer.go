package authz

import (
	"net/http"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
)

// answer is the response to a call, with what it points to. All of it is reused.
type answer struct {
	response pb.CheckResponse
	status   rpc.Status
	passed   pb.OkHttpResponse
	denied   pb.DeniedHttpResponse
	code     envoytype.HttpStatus
	onPass   pb.CheckResponse_OkResponse
	onDeny   pb.CheckResponse_DeniedResponse
	metadata envoy.Metadata

	fields  envoy.Fields
	headers []*core.HeaderValueOption // kept; the first are in use
}

func (a *answer) init() {
	a.response.Status = &a.status
	a.onPass.OkResponse, a.onDeny.DeniedResponse, a.denied.Status = &a.passed, &a.denied, &a.code
}

func (a *answer) reset() {
	a.response.HttpResponse, a.response.DynamicMetadata = nil, nil
	a.passed.ResponseHeadersToAdd, a.denied.Headers, a.denied.Body = nil, nil, ""
	a.metadata.Reset()
	a.fields.Reset()
}

// pass lets the request through. Envoy adds the fields to its client's response, replacing
// the origin's.
func (c *call) pass() {
	c.describe()
	c.status.Code = int32(codes.OK)
	c.passed.ResponseHeadersToAdd = c.written()
	c.metadata.Note(&c.Request)
	c.response.HttpResponse, c.response.DynamicMetadata = &c.onPass, c.metadata.Struct(0)
}

// refusal431 is the answer to a request whose header is too large.
var refusal431 = decide.Refusal{Status: http.StatusRequestHeaderFieldsTooLarge,
	Body: decide.Problem(http.StatusRequestHeaderFieldsTooLarge, "Request header fields too large", "")}

// deny refuses the request. Envoy gives its client this answer.
func (c *call) deny(r decide.Refusal) {
	c.fields.SetBody(r.Body) // the slice belongs to the request, which will overwrite it
	c.fields.Add("content-type", []byte("application/problem+json"))
	if r.RetryAfter > 0 {
		c.fields.AddInt("retry-after", r.RetryAfter)
	}
	if len(r.Reason) > 0 {
		c.fields.Add("weir-shed-reason", r.Reason)
	}
	c.describe()
	// Envoy checks only whether this is OK.
	if c.status.Code = int32(codes.PermissionDenied); r.Status == http.StatusTooManyRequests {
		c.status.Code = int32(codes.ResourceExhausted)
	}
	c.code.Code = envoytype.StatusCode(r.Status)
	c.denied.Headers, c.denied.Body = c.written(), envoy.Text(c.fields.Body())
	c.metadata.Note(&c.Request)
	c.response.HttpResponse, c.response.DynamicMetadata = &c.onDeny, c.metadata.Struct(r.RetryAfter)
}

func (c *call) describe() {
	c.Describe(c.service.Legacy, func(name, value []byte) {
		if len(value) > 0 {
			c.fields.Add(envoy.HeaderName(name), value)
		}
	})
}

// written returns the fields as headers that replace others of the same name.
func (a *answer) written() []*core.HeaderValueOption {
	n := a.fields.Len()
	for len(a.headers) < n {
		a.headers = append(a.headers, &core.HeaderValueOption{Header: &core.HeaderValue{}, AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD})
	}
	for i, h := range a.headers[:n] {
		h.Header.Key, h.Header.Value = a.fields.At(i)
	}
	return a.headers[:n]
}
