package rls

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-edge/weir/internal/edge/envoy"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// request is a RateLimitRequest. It keeps no more descriptors and pairs than a call may have, and
// counts the others. Its buffers are reused.
type request struct {
	domain      string
	descriptors []descriptor
	sent        int // descriptors
	hits        uint32
}

// descriptor is a RateLimitDescriptor.
type descriptor struct {
	pairs    []rules.Pair
	sent     int // pairs
	limit    limit
	hits     uint64
	limited  bool // has a limit of its own
	counted  bool // has hits of its own
	negative bool
}

// limit is a RateLimitOverride.
type limit struct {
	requests, unit, times uint32
	multiplied            bool // has times
}

// Read implements envoy.Call. It reads as proto.Unmarshal does, but drops unknown fields and
// reuses what earlier calls allocated. Strings point into c.wire.
func (c *call) Read(data mem.BufferSlice) {
	c.wire = envoy.Copy(c.wire, data)
	q, r := &c.request, envoy.NewReader(c.wire)
	for r.Next() {
		switch {
		case r.Is(1, protowire.BytesType):
			q.domain = r.Text()
		case r.Is(2, protowire.BytesType):
			r.Check(q.next().read(r.Bytes))
		case r.Is(3, protowire.VarintType):
			q.hits = uint32(r.Number)
		}
	}
	c.malformed = r.Bad
}

// next adds an empty descriptor, with the buffer of an earlier one if there is. Those beyond the
// bound replace each other.
func (q *request) next() *descriptor {
	q.sent++
	n := min(len(q.descriptors), maxDescriptors)
	if n < cap(q.descriptors) {
		q.descriptors = q.descriptors[:n+1]
	} else {
		q.descriptors = append(q.descriptors, descriptor{})
	}
	d := &q.descriptors[n]
	*d = descriptor{pairs: d.pairs[:0]}
	return d
}

func (d *descriptor) read(b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		switch {
		case r.Is(1, protowire.BytesType):
			p, ok := readPair(r.Bytes)
			r.Check(ok)
			if d.sent++; d.sent <= maxPairs {
				d.pairs = append(d.pairs, p)
			}
		case r.Is(2, protowire.BytesType):
			d.limited = true
			r.Check(d.limit.read(r.Bytes))
		case r.Is(3, protowire.BytesType):
			d.counted = true
			r.Check(readWrapper(&d.hits, r.Bytes))
		case r.Is(4, protowire.VarintType):
			d.negative = r.Number != 0
		}
	}
	return !r.Bad
}

func readPair(b []byte) (p rules.Pair, ok bool) {
	r := envoy.NewReader(b)
	for r.Next() {
		switch {
		case r.Is(1, protowire.BytesType):
			p.Key = r.Text()
		case r.Is(2, protowire.BytesType):
			p.Value = r.Text()
		}
	}
	return p, !r.Bad
}

func (l *limit) read(b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		switch {
		case r.Is(1, protowire.VarintType):
			l.requests = uint32(r.Number)
		case r.Is(2, protowire.VarintType):
			l.unit = uint32(r.Number)
		case r.Is(3, protowire.BytesType):
			l.multiplied = true
			times := uint64(l.times)
			r.Check(readWrapper(&times, r.Bytes))
			l.times = uint32(times)
		}
	}
	return !r.Bad
}

// readWrapper reads a message whose only field is a number. Messages that occur twice are merged.
func readWrapper(value *uint64, b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		if r.Is(1, protowire.VarintType) {
			*value = r.Number
		}
	}
	return !r.Bad
}

// forget drops the request. The next call reuses its buffers, unless they have grown large.
func (c *call) forget() {
	const spacious = 8 << 10
	q := &c.request
	if q.sent > maxDescriptors || cap(c.wire) > spacious {
		c.wire, q.descriptors = nil, nil
	}
	q.domain, q.descriptors, q.sent, q.hits = "", q.descriptors[:0], 0, 0
}
