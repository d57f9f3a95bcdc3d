package authz

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// described is a request as Envoy describes it, with fields that no decision reads.
func described() *pb.CheckRequest {
	address := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{Address: "203.0.113.1", PortSpecifier: &core.SocketAddress_PortValue{PortValue: 4711}}}}
	return &pb.CheckRequest{Attributes: &pb.AttributeContext{
		Source: &pb.AttributeContext_Peer{Address: address, Principal: "spiffe://a/b"}, Destination: &pb.AttributeContext_Peer{Address: address},
		ContextExtensions: map[string]string{"a": "b"}, TlsSession: &pb.AttributeContext_TLSSession{Sni: "shop.example.com"},
		MetadataContext: &core.Metadata{FilterMetadata: map[string]*structpb.Struct{"a": {Fields: map[string]*structpb.Value{"b": structpb.NewNumberValue(1)}}}},
		Request: &pb.AttributeContext_Request{Time: timestamppb.New(time.Unix(1_800_000_000, 0)), Http: &pb.AttributeContext_HttpRequest{
			Id: "1", Method: "GET", Path: "/hello", Host: "shop.example.com", Scheme: "https", Protocol: "HTTP/2", Size: -1, Body: "body", RawBody: []byte("\xff"),
			Headers: map[string]string{":method": "GET", ":path": "/hello", "accept": "*/*", "user-agent": "Mozilla/5.0", "x-user": "bob", "": ""},
		}},
	}}
}

// seeds are messages that have every field, in both forms of headers, some twice.
func seeds(t testing.TB) (list [][]byte) {
	t.Helper()
	joined, raw := described(), described()
	h := raw.Attributes.Request.Http
	h.Headers, h.Query, h.Fragment = nil, "a=b", "c"
	h.HeaderMap = &core.HeaderMap{Headers: []*core.HeaderValue{{Key: "a", Value: "b"}, {Key: "a", RawValue: []byte("\xff")}, {}}}
	piped := &pb.CheckRequest{Attributes: &pb.AttributeContext{Source: &pb.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: "/run/envoy"}}}}}}
	internal := &pb.CheckRequest{Attributes: &pb.AttributeContext{Source: &pb.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_EnvoyInternalAddress{EnvoyInternalAddress: &core.EnvoyInternalAddress{}}}}}}
	for _, q := range []*pb.CheckRequest{joined, raw, piped, internal, {}} {
		b, err := proto.Marshal(q)
		require.NoError(t, err)
		list = append(list, b)
	}
	both := append(append([]byte(nil), list[0]...), list[1]...)
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1) // of another type
	unknown = protowire.AppendFixed64(protowire.AppendTag(unknown, 99, protowire.Fixed64Type), 7)
	unknown = protowire.AppendTag(protowire.AppendTag(unknown, 100, protowire.StartGroupType), 100, protowire.EndGroupType)
	return append(list, both, append(append([]byte(nil), both...), list[2]...), append(append([]byte(nil), list[2]...), both...), append(unknown, both...))
}

// needed returns what decisions need of a message of Envoy's own type.
func needed(q *pb.CheckRequest) *pb.CheckRequest {
	h := q.GetAttributes().GetRequest().GetHttp()
	return form(q.GetAttributes().GetSource().GetAddress().GetSocketAddress().GetAddress(), h != nil, &pb.AttributeContext_HttpRequest{
		Method: h.GetMethod(), Path: h.GetPath(), Host: h.GetHost(), Query: h.GetQuery(), Fragment: h.GetFragment(),
		Headers: h.GetHeaders(), HeaderMap: &core.HeaderMap{Headers: h.GetHeaderMap().GetHeaders()},
	})
}

// message returns the request as Envoy's own type.
func (q *request) message() *pb.CheckRequest {
	m := &core.HeaderMap{}
	for _, h := range q.raw {
		m.Headers = append(m.Headers, &core.HeaderValue{Key: h.name, Value: h.text, RawValue: h.raw})
	}
	return form(q.source, q.http, &pb.AttributeContext_HttpRequest{
		Method: q.method, Path: q.path, Host: q.host, Query: q.query, Fragment: q.fragment, Headers: q.joined, HeaderMap: m,
	})
}

func form(source string, stated bool, h *pb.AttributeContext_HttpRequest) *pb.CheckRequest {
	q := &pb.CheckRequest{Attributes: &pb.AttributeContext{Source: &pb.AttributeContext_Peer{Service: source}, Request: &pb.AttributeContext_Request{}}}
	if stated {
		q.Attributes.Request.Http = h
	}
	return q
}

// compare reads b as proto does, and as calls do, with what earlier ones left in c. Calls may
// accept more: they skip the fields that they do not need.
func compare(t testing.TB, c *call, b []byte) {
	t.Helper()
	want := &pb.CheckRequest{}
	err := proto.Unmarshal(b, want)
	c.Read(mem.BufferSlice{mem.SliceBuffer(b[:len(b)/2]), mem.SliceBuffer(b[len(b)/2:])})
	if err == nil && (c.malformed || !proto.Equal(needed(want), c.request.message())) {
		t.Fatalf("%x\nproto: %v\ncall:  %v %v", b, want, c.malformed, c.request.message())
	}
	c.forget()
}

