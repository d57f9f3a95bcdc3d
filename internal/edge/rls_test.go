package edge

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpccreds "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
)

// caller is an Envoy as far as the protocol goes.
type caller struct {
	t      *testing.T
	conn   *grpc.ClientConn
	client pb.RateLimitServiceClient
}

func newCaller(t *testing.T, address string, c grpccreds.TransportCredentials) *caller {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(c))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &caller{t, conn, pb.NewRateLimitServiceClient(conn)}
}

// rlsNode serves the rate limit service with these rules.
func rlsNode(t *testing.T, s setup) (*node, *caller) {
	t.Helper()
	given := s.config
	s.config = func(c *config.Config) {
		c.Listen.RLS = &config.RLS{Address: "127.0.0.1:0"}
		if given != nil {
			given(c)
		}
	}
	n := start(t, s)
	return n, newCaller(t, n.listeners.Addr("rls").String(), insecure.NewCredentials())
}

// descriptor reads path=/a,user=b.
func descriptor(text string) *ratelimit.RateLimitDescriptor {
	d := &ratelimit.RateLimitDescriptor{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(pair, "=")
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func asking(descriptors ...string) *pb.RateLimitRequest {
	q := &pb.RateLimitRequest{Domain: "edge"}
	for _, d := range descriptors {
		q.Descriptors = append(q.Descriptors, descriptor(d))
	}
	return q
}

func (c *caller) ask(q *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.client.ShouldRateLimit(ctx, q)
}

func (c *caller) call(q *pb.RateLimitRequest) *pb.RateLimitResponse {
	c.t.Helper()
	a, err := c.ask(q)
	require.NoError(c.t, err)
	return a
}

// remaining returns what is left by a descriptor's rule, charging nothing.
func (c *caller) remaining(text string) uint32 {
	c.t.Helper()
	q := asking(text)
	q.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	return c.call(q).Statuses[0].LimitRemaining
}

const rlsRules = `
rules:
  - {id: path, domain: edge, descriptors: [{key: path, not: [/free]}], key: [descriptor], algorithm: fixed_window, limit: 2, window: 24h, max_override: 100}
  - {id: user, domain: edge, descriptors: [{key: user}], key: ["descriptor:user"], algorithm: fixed_window, limit: 10, window: 2h}
  - {id: tight, domain: edge, descriptors: [{key: user, value: "a*"}], key: [], algorithm: sliding_window, limit: 5, window: 1m}
  - {id: trial, domain: edge, descriptors: [{key: trial}], key: [], limit: 1, window: 1h, mode: shadow}
  - {id: http, key: [client_ip], limit: 1, window: 1h}
`

func headersOf(a *pb.RateLimitResponse) map[string]string {
	m := map[string]string{}
	for _, h := range a.ResponseHeadersToAdd {
		m[h.Key] = h.Value
	}
	return m
}

func TestRateLimitService(t *testing.T) {
	clock := newClock()
	n, c := rlsNode(t, setup{rules: rlsRules, clock: clock})

	a := c.call(asking("path=/a", "nothing=1", "user=bob"))
	require.Equal(t, pb.RateLimitResponse_OK, a.OverallCode)
	require.Len(t, a.Statuses, 3)
	s := a.Statuses[0]
	require.Equal(t, pb.RateLimitResponse_OK, s.Code)
	require.Equal(t, "path", s.CurrentLimit.Name)
	require.EqualValues(t, 2, s.CurrentLimit.RequestsPerUnit)
	require.Equal(t, pb.RateLimitResponse_RateLimit_DAY, s.CurrentLimit.Unit)
	require.Nil(t, s.CurrentLimit.UnitMultiplier)
	require.EqualValues(t, 1, s.LimitRemaining)
	require.Equal(t, time.Duration(86400-1_800_000_000%86400)*time.Second, s.DurationUntilReset.AsDuration(), "until midnight, UTC")
	require.Nil(t, a.Statuses[1].CurrentLimit, "no rule counts it")
	require.Equal(t, pb.RateLimitResponse_RateLimit_HOUR, a.Statuses[2].CurrentLimit.Unit)
	require.EqualValues(t, 2, a.Statuses[2].CurrentLimit.UnitMultiplier.Value)
	require.Equal(t, `"path";q=2;w=86400, "user";q=10;w=7200`, headersOf(a)["ratelimit-policy"])
	require.Contains(t, headersOf(a)["ratelimit"], `"path";r=1;t=`)
	require.Nil(t, a.DynamicMetadata)
	require.Empty(t, a.RawBody)

	c.call(asking("path=/a"))
	for range 2 { // from the store, then from memory where there is one
		a = c.call(asking("user=bob", "path=/a"))
		require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, a.OverallCode)
		require.Equal(t, pb.RateLimitResponse_OK, a.Statuses[0].Code)
		require.EqualValues(t, 9, a.Statuses[0].LimitRemaining, "not charged: another descriptor refused")
		require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, a.Statuses[1].Code)
		require.Zero(t, a.Statuses[1].LimitRemaining)
		require.NotEmpty(t, headersOf(a)["retry-after"])
		require.Equal(t, "application/problem+json", headersOf(a)["content-type"])
		require.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"violated-policies":["path"]}`, string(a.RawBody))
		require.Equal(t, "path", a.DynamicMetadata.Fields["limited_by"].GetStringValue())
		require.Positive(t, a.DynamicMetadata.Fields["retry_after"].GetNumberValue())
	}

	// Of two rules on a descriptor the tighter one shows.
	a = c.call(asking("user=ann"))
	require.Equal(t, "tight", a.Statuses[0].CurrentLimit.Name)
	require.Equal(t, pb.RateLimitResponse_RateLimit_MINUTE, a.Statuses[0].CurrentLimit.Unit)

	// A rule in shadow refuses nothing.
	c.call(asking("trial=1"))
	a = c.call(asking("trial=1"))
	require.Equal(t, pb.RateLimitResponse_OK, a.OverallCode)
	require.Equal(t, pb.RateLimitResponse_OK, a.Statuses[0].Code)
	require.Equal(t, "trial", a.DynamicMetadata.Fields["shadow_limited_by"].GetStringValue())
	require.Empty(t, a.DynamicMetadata.Fields["limited_by"].GetStringValue())

	// Neither side counts the other's.
	q := asking("path=/z")
	q.Domain = "elsewhere"
	require.Equal(t, pb.RateLimitResponse_OK, c.call(q).OverallCode)
	require.Equal(t, 200, n.get("/a").status)
	require.Equal(t, 429, n.get("/a").status)

	// Time passes.
	clock.advance(24 * time.Hour)
	require.EqualValues(t, 2, c.remaining("path=/a"))
	require.EqualValues(t, 3, n.metric(`weir_decisions_total{rule="path",outcome="allowed",source="memory"}`), "two, and the look")
	require.EqualValues(t, 2, n.metric(`weir_rls_calls_total{outcome="over_limit"}`))
	require.EqualValues(t, 7, n.metric(`weir_rls_calls_total{outcome="ok"}`))
	require.EqualValues(t, 9, n.metric("weir_rls_call_seconds"))
	require.NotEmpty(t, n.logs.lines(t, "request limited"))
}

func TestRateLimitServiceSeparate(t *testing.T) {
	off := false
	_, c := rlsNode(t, setup{clock: newClock(), rules: rlsRules, config: func(c *config.Config) {
		c.Listen.RLS.Descriptors, c.Listen.RLS.Headers = config.DescriptorsSeparate, &off
	}})
	for want := uint32(9); want >= 7; want-- {
		a := c.call(asking("path=/a", "user=bob"))
		require.EqualValues(t, want, a.Statuses[1].LimitRemaining, "charged, whatever the other one says")
		require.Equal(t, want == 7, a.OverallCode == pb.RateLimitResponse_OVER_LIMIT)
		require.NotContains(t, headersOf(a), "ratelimit")
	}
}

// An operator explains and resets what a descriptor counts.
func TestRateLimitServiceExplained(t *testing.T) {
	n, c := rlsNode(t, setup{clock: newClock(), rules: rlsRules})
	c.call(asking("user=ann"))
	explain := func() (remaining []int64) {
		a := n.operate("GET", "/v1/explain?domain=edge&entry=user%3Dann")
		require.Equal(t, 200, a.status, a.body)
		var e adminapi.Explanation
		require.NoError(t, json.Unmarshal([]byte(a.body), &e))
		require.Equal(t, "pass", e.Verdict)
		for _, r := range e.Rules {
			remaining = append(remaining, r.Remaining)
		}
		return remaining
	}
	require.Equal(t, []int64{9, 4}, explain(), "by user and tight")
	require.Equal(t, []int64{9, 4}, explain(), "explaining charges nothing")
	a := n.operate("DELETE", "/v1/limits?rule=user&domain=edge&entry=user%3Dann")
	require.Equal(t, 200, a.status, a.body)
	require.Equal(t, []int64{10, 4}, explain())
	require.Equal(t, 404, n.operate("DELETE", "/v1/limits?rule=path&domain=edge&entry=user%3Dann").status)
	for query, fault := range map[string]string{
		"entry=user%3Dann":       "domain: must be given with entry",
		"domain=edge":            "entry: must be given 1 to 16 times",
		"domain=edge&entry=user": `entry: must be key=value (got \"user\")`,
		"domain=edge&entry=user%3Dann&client=203.0.113.7":  "client: a call has domain and entry only",
		"domain=edge" + strings.Repeat("&entry=a%3Db", 17): "(got 17)",
	} {
		a := n.operate("GET", "/v1/explain?"+query)
		require.Equal(t, 400, a.status)
		require.Contains(t, a.body, fault)
	}
}

