package rls

import (
	"unicode/utf8"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weir-edge/weir/internal/edge/envoy"
)

// descriptor is one descriptor of a call, with the messages that it may point to.
type descriptor struct {
	ratelimit.RateLimitDescriptor
	limit ratelimit.RateLimitDescriptor_RateLimitOverride
	times wrapperspb.UInt32Value
	hits  wrapperspb.UInt64Value
}

// Read implements envoy.Wire. It reads as proto.Unmarshal does, but drops unknown fields and
// reuses what earlier calls allocated. Strings point into c.wire.
func (c *call) Read(data mem.BufferSlice) bool {
	if n := data.Len(); n > cap(c.wire) {
		c.wire = make([]byte, n)
	} else {
		c.wire = c.wire[:n]
	}
	data.CopyTo(c.wire)
	q, valid := &c.request, true
	f := fields{rest: c.wire}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			q.Domain = f.text()
		case f.is(2, protowire.BytesType):
			valid = c.nextDescriptor().read(f.bytes) && valid
		case f.is(3, protowire.VarintType):
			q.HitsAddend = uint32(f.number)
		}
	}
	return valid && !f.bad
}

// nextDescriptor adds an empty descriptor to the request. Those beyond the bound share one,
// because the call is refused.
func (c *call) nextDescriptor() *descriptor {
	n := min(len(c.request.Descriptors), maxDescriptors)
	if n == len(c.kept) {
		c.kept = append(c.kept, &descriptor{})
	}
	d := c.kept[n]
	d.Entries, d.Limit, d.HitsAddend, d.IsNegativeHits = d.Entries[:0], nil, nil, false
	c.request.Descriptors = append(c.request.Descriptors, &d.RateLimitDescriptor)
	return d
}

func (d *descriptor) read(b []byte) bool {
	valid := true
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			valid = readEntry(d.nextEntry(), f.bytes) && valid
		case f.is(2, protowire.BytesType):
			valid = d.readLimit(f.bytes) && valid
		case f.is(3, protowire.BytesType):
			if d.HitsAddend == nil {
				d.hits.Value, d.HitsAddend = 0, &d.hits
			}
			value, ok := readWrapper(d.hits.Value, f.bytes)
			d.hits.Value, valid = value, ok && valid
		case f.is(4, protowire.VarintType):
			d.IsNegativeHits = f.number != 0
		}
	}
	return valid && !f.bad
}

// nextEntry adds an empty entry, one of an earlier call if there is. Those beyond the bound
// share one, because the call is refused.
func (d *descriptor) nextEntry() *ratelimit.RateLimitDescriptor_Entry {
	n := len(d.Entries)
	if n > maxPairs {
		d.Entries = append(d.Entries, d.Entries[maxPairs])
		return d.Entries[n]
	}
	if n == cap(d.Entries) || d.Entries[:n+1][n] == nil {
		d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{})
	} else {
		d.Entries = d.Entries[:n+1]
	}
	e := d.Entries[n]
	e.Key, e.Value = "", ""
	return e
}

func readEntry(e *ratelimit.RateLimitDescriptor_Entry, b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(1, protowire.BytesType):
			e.Key = f.text()
		case f.is(2, protowire.BytesType):
			e.Value = f.text()
		}
	}
	return !f.bad
}

func (d *descriptor) readLimit(b []byte) bool {
	l, valid := &d.limit, true
	if d.Limit == nil {
		l.RequestsPerUnit, l.Unit, l.UnitMultiplier, d.Limit = 0, 0, nil, l
	}
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.is(1, protowire.VarintType):
			l.RequestsPerUnit = uint32(f.number)
		case f.is(2, protowire.VarintType):
			l.Unit = envoytype.RateLimitUnit(f.number)
		case f.is(3, protowire.BytesType):
			if l.UnitMultiplier == nil {
				d.times.Value, l.UnitMultiplier = 0, &d.times
			}
			value, ok := readWrapper(uint64(d.times.Value), f.bytes)
			d.times.Value, valid = uint32(value), ok && valid
		}
	}
	return valid && !f.bad
}

// readWrapper reads a message whose only field is a number.
func readWrapper(value uint64, b []byte) (uint64, bool) {
	f := fields{rest: b}
	for f.next() {
		if f.is(1, protowire.VarintType) {
			value = f.number
		}
	}
	return value, !f.bad
}

// forget drops the request. The next call reuses its buffers, unless they have grown large.
func (c *call) forget() {
	const spacious = 8 << 10
	q := &c.request
	q.Domain, q.Descriptors, q.HitsAddend = "", q.Descriptors[:0], 0
	if len(c.kept) > maxDescriptors || cap(c.wire) > spacious {
		c.kept, c.wire, q.Descriptors = nil, nil, nil
	}
}

// fields reads the fields of a message one after the other.
type fields struct {
	rest   []byte
	field  protowire.Number
	kind   protowire.Type
	number uint64 // of a varint
	bytes  []byte // of what has a length
	bad    bool
}

func (f *fields) is(field protowire.Number, kind protowire.Type) bool {
	return f.field == field && f.kind == kind
}

// next reads a field. It reports false at the end and if the field is malformed.
func (f *fields) next() bool {
	if len(f.rest) == 0 || f.bad {
		return false
	}
	n := 0
	if f.field, f.kind, n = protowire.ConsumeTag(f.rest); n < 0 || f.field > protowire.MaxValidNumber {
		f.bad = true
		return false
	}
	f.rest = f.rest[n:]
	switch f.kind {
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(f.rest)
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(f.rest)
	default:
		n = protowire.ConsumeFieldValue(f.field, f.kind, f.rest)
	}
	if n < 0 {
		f.bad = true
		return false
	}
	f.rest = f.rest[n:]
	return true
}

// text returns the field as a string, which must be UTF-8 and is valid as long as the message.
func (f *fields) text() string {
	f.bad = f.bad || !utf8.Valid(f.bytes)
	return envoy.Text(f.bytes)
}
