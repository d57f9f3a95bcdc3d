package rls

import (
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Append implements envoy.Wire. It writes the fields that answers have as proto.Marshal would.
func (c *call) Append(b []byte) ([]byte, error) {
	r := &c.response
	b = appendNumber(b, 1, uint64(r.OverallCode))
	for _, s := range r.Statuses {
		b = appendStatus(b, s)
	}
	for _, h := range r.ResponseHeadersToAdd {
		b = appendHeader(b, h)
	}
	if len(r.RawBody) > 0 {
		b = appendText(b, 5, r.RawBody)
	}
	if r.DynamicMetadata != nil {
		var err error
		start := begin(&b, 6)
		if b, err = (proto.MarshalOptions{}).MarshalAppend(b, r.DynamicMetadata); err != nil {
			return nil, err
		}
		b = end(b, start)
	}
	return b, nil
}

func appendStatus(b []byte, s *pb.RateLimitResponse_DescriptorStatus) []byte {
	status := begin(&b, 2)
	b = appendNumber(b, 1, uint64(s.Code))
	if l := s.CurrentLimit; l != nil {
		limit := begin(&b, 2)
		b = appendNumber(b, 1, uint64(l.RequestsPerUnit))
		b = appendNumber(b, 2, uint64(l.Unit))
		b = appendText(b, 3, l.Name)
		if l.UnitMultiplier != nil {
			times := begin(&b, 4)
			b = end(appendNumber(b, 1, uint64(l.UnitMultiplier.Value)), times)
		}
		b = end(b, limit)
	}
	b = appendNumber(b, 3, uint64(s.LimitRemaining))
	if d := s.DurationUntilReset; d != nil {
		reset := begin(&b, 4)
		b = appendNumber(b, 1, uint64(d.Seconds))
		b = end(appendNumber(b, 2, uint64(d.Nanos)), reset)
	}
	return end(b, status)
}

func appendHeader(b []byte, h *core.HeaderValue) []byte {
	header := begin(&b, 3)
	b = appendText(b, 1, h.Key)
	return end(appendText(b, 2, h.Value), header)
}

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func appendText[T string | []byte](b []byte, field protowire.Number, text T) []byte {
	if len(text) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(text)))
	return append(b, text...)
}

// begin opens a message within another, whose length end writes.
func begin(b *[]byte, field protowire.Number) (start int) {
	*b = append(protowire.AppendTag(*b, field, protowire.BytesType), 0)
	return len(*b)
}

// end closes a message. Most are shorter than 128 bytes, so one byte holds their length.
func end(b []byte, start int) []byte {
	n := uint64(len(b) - start)
	if size := protowire.SizeVarint(n); size > 1 {
		b = slices.Grow(b, size-1)[:len(b)+size-1]
		copy(b[start+size-1:], b[start:])
	}
	protowire.AppendVarint(b[:start-1], n)
	return b
}