func TestRateLimitServiceHits(t *testing.T) {
	_, c := rlsNode(t, setup{clock: newClock(), rules: rlsRules})
	q := asking("user=bob", "user=carol", "user=bob")
	q.HitsAddend = 3
	q.Descriptors[1].HitsAddend = wrapperspb.UInt64(7)
	a := c.call(q)
	require.EqualValues(t, []uint32{4, 3, 4}, []uint32{a.Statuses[0].LimitRemaining, a.Statuses[1].LimitRemaining, a.Statuses[2].LimitRemaining}, "hits of one key add up")
	require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, c.call(q).OverallCode)
	require.EqualValues(t, 4, c.remaining("user=bob"), "all or nothing")
	q.HitsAddend = 1_000_000_000
	require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, c.call(q).OverallCode)
	require.EqualValues(t, 4, c.remaining("user=bob"))

	q = asking("path=/o")
	q.Descriptors[0].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 50, Unit: envoytype.RateLimitUnit_HOUR}
	q.HitsAddend = 20
	s := c.call(q).Statuses[0]
	require.EqualValues(t, 50, s.CurrentLimit.RequestsPerUnit)
	require.Equal(t, pb.RateLimitResponse_RateLimit_HOUR, s.CurrentLimit.Unit)
	require.EqualValues(t, 30, s.LimitRemaining)
	q.Descriptors[0].Limit.RequestsPerUnit = 5000
	require.EqualValues(t, 100, c.call(q).Statuses[0].CurrentLimit.RequestsPerUnit, "the rule's bound")
	require.EqualValues(t, 2, c.remaining("path=/o"), "the rule's own window is another count")
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func TestRateLimitServiceBadInput(t *testing.T) {
	n, c := rlsNode(t, setup{rules: rlsRules})
	f := func(want string, change func(q *pb.RateLimitRequest)) {
		t.Helper()
		q := asking("user=bob", "path=/a")
		change(q)
		_, err := c.ask(q)
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
		require.Equal(t, want, status.Convert(err).Message())
	}
	f("domain: is empty; set the domain of Envoy's rate limit filter", func(q *pb.RateLimitRequest) { q.Domain = "" })
	f("descriptors: is empty; send at least one", func(q *pb.RateLimitRequest) { q.Descriptors = nil })
	f("descriptors: must be at most 64 (got 1000)", func(q *pb.RateLimitRequest) {
		for len(q.Descriptors) < 1000 {
			q.Descriptors = append(q.Descriptors, descriptor("user=bob"))
		}
	})
	f("descriptors[1].entries: must be 1 to 16 (got 0)", func(q *pb.RateLimitRequest) { q.Descriptors[1].Entries = nil })
	f("descriptors[1].entries: must be 1 to 16 (got 17)", func(q *pb.RateLimitRequest) {
		q.Descriptors[1] = descriptor(strings.TrimSuffix(strings.Repeat("user=bob,", 17), ","))
	})
	f("descriptors[1].entries[0].key: is empty", func(q *pb.RateLimitRequest) { q.Descriptors[1].Entries[0].Key = "" })
	f("descriptors[1].hits_addend: must be at most 1000000000 (got 18446744073709551615)", func(q *pb.RateLimitRequest) {
		q.Descriptors[1].HitsAddend = wrapperspb.UInt64(1<<64 - 1) // -1
	})
	f("descriptors[0].hits_addend: must be at most 1000000000 (got 4294967295)", func(q *pb.RateLimitRequest) { q.HitsAddend = 1<<32 - 1 })
	f("descriptors[1].is_negative_hits: rule path gives no hits back; set overdraft: true there, or remove is_negative_hits", func(q *pb.RateLimitRequest) { q.Descriptors[1].IsNegativeHits = true })
	f("descriptors[1].limit.unit: must be SECOND, MINUTE, HOUR, DAY or MONTH (got UNKNOWN)", func(q *pb.RateLimitRequest) {
		q.Descriptors[1].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1}
	})
	f("descriptors[1].limit.unit: must make a window of at most 744h0m0s (got 1 times YEAR)", func(q *pb.RateLimitRequest) {
		q.Descriptors[1].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: envoytype.RateLimitUnit_YEAR}
	})
	f("descriptors[1].limit.unit: must make a window of at most 744h0m0s (got 4294967295 times DAY)", func(q *pb.RateLimitRequest) {
		q.Descriptors[1].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: envoytype.RateLimitUnit_DAY, UnitMultiplier: wrapperspb.UInt32(1<<32 - 1)}
	})
	f("descriptors[2].limit: differs from that of another descriptor that counts by the same key; send only one of them", func(q *pb.RateLimitRequest) {
		q.Descriptors = append(q.Descriptors, descriptor("path=/a"))
		q.Descriptors[1].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 50, Unit: envoytype.RateLimitUnit_DAY}
	})
	for _, bytes := range [][]byte{[]byte("\xff\xff\xff"), []byte("\x0a\x7fx"), []byte("\x12\x02\x0a\x09"), make([]byte, 100_000)} {
		var answer []byte
		err := c.conn.Invoke(context.Background(), pb.RateLimitService_ShouldRateLimit_FullMethodName, &bytes, &answer, grpc.ForceCodecV2(rawCodec{}))
		if len(bytes) > 64<<10 {
			require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
			continue
		}
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
		require.Contains(t, err.Error(), "not a RateLimitRequest")
	}
	require.EqualValues(t, 10, c.remaining("user=bob"), "nothing was charged")
	require.EqualValues(t, 2, c.remaining("path=/a"))
	require.EqualValues(t, 17, n.metric(`weir_rls_calls_total{outcome="invalid"}`))
	require.Zero(t, n.metric("weir_panics_total"))
}

