package rls

import (
	"context"
	"log/slog"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

type active struct{ set *rules.Set }

func (a active) Set() *rules.Set         { return a.set }
func (a active) Decided(*decide.Request) {}

func service(t testing.TB) *Service {
	t.Helper()
	set, err := rules.Load([]byte(`rules:
  - {id: user, domain: edge, descriptors: [{key: user}], key: [descriptor], algorithm: fixed_window, limit: 1000000, window: 24h}
  - {id: path, domain: edge, descriptors: [{key: path, value: "/a*"}], key: [descriptor], algorithm: sliding_window, limit: 1, window: 24h}
  - {id: seen, domain: edge, descriptors: [{key: path}], key: [], algorithm: fixed_window, limit: 1, window: 24h, mode: shadow}
`))
	require.NoError(t, err)
	denied := limiter.NewDenied(memory.New(memory.Config{}), 1000, 0)
	return &Service{
		Decider: &decide.Decider{
			Log:      slog.New(slog.DiscardHandler),
			Rules:    func() decide.Rules { return active{set} },
			Precheck: denied, Take: denied,
		},
		Headers: true, Legacy: true,
		Done: func(Outcome, time.Duration) {},
	}
}

func asking(list ...string) *pb.RateLimitRequest {
	q := &pb.RateLimitRequest{Domain: "edge"}
	for i := 0; i < len(list); i += 2 {
		q.Descriptors = append(q.Descriptors, &ratelimit.RateLimitDescriptor{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: list[i], Value: list[i+1]}}})
	}
	return q
}

func sent(t testing.TB, q *pb.RateLimitRequest) mem.BufferSlice {
	t.Helper()
	message, err := proto.Marshal(q)
	require.NoError(t, err)
	return mem.BufferSlice{mem.SliceBuffer(message)}
}

// Reading a call, deciding and writing the answer allocate nothing, whatever is decided.
func TestCallAllocatesNothing(t *testing.T) {
	s := service(t)
	f := func(q *pb.RateLimitRequest, want Outcome) {
		t.Helper()
		c := &call{service: s}
		c.Rules = s.Decider.Rules()
		data, out := sent(t, q), []byte(nil)
		run := func() {
			c.Read(data)
			got, err := c.decide()
			if err != nil || got != want {
				panic(got)
			}
			out = c.Append(out[:0])
			rules := c.Rules
			c.Release()
			c.Rules = rules
		}
		run()
		run()
		require.LessOrEqual(t, testing.AllocsPerRun(200, run), float64(allowed))
	}
	f(asking("user", "bob"), OK)
	f(asking("user", "bob", "user", "carol", "none", "x"), OK)
	one := &call{service: s}
	one.Rules = s.Decider.Rules()
	one.Read(sent(t, asking("path", "/a")))
	_, err := one.decide()
	require.NoError(t, err)
	f(asking("user", "bob", "path", "/a"), OverLimit) // from memory
	f(asking("path", "/b"), OK)                       // the shadow rule refuses
}

// A pooled call answers as a fresh one does: nothing of one call is left for the next.
func TestCallsDoNotMix(t *testing.T) {
	s := service(t)
	answer := func(q *pb.RateLimitRequest) *pb.RateLimitResponse {
		t.Helper()
		v, err := s.handle(context.Background(), func(v any) error { return envoy.NewCodec().Unmarshal(sent(t, q), v) })
		require.NoError(t, err)
		data, err := envoy.NewCodec().Marshal(v)
		require.NoError(t, err)
		a := &pb.RateLimitResponse{}
		require.NoError(t, proto.Unmarshal(data.Materialize(), a))
		return a
	}
	answer(asking("path", "/a"))
	for range 10 {
		a := answer(asking("user", "bob", "path", "/a"))
		require.Equal(t, pb.RateLimitResponse_OVER_LIMIT, a.OverallCode)
		require.Len(t, a.Statuses, 2)
		require.NotEmpty(t, a.RawBody)
		a = answer(asking("none", "x"))
		require.True(t, proto.Equal(&pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: []*pb.RateLimitResponse_DescriptorStatus{{Code: pb.RateLimitResponse_OK}}}, a), a)
	}
}
