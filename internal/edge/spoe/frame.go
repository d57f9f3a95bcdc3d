package spoe

import (
	"encoding/binary"
	"errors"
)

// The frames of SPOP 2.0, from HAProxy's doc/SPOE.txt. Each is preceded by its length in
// four bytes.
const (
	haproxyHello      = 1
	haproxyDisconnect = 2
	haproxyNotify     = 3
	agentHello        = 101
	agentDisconnect   = 102
	agentAck          = 103

	flagFinal = 1 // the only flag of a frame that is not in fragments

	lengthSize = 4
	// minFrame and maxHello bound what peers negotiate, and what is read before they have.
	minFrame = 256
	maxHello = 4 << 10
)

// The types of values.
const (
	typeNull = iota
	typeBool
	typeInt32
	typeUint32
	typeInt64
	typeUint64
	typeIPv4
	typeIPv6
	typeString
	typeBinary

	typeMask = 0x0f
	flagTrue = 0x10
)

// A status says why a connection ends.
type status uint32

const (
	statusNormal     status = 0
	statusTooBig     status = 3
	statusInvalid    status = 4
	statusNoVersion  status = 5
	statusNoSize     status = 6
	statusVersion    status = 8
	statusSize       status = 9
	statusFragmented status = 10
)

var statusTexts = map[status]string{
	statusNormal: "normal", statusTooBig: "frame is too big", statusInvalid: "invalid frame", statusNoVersion: "supported-versions not found",
	statusNoSize: "max-frame-size not found", statusVersion: "unsupported version", statusSize: "max-frame-size is too small", statusFragmented: "fragmentation is not supported",
}

// Error implements error, for a peer that sent something other than SPOP.
func (s status) Error() string { return statusTexts[s] }

var errShort error = statusInvalid

// frame is one frame as read. Its payload is valid until the next one is read.
type frame struct {
	kind       byte
	flags      uint32
	stream, id uint64
	payload    reader
}

func readFrame(b []byte) (f frame, err error) {
	const fixed = 5
	if len(b) < fixed {
		return f, errShort
	}
	f.kind, f.flags, f.payload = b[0], binary.BigEndian.Uint32(b[1:]), b[fixed:]
	if f.stream, err = f.payload.number(); err != nil {
		return f, err
	}
	f.id, err = f.payload.number()
	return f, err
}

// reader takes values off the front of a frame.
type reader []byte

func (r *reader) octet() (byte, error) {
	if len(*r) == 0 {
		return 0, errShort
	}
	b := (*r)[0]
	*r = (*r)[1:]
	return b, nil
}

// number reads a variable-length integer: a byte below 240 is the number itself; otherwise
// its four lower bits are the lowest of the number, and each following byte adds seven
// bits.
func (r *reader) number() (uint64, error) {
	b, err := r.octet()
	n := uint64(b)
	if err != nil || b < 0xf0 {
		return n, err
	}
	for shift := uint(4); shift < 64; shift += 7 {
		if b, err = r.octet(); err != nil {
			return 0, err
		}
		if n += uint64(b) << shift; b < 0x80 {
			return n, nil
		}
	}
	return 0, errShort
}

func (r *reader) text() ([]byte, error) {
	n, err := r.number()
	if err != nil || n > uint64(len(*r)) {
		return nil, errShort
	}
	return r.bytes(int(n))
}

func (r *reader) bytes(n int) ([]byte, error) {
	if n > len(*r) {
		return nil, errShort
	}
	b := (*r)[:n:n]
	*r = (*r)[n:]
	return b, nil
}

// value is one of any type: text has strings, binaries and addresses; number the rest.
type value struct {
	kind   byte
	number uint64
	text   []byte
}

func (r *reader) value() (v value, err error) {
	tag, err := r.octet()
	if err != nil {
		return v, err
	}
	switch v.kind = tag & typeMask; v.kind {
	case typeNull:
	case typeBool:
		v.number = uint64(tag&flagTrue) / flagTrue
	case typeInt32, typeUint32, typeInt64, typeUint64:
		v.number, err = r.number()
	case typeIPv4:
		v.text, err = r.bytes(4)
	case typeIPv6:
		v.text, err = r.bytes(16)
	case typeString, typeBinary:
		v.text, err = r.text()
	default:
		err = errShort
	}
	return v, err
}

func (r *reader) pair() (name []byte, v value, err error) {
	if name, err = r.text(); err != nil {
		return nil, v, err
	}
	v, err = r.value()
	return name, v, err
}

func appendNumber(b []byte, n uint64) []byte {
	if n < 0xf0 {
		return append(b, byte(n))
	}
	b = append(b, byte(n)|0xf0)
	for n = (n - 0xf0) >> 4; n >= 0x80; n = (n - 0x80) >> 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(appendNumber(b, uint64(len(text))), text...)
}

func appendString[T string | []byte](b []byte, text T) []byte {
	return appendText(append(b, typeString), text)
}

func appendUint32(b []byte, n uint32) []byte { return appendNumber(append(b, typeUint32), uint64(n)) }

// begin starts a frame in b, whose length finish fills in.
func begin(b []byte, kind byte, stream, id uint64) []byte {
	b = append(b[:0], 0, 0, 0, 0, kind, 0, 0, 0, flagFinal)
	return appendNumber(appendNumber(b, stream), id)
}

func finish(b []byte) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-lengthSize))
	return b
}

var errHello = errors.New("a connection must begin with HAPROXY-HELLO")
