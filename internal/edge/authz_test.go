package edge

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/weir-edge/weir/internal/edge/authz"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/envoy"
)

// asker is an Envoy that asks for authorization, as far as the protocol goes.
type asker struct {
	*caller
	client auth.AuthorizationClient
}

// authzNode answers Envoys on this machine.
func authzNode(t *testing.T, s setup) (*node, *asker) {
	t.Helper()
	given := s.config
	s.config = func(c *config.Config) {
		c.Listen.RLS = &config.RLS{Address: "127.0.0.1:0", From: []string{"127.0.0.1"}, Authorization: true}
		if given != nil {
			given(c)
		}
	}
	n, c := rlsNode(t, s)
	return n, &asker{c, auth.NewAuthorizationClient(c.conn)}
}

// envoyAsks is a request as Envoy describes it; header "a: b" and so on.
func envoyAsks(client, method, path string, headers ...string) *auth.CheckRequest {
	h := &auth.AttributeContext_HttpRequest{Method: method, Path: path, Host: "shop.example.com", Scheme: "https", Protocol: "HTTP/2", Size: -1,
		Headers: map[string]string{":method": method, ":path": path, ":authority": "shop.example.com"}}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		h.Headers[name] = value
	}
	return &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source:  &auth.AttributeContext_Peer{Address: addressed(client)},
		Request: &auth.AttributeContext_Request{Http: h},
	}}
}

func addressed(ip string) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: ip, PortSpecifier: &core.SocketAddress_PortValue{PortValue: 4711}}}}
}

