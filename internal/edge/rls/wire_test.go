package rls

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
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
	c.Read(mem.BufferSlice{mem.SliceBuffer(b[:len(b)/2]), mem.SliceBuffer(b[len(b)/2:])})
	same := func() bool {
		if len(want.Descriptors) > maxDescriptors || slices.ContainsFunc(want.Descriptors, func(d *ratelimit.RateLimitDescriptor) bool { return len(d.Entries) > maxPairs }) {
			return len(want.Descriptors) == c.request.sent // and the call is refused
		}
		return proto.Equal(want, c.request.message())
	}
	if c.malformed != (err != nil) || err == nil && !same() {
		t.Fatalf("%x\nproto: %v %v\ncall:  %v %v", b, want, err, c.malformed, c.request.message())
	}
	c.forget()
}

// message returns the request as Envoy's own type.
func (q *request) message() *pb.RateLimitRequest {
	m := &pb.RateLimitRequest{Domain: q.domain, HitsAddend: q.hits}
	for _, d := range q.descriptors {
		one := &ratelimit.RateLimitDescriptor{IsNegativeHits: d.negative}
		for _, p := range d.pairs {
			one.Entries = append(one.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: p.Key, Value: p.Value})
		}
		if d.counted {
			one.HitsAddend = wrapperspb.UInt64(d.hits)
		}
		if d.limited {
			one.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: d.limit.requests, Unit: envoytype.RateLimitUnit(d.limit.unit)}
			if d.limit.multiplied {
				one.Limit.UnitMultiplier = wrapperspb.UInt32(d.limit.times)
			}
		}
		m.Descriptors = append(m.Descriptors, one)
	}
	return m
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
		testenv.Bounded(t, 2<<20, func() { c.Read(mem.BufferSlice{mem.SliceBuffer(b)}) })
		require.False(t, c.malformed)
		c.request.domain = "edge"
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
	code := func(refused bool) pb.RateLimitResponse_Code {
		if refused {
			return pb.RateLimitResponse_OVER_LIMIT
		}
		return pb.RateLimitResponse_OK
	}
	for range 5000 {
		c := &call{}
		a := &c.answer
		a.refused = r.IntN(2) == 0
		a.fields.SetBody([]byte(text()))
		want := &pb.RateLimitResponse{OverallCode: code(a.refused), RawBody: a.fields.Body()}
		for range r.IntN(5) {
			s := descriptorStatus{refused: r.IntN(2) == 0}
			status := &pb.RateLimitResponse_DescriptorStatus{Code: code(s.refused)}
			if s.limited = r.IntN(2) == 0; s.limited {
				s.rule, s.limit, s.remaining, s.unit = text(), r.Uint32()>>r.IntN(33), r.Uint32()>>r.IntN(33), r.Uint32N(8)
				s.times = r.Uint32() >> r.IntN(33)
				s.wait = time.Duration(r.Int64N(3_000_000))*time.Second + time.Duration(r.Int32N(2)*r.Int32N(1_000_000_000))
				status.LimitRemaining, status.DurationUntilReset = s.remaining, durationpb.New(s.wait)
				status.CurrentLimit = &pb.RateLimitResponse_RateLimit{Name: s.rule, RequestsPerUnit: s.limit, Unit: pb.RateLimitResponse_RateLimit_Unit(s.unit)}
				if s.times > 1 {
					status.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(s.times)
				}
			}
			a.statuses, want.Statuses = append(a.statuses, s), append(want.Statuses, status)
		}
		for range r.IntN(4) {
			name, value := text(), text()
			a.fields.Add(name, []byte(value))
			want.ResponseHeadersToAdd = append(want.ResponseHeadersToAdd, &core.HeaderValue{Key: name, Value: value})
		}
		message, err := proto.Marshal(want)
		require.NoError(t, err)
		require.Equal(t, message, c.Append([]byte("before"))[len("before"):], "%v", want)
	}
}

// Envoy's numbers are those of its own types.
func TestNumbersAreEnvoys(t *testing.T) {
	for number, name := range envoytype.RateLimitUnit_name {
		require.Equal(t, name, units[number].name)
	}
	for number, name := range pb.RateLimitResponse_RateLimit_Unit_name {
		require.Equal(t, name, units[number].name)
	}
	require.EqualValues(t, pb.RateLimitResponse_OK, codeOK)
	require.EqualValues(t, pb.RateLimitResponse_OVER_LIMIT, codeOverLimit)
	require.Equal(t, pb.RateLimitService_ServiceDesc.ServiceName, method.ServiceName)
	require.Equal(t, pb.RateLimitService_ServiceDesc.Metadata, method.Metadata)
	require.Equal(t, pb.RateLimitService_ServiceDesc.Methods[0].MethodName, method.Methods[0].MethodName)
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
		c.Read(mem.BufferSlice{mem.SliceBuffer(q)})
		if _, err := c.decide(); err != nil {
			b.Fatal(err)
		}
		out = c.Append(out[:0])
		c.Reset()
		c.forget()
		c.descriptors = c.descriptors[:0]
		c.answer.reset()
	}
}