// A caller that gives up before it has sent its message sent nothing wrong.
func TestRateLimitServiceCanceled(t *testing.T) {
	n, c := rlsNode(t, setup{rules: rlsRules})
	ctx, cancel := context.WithCancel(context.Background())
	_, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, pb.RateLimitService_ShouldRateLimit_FullMethodName)
	require.NoError(t, err)
	require.EqualValues(t, 10, c.remaining("user=bob"), "the node has seen the stream, which began before")
	cancel()
	canceled := func() bool { return n.metric(`weir_rls_calls_total{outcome="canceled"}`) == 1 }
	require.Eventually(t, canceled, patience, time.Millisecond)
	require.Zero(t, n.metric(`weir_rls_calls_total{outcome="invalid"}`))
}

// health returns what the health service reports of the rate limit service.
func (c *caller) health() healthpb.HealthCheckResponse_ServingStatus {
	c.t.Helper()
	a, err := healthpb.NewHealthClient(c.conn).Check(context.Background(), &healthpb.HealthCheckRequest{Service: "envoy.service.ratelimit.v3.RateLimitService"})
	require.NoError(c.t, err)
	return a.Status
}

func TestRateLimitServiceStops(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	n, c := rlsNode(t, setup{rules: rlsRules, redis: redis, config: func(c *config.Config) { c.Store.Timeout, c.Shutdown.Timeout = 10*time.Second, patience }})
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, c.health())
	stream, err := reflectionpb.NewServerReflectionClient(c.conn).ServerReflectionInfo(context.Background())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "envoy.service.ratelimit.v3.RateLimitService"}}))
	described, err := stream.Recv()
	require.NoError(t, err)
	require.NotEmpty(t, described.GetFileDescriptorResponse().GetFileDescriptorProto())
	require.NoError(t, stream.CloseSend())

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	watch, err := healthpb.NewHealthClient(c.conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	state, err := watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, state.Status)

	eventually(t, "the node counts itself", func() bool { return n.metric("weir_store_batch_size") > 0 })
	redis.Suspend()
	batches := n.metric("weir_store_batch_size")
	answers := make(chan error, 1)
	go func() {
		_, err := c.client.ShouldRateLimit(context.Background(), asking("user=bob"))
		answers <- err
	}()
	eventually(t, "the call is in flight", func() bool { return n.metric("weir_store_batch_size") > batches })
	n.cancel()
	state, err = watch.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, state.Status, "clients learn of it first")
	cancel()
	redis.Resume()
	require.NoError(t, <-answers, "the call in flight is answered")
	require.NoError(t, <-n.ended)
	close(n.ended)
}

