package authz

import (
	"net/http"
	"strconv"

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

	// The headers and the body are written to text, and become strings at the end.
	text    []byte
	fields  []field
	headers []*core.HeaderValueOption // kept; the first are in use
}

// field is a part of answer.text, under a name.
type field struct {
	name       string
	start, end int
}

func (a *answer) init() {
	a.response.Status = &a.status
	a.onPass.OkResponse, a.onDeny.DeniedResponse, a.denied.Status = &a.passed, &a.denied, &a.code
}

func (a *answer) reset() {
	a.response.HttpResponse, a.response.DynamicMetadata = nil, nil
	a.passed.ResponseHeadersToAdd, a.denied.Headers, a.denied.Body = nil, nil, ""
	a.metadata.Reset()
	a.text, a.fields = a.text[:0], a.fields[:0]
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
	c.text = append(c.text, r.Body...) // the slice belongs to the request, which will overwrite it
	body := len(c.text)
	c.add("content-type", []byte("application/problem+json"))
	if r.RetryAfter > 0 {
		start := len(c.text)
		c.text = strconv.AppendInt(c.text, r.RetryAfter, 10)
		c.fields = append(c.fields, field{"retry-after", start, len(c.text)})
	}
	if len(r.Reason) > 0 {
		c.add("weir-shed-reason", r.Reason)
	}
	c.describe()
	// Envoy checks only whether this is OK.
	if c.status.Code = int32(codes.PermissionDenied); r.Status == http.StatusTooManyRequests {
		c.status.Code = int32(codes.ResourceExhausted)
	}
	c.code.Code = envoytype.StatusCode(r.Status)
	c.denied.Headers, c.denied.Body = c.written(), envoy.Text(c.text[:body])
	c.metadata.Note(&c.Request)
	c.response.HttpResponse, c.response.DynamicMetadata = &c.onDeny, c.metadata.Struct(r.RetryAfter)
}

func (c *call) describe() {
	c.Describe(c.service.Legacy, func(name, value []byte) {
		if len(value) > 0 {
			c.add(envoy.HeaderName(name), value)
		}
	})
}

func (a *answer) add(name string, value []byte) {
	start := len(a.text)
	a.text = append(a.text, value...)
	a.fields = append(a.fields, field{name, start, len(a.text)})
}

// written returns the fields as headers that replace others of the same name.
func (a *answer) written() []*core.HeaderValueOption {
	for len(a.headers) < len(a.fields) {
		a.headers = append(a.headers, &core.HeaderValueOption{Header: &core.HeaderValue{}, AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD})
	}
	for i, f := range a.fields {
		a.headers[i].Header.Key, a.headers[i].Header.Value = f.name, envoy.Text(a.text[f.start:f.end])
	}
	return a.headers[:len(a.fields)]
}