// raw moves the headers to where Envoy puts them with encode_raw_headers.
func raw(q *auth.CheckRequest, more ...string) *auth.CheckRequest {
	h := q.Attributes.Request.Http
	h.HeaderMap = &core.HeaderMap{}
	for name, value := range maps.All(h.Headers) {
		h.HeaderMap.Headers = append(h.HeaderMap.Headers, &core.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	for _, line := range more {
		name, value, _ := strings.Cut(line, ": ")
		h.HeaderMap.Headers = append(h.HeaderMap.Headers, &core.HeaderValue{Key: name, RawValue: []byte(value)})
	}
	h.Headers = nil
	return q
}

// authorized is an answer in the terms of HTTP.
type authorized struct {
	status int // 200: it passes
	header map[string]string
	body   string
	*auth.CheckResponse
}

func (a *asker) check(q *auth.CheckRequest) authorized {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := a.client.Check(ctx, q)
	require.NoError(a.t, err)
	w := authorized{status: 200, header: map[string]string{}, CheckResponse: r}
	headers := r.GetOkResponse().GetResponseHeadersToAdd()
	if denied := r.GetDeniedResponse(); denied != nil {
		require.NotZero(a.t, r.Status.Code)
		w.status, w.body, headers = int(denied.Status.Code), denied.Body, denied.Headers
		require.Nil(a.t, r.GetOkResponse())
	} else {
		require.Zero(a.t, r.Status.Code)
	}
	for _, h := range headers {
		require.Equal(a.t, core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD, h.AppendAction)
		w.header[h.Header.Key] = h.Header.Value
	}
	return w
}

func TestAuthorization(t *testing.T) {
	n, e := authzNode(t, setup{rules: gatewayRules + "  - {id: trial, match: {paths: [/trial]}, key: [], limit: 1, window: 1h, mode: shadow}\n"})
	for i, form := range []func(*auth.CheckRequest) *auth.CheckRequest{
		func(q *auth.CheckRequest) *auth.CheckRequest { return q },
		func(q *auth.CheckRequest) *auth.CheckRequest { return raw(q) },
	} {
		client := fmt.Sprintf("203.0.113.%d", i)
		a := e.check(form(envoyAsks(client, "GET", "/api/x?y=z", "x-forwarded-for: 198.51.100.1")))
		require.Equal(t, 200, a.status, a.body)
		require.Equal(t, map[string]string{"ratelimit": `"api";r=2;t=3600`, "ratelimit-policy": `"api";q=3;w=3600`}, a.header)
		require.Nil(t, a.DynamicMetadata)
		require.EqualValues(t, 2, n.explained("api", client, "&path=/api/x").Remaining, "what a client writes names nobody")
		for range 2 {
			require.Equal(t, 200, e.check(form(envoyAsks(client, "GET", "/api/x"))).status)
		}
		for range 2 { // from the store, then from memory where there is one
			a = e.check(form(envoyAsks(client, "POST", "/api/x")))
			require.Equal(t, 429, a.status)
			require.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"violated-policies":["api"]}`, a.body)
			require.Equal(t, "application/problem+json", a.header["content-type"])
			require.NotEmpty(t, a.header["retry-after"])
			require.Equal(t, `"api";q=3;w=3600`, a.header["ratelimit-policy"])
			require.EqualValues(t, codes.ResourceExhausted, a.Status.Code)
			require.Equal(t, "api", a.DynamicMetadata.Fields["limited_by"].GetStringValue())
			require.Positive(t, a.DynamicMetadata.Fields["retry_after"].GetNumberValue())
		}
		require.Equal(t, 200, e.check(form(envoyAsks(client, "GET", "/free"))).status)
		require.Empty(t, e.check(form(envoyAsks(client, "OPTIONS", "*"))).header)

		// Rules see the client's headers, and the request's host.
		key := fmt.Sprintf("x-api-key: %d", i)
		require.Equal(t, `"keyed";r=2;t=3600`, e.check(form(envoyAsks(client, "GET", "/keyed", key))).header["ratelimit"])
	}
	q := envoyAsks("203.0.113.9", "POST", "/")
	q.Attributes.Request.Http.Host = "API.example.com:8443"
	require.Equal(t, `"hosted";r=2;t=3600`, e.check(q).header["ratelimit"])
	e.check(envoyAsks("203.0.113.9", "GET", "/trial"))
	a := e.check(envoyAsks("203.0.113.9", "GET", "/trial"))
	require.Equal(t, 200, a.status)
	require.Equal(t, "trial", a.DynamicMetadata.Fields["shadow_limited_by"].GetStringValue())

	a = e.check(envoyAsks("203.0.113.9", "GET", "/slots"))
	require.Equal(t, 500, a.status, "Envoy does not say when the request ends")
	require.Contains(t, a.body, "rule slots limits concurrent requests")
	require.Zero(t, n.asked.Load(), "nothing is forwarded")
	require.EqualValues(t, 4, n.metric(`weir_gateway_answers_total{protocol="ext_authz",answer="limited"}`))
	require.EqualValues(t, 1, n.metric(`weir_gateway_answers_total{protocol="ext_authz",answer="failed"}`))
	require.EqualValues(t, n.metric(`weir_gateway_seconds{protocol="ext_authz"}`), n.metric(`weir_gateway_answers_total{protocol="ext_authz",answer="pass"}`)+5)
	health, err := healthpb.NewHealthClient(e.conn).Check(context.Background(), &healthpb.HealthCheckRequest{Service: "envoy.service.auth.v3.Authorization"})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, health.Status)
	require.EqualValues(t, 0, e.call(asking("none=1")).OverallCode-1, "the rate limit service is served, too")
}

// The client is the address that Envoy names, or a trusted proxy in front of it.
func TestAuthorizationClient(t *testing.T) {
	n, e := authzNode(t, setup{rules: gatewayRules, config: func(c *config.Config) {
		c.TrustedProxies, c.TierHeader = []string{"10.0.0.0/8"}, "X-Tier"
	}})
	left := func(client string) int64 { return n.explained("api", client, "&path=/api/x").Remaining }
	e.check(envoyAsks("10.0.0.1", "GET", "/api/x", "x-forwarded-for: 192.0.2.1, 203.0.113.1"))
	require.EqualValues(t, 2, left("203.0.113.1"))
	e.check(envoyAsks("10.0.0.1", "GET", "/api/x", "x-forwarded-for: 203.0.113.1,10.0.0.1")) // Envoy has added its peer
	require.EqualValues(t, 1, left("203.0.113.1"))
	e.check(raw(envoyAsks("10.0.0.1", "GET", "/api/x"), "x-forwarded-for: 192.0.2.1", "x-forwarded-for: 203.0.113.1"))
	require.EqualValues(t, 0, left("203.0.113.1"))
	e.check(envoyAsks("203.0.113.2", "GET", "/api/x", "x-forwarded-for: 203.0.113.3"))
	require.EqualValues(t, 2, left("203.0.113.2"))
	require.EqualValues(t, 3, left("203.0.113.3"))
	e.check(envoyAsks("::ffff:203.0.113.2", "GET", "/api/x"))
	require.EqualValues(t, 1, left("203.0.113.2"))
	a := e.check(envoyAsks("203.0.113.2", "GET", "/tiers", "x-tier: pro"))
	require.Equal(t, `"tiers";q=1;w=3600`, a.header["ratelimit-policy"], "Envoy is no trusted proxy, so the header may be the client's")
}

// A call that leaves something unclear is denied rather than failed, because Envoy may let
// requests pass when its service fails. Nothing is charged.
func TestAuthorizationMustBeClear(t *testing.T) {
	n, e := authzNode(t, setup{rules: gatewayRules, config: func(c *config.Config) { c.Server.Paths = config.PathsStrict }})
	const client = "203.0.113.1"
	deny := func(status int, fault string, q *auth.CheckRequest) {
		t.Helper()
		a := e.check(q)
		require.Equal(t, status, a.status, a.body)
		require.Contains(t, a.body, fault)
		require.Equal(t, "application/problem+json", a.header["content-type"])
	}
	f := func(fault string, change func(*auth.AttributeContext, *auth.AttributeContext_HttpRequest)) {
		t.Helper()
		q := envoyAsks(client, "GET", "/api/x")
		change(q.Attributes, q.Attributes.Request.Http)
		deny(400, fault, q)
	}
	deny(400, "attributes.request.http: is missing", &auth.CheckRequest{})
	f("attributes.request.http: is missing", func(a *auth.AttributeContext, _ *auth.AttributeContext_HttpRequest) { a.Request = nil })
	f("attributes.source.address.socket_address.address: must be the address", func(a *auth.AttributeContext, _ *auth.AttributeContext_HttpRequest) { a.Source = nil })
	f(`must be the address of Envoy's client (got \"unknown\")`, func(a *auth.AttributeContext, _ *auth.AttributeContext_HttpRequest) {
		a.Source.Address = addressed("unknown")
	})
	f("must be the address", func(a *auth.AttributeContext, _ *auth.AttributeContext_HttpRequest) {
		a.Source.Address = &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: "/run/envoy"}}}
	})
	http := func(fault string, change func(h *auth.AttributeContext_HttpRequest)) {
		t.Helper()
		f(fault, func(_ *auth.AttributeContext, h *auth.AttributeContext_HttpRequest) { change(h) })
	}
	http("attributes.request.http.host: is empty", func(h *auth.AttributeContext_HttpRequest) { h.Host = "" })
	http("the host is neither a name nor an address", func(h *auth.AttributeContext_HttpRequest) { h.Host = "a b" })
	http("attributes.request.http.query: must be empty", func(h *auth.AttributeContext_HttpRequest) { h.Query = "a=b" })
	http("the method is not one of HTTP's", func(h *auth.AttributeContext_HttpRequest) { h.Method = "G(ET" })
	http("the request target * is for OPTIONS only", func(h *auth.AttributeContext_HttpRequest) { h.Path = "*" })
	http("the request target has a control character", func(h *auth.AttributeContext_HttpRequest) { h.Path = "/api/x\r\nx-tier: pro" })
	http("path", func(h *auth.AttributeContext_HttpRequest) { h.Path = "" })
	http("path", func(h *auth.AttributeContext_HttpRequest) { h.Path = "http://shop.example.com/api/x" })
	http("the path can be read in several ways", func(h *auth.AttributeContext_HttpRequest) { h.Path = "/api/%2e%2e/x" })
	http("has headers and header_map", func(h *auth.AttributeContext_HttpRequest) {
		h.HeaderMap = &core.HeaderMap{Headers: []*core.HeaderValue{{Key: "a"}}}
	})
	http("is not the name of a header in lower case", func(h *auth.AttributeContext_HttpRequest) { h.Headers["X-Api-Key"] = "one" })
	http("is not the name of a header in lower case", func(h *auth.AttributeContext_HttpRequest) { h.Headers[""] = "one" })
	http("X-Api-Key", func(h *auth.AttributeContext_HttpRequest) { h.Path, h.Headers["x-api-key"] = "/keyed", "one,two" })
	http("X-Api-Key", func(h *auth.AttributeContext_HttpRequest) { h.Path, h.Headers["x-api-key"] = "/keyed", "one," })
	deny(400, "X-Api-Key", raw(envoyAsks(client, "GET", "/keyed"), "x-api-key: one", "x-api-key: two"))
	require.Equal(t, 200, e.check(envoyAsks(client, "GET", "/keyed", "x-api-key: one, two")).status, "one list")
	require.Equal(t, 200, e.check(raw(envoyAsks(client, "GET", "/keyed"), "x-api-key: \xff,")).status, "bytes that are no text are a value")
	deny(400, "has a control character", raw(envoyAsks(client, "GET", "/keyed"), "x-api-key: one\x00"))
	http("has a control character", func(h *auth.AttributeContext_HttpRequest) { h.Headers["x-other"] = "a\x0b" })
	for _, name := range lookAlikes {
		deny(400, name, envoyAsks(client, "GET", "/api/x", name+": 1"))
		deny(400, name, raw(envoyAsks(client, "GET", "/api/x"), name+": 1"))
	}
	deny(431, "Request header fields too large", envoyAsks(client, "GET", "/api/x", "x-long: "+strings.Repeat("x", 60<<10)))
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf("x-%d: y", i)
	}
	deny(431, "Request header fields too large", raw(envoyAsks(client, "GET", "/api/x"), many...))
	require.EqualValues(t, 3, n.explained("api", client, "&path=/api/x").Remaining, "nothing was charged")

	send := func(message []byte) (answer []byte, err error) {
		err = e.conn.Invoke(context.Background(), auth.Authorization_Check_FullMethodName, &message, &answer, grpc.ForceCodecV2(rawCodec{}))
		return answer, err
	}
	// A failed call would pass with failure_mode_allow, so a client must not be able to make one.
	unreadable := [][]byte{[]byte("\xff\xff\xff"), []byte("\x0a\x7fx"), []byte("\x0a\x07\x22\x05\x12\x03\x12\x01\xff")}
	for _, where := range []func(*auth.AttributeContext_HttpRequest){
		func(h *auth.AttributeContext_HttpRequest) { h.Path = "/api/x?mark" },
		func(h *auth.AttributeContext_HttpRequest) { h.Method = "mark" },
		func(h *auth.AttributeContext_HttpRequest) { h.Host = "mark" },
		func(h *auth.AttributeContext_HttpRequest) { h.Headers["x-other"] = "mark" },
	} {
		q := envoyAsks(client, "GET", "/api/x")
		where(q.Attributes.Request.Http)
		message, err := protobuf.Marshal(q)
		require.NoError(t, err)
		unreadable = append(unreadable, bytes.Replace(message, []byte("mark"), []byte("\xff\xfe\xfd\xfc"), 1))
	}
	for _, message := range unreadable {
		answer, err := send(message)
		require.NoError(t, err, "%q", message)
		var r auth.CheckResponse
		require.NoError(t, protobuf.Unmarshal(answer, &r))
		require.EqualValues(t, 400, r.GetDeniedResponse().GetStatus().GetCode())
		require.Contains(t, r.GetDeniedResponse().GetBody(), "is not UTF-8")
	}
	_, err := send(make([]byte, 400_000))
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.EqualValues(t, 3, n.explained("api", client, "&path=/api/x").Remaining, "nothing was charged")
	require.Zero(t, n.metric("weir_panics_total"))
}

