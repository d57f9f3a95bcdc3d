package envoy

import (
	"slices"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Envoy's messages are read and written by hand: reflection would take longer than the decision,
// and the generated messages would be half of the program.

// Reader reads the fields of a message one after the other, as proto.Unmarshal does.
type Reader struct {
	Number uint64 // of a varint
	Bytes  []byte // of a field that has a length
	Bad    bool   // the message is malformed

	rest  []byte
	field protowire.Number
	kind  protowire.Type
}

func NewReader(b []byte) Reader { return Reader{rest: b} }

// Next reads a field. It reports false at the end and if the message is malformed.
func (r *Reader) Next() bool {
	if len(r.rest) == 0 || r.Bad {
		return false
	}
	n := 0
	if r.field, r.kind, n = protowire.ConsumeTag(r.rest); n < 0 || r.field > protowire.MaxValidNumber {
		r.Bad = true
		return false
	}
	r.rest = r.rest[n:]
	switch r.kind {
	case protowire.VarintType:
		r.Number, n = protowire.ConsumeVarint(r.rest)
	case protowire.BytesType:
		r.Bytes, n = protowire.ConsumeBytes(r.rest)
	default:
		n = protowire.ConsumeFieldValue(r.field, r.kind, r.rest)
	}
	if n < 0 {
		r.Bad = true
		return false
	}
	r.rest = r.rest[n:]
	return true
}

// Is reports whether the field has this number and type; proto treats others as unknown.
func (r *Reader) Is(field protowire.Number, kind protowire.Type) bool {
	return r.field == field && r.kind == kind
}

// Text returns the field as a string, which must be UTF-8 and is valid as long as the message.
func (r *Reader) Text() string {
	r.Bad = r.Bad || !utf8.Valid(r.Bytes)
	return Text(r.Bytes)
}

// Check marks the message as malformed unless a part of it is valid.
func (r *Reader) Check(valid bool) { r.Bad = r.Bad || !valid }

// Copy copies a message into b, or into a longer slice if b is too short.
func Copy(b []byte, data mem.BufferSlice) []byte {
	b = slices.Grow(b[:0], data.Len())[:data.Len()]
	data.CopyTo(b)
	return b
}

// AppendNumber writes a number or an enum that is not negative, unless it is 0.
func AppendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// AppendText writes a string or bytes, unless empty. A string must be UTF-8.
func AppendText[T string | []byte](b []byte, field protowire.Number, text T) []byte {
	if len(text) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(text)))
	return append(b, text...)
}

// Begin opens a message within another, which End closes.
func Begin(b *[]byte, field protowire.Number) (start int) {
	*b = append(protowire.AppendTag(*b, field, protowire.BytesType), 0)
	return len(*b)
}

// End writes the length of a message. Most are shorter than 128 bytes, so one byte holds it.
func End(b []byte, start int) []byte {
	n := uint64(len(b) - start)
	if size := protowire.SizeVarint(n); size > 1 {
		b = slices.Grow(b, size-1)[:len(b)+size-1]
		copy(b[start+size-1:], b[start:])
	}
	protowire.AppendVarint(b[:start-1], n)
	return b
}

// Text returns a string that shares b: it must not outlive the call.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