// A call reads what proto reads.
func TestReadsAsProto(t *testing.T) {
	c, all := &call{}, seeds(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, seed := range all {
		compare(t, c, seed)
		for range 3000 {
			b := append([]byte(nil), seed...)
			for range 1 + r.IntN(3) {
				if len(b) == 0 {
					break
				}
				switch at := r.IntN(len(b)); r.IntN(4) {
				case 0:
					b[at] = byte(r.Uint32())
				case 1:
					b = append(b[:at], b[min(len(b), at+1+r.IntN(3)):]...)
				case 2:
					b = append(b[:at:at], append([]byte{byte(r.Uint32())}, b[at:]...)...)
				default:
					b = append(b, b[at:]...)
				}
			}
			compare(t, c, b)
		}
	}
}

// A call refuses text that is not UTF-8 and parts that are cut off, wherever it reads them.
func TestRefusesAsProto(t *testing.T) {
	q := described()
	h := q.Attributes.Request.Http
	h.Query, h.Fragment, h.HeaderMap = "mark5", "mark6", &core.HeaderMap{Headers: []*core.HeaderValue{{Key: "mark7", Value: "mark8"}}}
	h.Method, h.Path, h.Host, h.Headers = "mark1", "mark2", "mark3", map[string]string{"mark4": "mark9"}
	q.Attributes.Source.Address.GetSocketAddress().Address = "mark0"
	message, err := proto.Marshal(q)
	require.NoError(t, err)
	c := &call{}
	for _, digit := range "0123456789" {
		for _, change := range []func([]byte, int){
			func(b []byte, at int) { b[at] = 0xff },
			func(b []byte, at int) { b[at-1] = 0x7f }, // its length
		} {
			b := append([]byte(nil), message...)
			change(b, strings.Index(string(message), "mark"+string(digit)))
			require.Error(t, proto.Unmarshal(b, &pb.CheckRequest{}))
			c.Read(mem.BufferSlice{mem.SliceBuffer(b)})
			require.True(t, c.malformed, "%c", digit)
			c.forget()
		}
	}
}

// A large message leaves nothing behind, and the next one is read.
func TestForgetsLargeMessages(t *testing.T) {
	c := &call{}
	for _, change := range []func(*pb.AttributeContext_HttpRequest){
		func(h *pb.AttributeContext_HttpRequest) { h.Body = strings.Repeat("x", 200<<10) },
		func(h *pb.AttributeContext_HttpRequest) {
			h.HeaderMap = &core.HeaderMap{Headers: make([]*core.HeaderValue, 10_000)}
			for i := range h.HeaderMap.Headers {
				h.HeaderMap.Headers[i] = &core.HeaderValue{}
			}
		},
	} {
		q := described()
		change(q.Attributes.Request.Http)
		b, err := proto.Marshal(q)
		require.NoError(t, err)
		compare(t, c, b)
		require.Zero(t, cap(c.wire)+cap(c.request.raw)+len(c.request.joined))
		compare(t, c, seeds(t)[0])
		require.NotNil(t, c.request.joined, "kept for the next call")
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range seeds(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &call{}
		compare(t, c, b)
		compare(t, c, b)
	})
}

// Answers are written as proto writes them.
func TestWritesAsProto(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	text := func() string { return strings.Repeat("x", r.IntN(3)*r.IntN(200)) }
	for range 5000 {
		c := &call{}
		if r.IntN(2) == 0 {
			c.code, c.status = codes.PermissionDenied, 400+r.IntN(200)
			c.fields.SetBody([]byte(text()))
		}
		var headers []*core.HeaderValueOption
		for range r.IntN(4) {
			name, value := text(), text()
			c.fields.Add(name, []byte(value))
			headers = append(headers, &core.HeaderValueOption{Header: &core.HeaderValue{Key: name, Value: value}, AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD})
		}
		want := &pb.CheckResponse{Status: &rpc.Status{Code: int32(c.code)}}
		if c.code == codes.OK {
			want.HttpResponse = &pb.CheckResponse_OkResponse{OkResponse: &pb.OkHttpResponse{ResponseHeadersToAdd: headers}}
		} else {
			want.HttpResponse = &pb.CheckResponse_DeniedResponse{DeniedResponse: &pb.DeniedHttpResponse{
				Status: &envoytype.HttpStatus{Code: envoytype.StatusCode(c.status)}, Headers: headers, Body: string(c.fields.Body()),
			}}
		}
		message, err := proto.Marshal(want)
		require.NoError(t, err)
		require.Equal(t, message, c.Append([]byte("before"))[len("before"):], "%v", want)
	}
	require.Equal(t, pb.Authorization_ServiceDesc.ServiceName, method.ServiceName)
	require.Equal(t, pb.Authorization_ServiceDesc.Metadata, method.Metadata)
	require.Equal(t, pb.Authorization_ServiceDesc.Methods[0].MethodName, method.Methods[0].MethodName)
}

type active struct{ set *rules.Set }

func (a active) Set() *rules.Set         { return a.set }
func (a active) Decided(*decide.Request) {}

func BenchmarkCall(b *testing.B) {
	set, err := rules.Load([]byte("rules:\n  - {id: user, key: [\"header:X-User\"], algorithm: fixed_window, limit: 1000000000, window: 24h}\n"))
	require.NoError(b, err)
	denied := limiter.NewDenied(memory.New(memory.Config{}), 1000, 0)
	s := &Service{
		Decider:    &decide.Decider{Log: slog.New(slog.DiscardHandler), Rules: func() decide.Rules { return active{set} }, Precheck: denied, Take: denied},
		MaxHeaders: 16 << 10, Answered: func(gateway.Answer, time.Duration) {}, Panicked: func(p any) { panic(p) },
	}
	q := described()
	delete(q.Attributes.Request.Http.Headers, "")
	message, err := proto.Marshal(q)
	require.NoError(b, err)
	codec, data := envoy.NewCodec(), mem.BufferSlice{mem.SliceBuffer(message)}
	b.ReportAllocs()
	for b.Loop() {
		c, err := s.handle(context.Background(), func(v any) error { return codec.Unmarshal(data, v) })
		if err != nil {
			b.Fatal(err)
		}
		out, err := codec.Marshal(c)
		if err != nil {
			b.Fatal(err)
		}
		out.Free()
	}
}
