package rls

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-edge/weir/internal/testenv"
)

// message is a request with all fields, some twice.
func message(t testing.TB) []byte {
	t.Helper()
	q := asking("user", "bob", "path", "/a")
	q.HitsAddend = 3
	q.Descriptors[0].Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 50, Unit: envoytype.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(2)}
	q.Descriptors[1].HitsAddend, q.Descriptors[1].IsNegativeHits = wrapperspb.UInt64(1<<40), true
	b, err := proto.Marshal(q)
	require.NoError(t, err)
	other, err := proto.Marshal(&ratelimit.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(0), Limit: &ratelimit.RateLimitDescriptor_RateLimitOverride{UnitMultiplier: &wrapperspb.UInt32Value{}}})
	require.NoError(t, err)
	twice := append(other, other...) // messages that occur twice are merged
	twice = protowire.AppendFixed64(protowire.AppendTag(twice, 9, protowire.Fixed64Type), 7)
	twice = protowire.AppendTag(protowire.AppendTag(twice, 10, protowire.StartGroupType), 10, protowire.EndGroupType)
	b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), twice)
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 1) // of another type: unknown
}

// compare reads b as proto does, and as calls do, with what earlier ones left in c.
func compare(t testing.TB, c *call, b []byte) {
	t.Helper()
	want := &pb.RateLimitRequest{}
	err := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, want)
	valid := c.Read(mem.BufferSlice{mem.SliceBuffer(b[:len(b)/2]), mem.SliceBuffer(b[len(b)/2:])})
	same := func() bool {
		if len(want.Descriptors) > maxDescriptors || slices.ContainsFunc(want.Descriptors, func(d *ratelimit.RateLimitDescriptor) bool { return len(d.Entries) > maxPairs }) {
			return len(want.Descriptors) == len(c.request.Descriptors) // and the call is refused
		}
		return proto.Equal(want, &c.request)
	}
	if valid != (err == nil) || valid && !same() {
		t.Fatalf("%x\nproto: %v %v\ncall:  %v", b, want, err, &c.request)
	}
	c.forget()
}

// A call reads what proto reads, and refuses what proto refuses.
func TestReadsAsProto(t *testing.T) {
	c, seed := &call{}, message(t)
	compare(t, c, seed)
	r := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		b := append([]byte(nil), seed...)
		for range 1 + r.IntN(4) {
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
			if len(b) == 0 {
				break
			}
		}
		compare(t, c, b)
	}
}

// A message that is refused for its many parts costs no more than 32 bytes of memory for each of its own.
func TestReadIsBounded(t *testing.T) {
	c := &call{}
	read := func(b []byte, want string) {
		t.Helper()
		testenv.Bounded(t, 2<<20, func() { require.True(t, c.Read(mem.BufferSlice{mem.SliceBuffer(b)})) })
		c.request.Domain = "edge"
		require.ErrorContains(t, c.read(), want)
		c.forget()
	}
	empty := bytes.Repeat([]byte{1<<3 | 2, 0}, MaxMessage/2-4)
	read(bytes.Repeat([]byte{2<<3 | 2, 0}, MaxMessage/2), "descriptors: must be at most 64 (got 32768)")
	read(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), empty), "descriptors[0].entries: must be 1 to 16 (got 32764)")
}

func FuzzRead(f *testing.F) {
	f.Add(message(f))
	f.Add([]byte("\xff\xff\xff"))
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
		a := &c.response
		a.OverallCode, a.RawBody = pb.RateLimitResponse_Code(r.IntN(3)), []byte(text())
		for range r.IntN(5) {
			s := &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_Code(r.IntN(3)), LimitRemaining: r.Uint32() >> r.IntN(33)}
			if r.IntN(2) == 0 {
				s.CurrentLimit = &pb.RateLimitResponse_RateLimit{Name: text(), RequestsPerUnit: r.Uint32() >> r.IntN(33), Unit: pb.RateLimitResponse_RateLimit_Unit(r.IntN(8))}
				if r.IntN(2) == 0 {
					s.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(r.Uint32() >> r.IntN(33))
				}
			}
			if r.IntN(2) == 0 {
				s.DurationUntilReset = &durationpb.Duration{Seconds: r.Int64N(3_000_000), Nanos: r.Int32N(2) * r.Int32N(1_000_000_000)}
			}
			a.Statuses = append(a.Statuses, s)
		}
		for range r.IntN(4) {
			a.ResponseHeadersToAdd = append(a.ResponseHeadersToAdd, &core.HeaderValue{Key: text(), Value: text()})
		}
		if r.IntN(3) == 0 {
			a.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{"limited_by": structpb.NewStringValue(text())}}
		}
		want, err := proto.Marshal(a)
		require.NoError(t, err)
		got, err := c.Append([]byte("before"))
		require.NoError(t, err)
		require.Equal(t, want, got[len("before"):], "%v", a)
	}
}

func BenchmarkCall(b *testing.B) {
	s := service(b)
	q, err := proto.Marshal(asking("user", "bob"))
	require.NoError(b, err)
	c := &call{service: s}
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		c.Rules = s.Decider.Rules()
		if !c.Read(mem.BufferSlice{mem.SliceBuffer(q)}) {
			b.Fatal("malformed")
		}
		if _, err := c.decide(); err != nil {
			b.Fatal(err)
		}
		if out, err = c.Append(out[:0]); err != nil {
			b.Fatal(err)
		}
		c.Reset()
		c.forget()
		c.descriptors, c.pairs = c.descriptors[:0], c.pairs[:0]
		c.answer.reset()
	}
}
