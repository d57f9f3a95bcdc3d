package authz

import (
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
)

// answer is the response to a call. All of it is reused.
type answer struct {
	code       codes.Code // Envoy checks only whether this is OK
	status     int        // of a refusal
	retryAfter int64
	fields     envoy.Fields
	metadata   envoy.Metadata
}

func (a *answer) reset() {
	a.code, a.status, a.retryAfter = codes.OK, 0, 0
	a.metadata.Reset()
	a.fields.Reset()
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
	if c.code = codes.PermissionDenied; r.Status == http.StatusTooManyRequests {
		c.code = codes.ResourceExhausted
	}
	c.status, c.retryAfter = r.Status, r.RetryAfter
	c.metadata.Note(&c.Request)
}

func (c *call) describe() {
	c.SetLimitHeaders(c.service.Legacy, func(name, value []byte) {
		if len(value) > 0 {
			c.fields.Add(envoy.HeaderName(name), value)
		}
	})
}

// Append implements envoy.Call. It writes a CheckResponse as proto.Marshal would. Envoy adds the
// fields of an OkHttpResponse to its client's response, replacing the origin's, and answers with a
// DeniedHttpResponse.
func (c *call) Append(b []byte) []byte {
	status := envoy.Begin(&b, 1)
	b = envoy.End(envoy.AppendNumber(b, 1, uint64(c.code)), status)
	if c.code == codes.OK {
		ok := envoy.Begin(&b, 3)
		b = envoy.End(c.appendFields(b, 6), ok)
	} else {
		denied := envoy.Begin(&b, 2)
		code := envoy.Begin(&b, 1)
		b = envoy.End(envoy.AppendNumber(b, 1, uint64(c.status)), code)
		b = c.appendFields(b, 2)
		b = envoy.End(envoy.AppendText(b, 3, c.fields.Body()), denied)
	}
	return c.metadata.Append(b, 4, c.retryAfter)
}

// overwrite is OVERWRITE_IF_EXISTS_OR_ADD, the append_action of a HeaderValueOption.
const overwrite = 2

func (a *answer) appendFields(b []byte, field protowire.Number) []byte {
	for i := range a.fields.Len() {
		name, value := a.fields.At(i)
		option := envoy.Begin(&b, field)
		header := envoy.Begin(&b, 1)
		b = envoy.AppendText(b, 1, name)
		b = envoy.End(envoy.AppendText(b, 2, value), header)
		b = envoy.End(envoy.AppendNumber(b, 3, overwrite), option)
	}
	return b
}