func TestRateLimitServiceAdmits(t *testing.T) {
	n, _ := rlsNode(t, setup{rules: rlsRules, config: func(c *config.Config) { c.Listen.RLS.From = []string{"192.0.2.0/24"} }})
	conn, err := net.Dial("tcp", n.listeners.Addr("rls").String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err, "closed at once")
	require.EqualValues(t, 1, n.metric(`weir_rls_connections_refused_total{reason="unauthenticated"}`))

	ours, theirs := testenv.NewAuthority(t), testenv.Certificates(t)
	server, client := ours.Issue(time.Hour), ours.Issue(time.Hour)
	n, _ = rlsNode(t, setup{rules: rlsRules, config: func(c *config.Config) {
		c.Listen.RLS.TLS = &config.MutualTLS{Pair: certs.Pair{CertFile: server.CertFile, KeyFile: server.KeyFile}, ClientCAFile: server.CAFile}
	}})
	dial := func(files *testenv.TLSFiles) error {
		pool, err := certs.Pool(server.CAFile)
		require.NoError(t, err)
		config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		if files != nil {
			pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
			require.NoError(t, err)
			config.Certificates = []tls.Certificate{pair}
		}
		_, err = newCaller(t, n.listeners.Addr("rls").String(), grpccreds.NewTLS(config)).ask(asking("user=bob"))
		return err
	}
	require.NoError(t, dial(&client))
	require.Equal(t, codes.Unavailable, status.Code(dial(nil)), "no certificate")
	require.Equal(t, codes.Unavailable, status.Code(dial(&theirs)), "another authority's")
}