func TestAuthorizationPanics(t *testing.T) {
	n, e := authzNode(t, setup{rules: gatewayRules, change: seePanics})
	_, err := e.client.Check(context.Background(), envoyAsks("203.0.113.1", "GET", "/free"))
	require.Equal(t, codes.Internal, status.Code(err))
	require.EqualValues(t, 1, n.metric("weir_panics_total"))
	require.NotEmpty(t, n.logs.lines(t, "external authorization panicked"))
}

// Reading a message, deciding and writing the answer allocate nothing.
func TestAuthorizationAllocatesNothing(t *testing.T) {
	e := inMemory(t, fmt.Sprintf(allocRules, 10_000, 1_000_000, 1_000_000))
	s := &authz.Service{Decider: &e.decider, MaxHeaders: 16 << 10, Answered: e.listeners.Gateways("ext_authz"), Panicked: func(p any) { panic(p) }}
	var method registered
	s.Register(&method)
	for _, c := range []struct {
		q    *auth.CheckRequest
		code codes.Code
	}{
		{envoyAsks("203.0.113.1", "GET", "/api/users/42", "x-api-key: example", "cookie: a=b; c=d"), codes.OK},
		{raw(envoyAsks("203.0.113.1", "GET", "/api/users/42", "x-api-key: example", "cookie: a=b; c=d")), codes.OK},
	} {
		message, err := protobuf.Marshal(c.q)
		require.NoError(t, err)
		data := mem.BufferSlice{mem.SliceBuffer(message)}
		var out []byte
		call := func() {
			answer, err := method.Handler(s, context.Background(), func(v any) error { v.(envoy.Call).Read(data); return nil }, nil)
			require.NoError(t, err)
			out = answer.(envoy.Call).Append(out[:0])
			answer.(envoy.Call).Release()
		}
		call()
		var r auth.CheckResponse
		require.NoError(t, protobuf.Unmarshal(out, &r))
		require.EqualValues(t, c.code, r.Status.Code)
		require.LessOrEqual(t, testing.AllocsPerRun(2000, call), bound(1), "the function that reads the message")
	}
}

// registered is the method of a service.
type registered struct{ grpc.MethodDesc }

// RegisterService implements grpc.ServiceRegistrar.
func (r *registered) RegisterService(d *grpc.ServiceDesc, _ any) { r.MethodDesc = d.Methods[0] }
