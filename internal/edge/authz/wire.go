package authz

import (
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-edge/weir/internal/edge/envoy"
)

// request is what decisions need of a CheckRequest. All other fields are skipped unread, like
// unknown ones. Its buffers are reused.
type request struct {
	source string // the address of Envoy's client
	http   bool   // the request is stated

	method, path, host, query, fragment string

	joined map[string]string // the headers; or
	raw    []header          // in the order of the request
}

// header is a HeaderValue.
type header struct {
	name, text string
	raw        []byte
}

func (h *header) value() []byte {
	if len(h.raw) > 0 {
		return h.raw
	}
	return bytesOf(h.text)
}

// Read implements envoy.Call. It reads as proto.Unmarshal does: parts that occur twice are merged.
// Strings point into c.wire.
func (c *call) Read(data mem.BufferSlice) {
	c.wire = envoy.Copy(c.wire, data)
	r := envoy.NewReader(c.wire)
	for r.Next() {
		if r.Is(1, protowire.BytesType) {
			r.Check(c.request.readAttributes(r.Bytes))
		}
	}
	c.malformed = r.Bad
}

func (q *request) readAttributes(b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		switch {
		case r.Is(1, protowire.BytesType):
			r.Check(q.readPeer(r.Bytes))
		case r.Is(4, protowire.BytesType):
			r.Check(q.readRequest(r.Bytes))
		}
	}
	return !r.Bad
}

func (q *request) readPeer(b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		if r.Is(1, protowire.BytesType) {
			r.Check(q.readAddress(r.Bytes))
		}
	}
	return !r.Bad
}

// readAddress reads an Address, which is one of three kinds: the last.
func (q *request) readAddress(b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		switch {
		case r.Is(1, protowire.BytesType):
			r.Check(q.readSocketAddress(r.Bytes))
		case r.Is(2, protowire.BytesType), r.Is(3, protowire.BytesType):
			q.source = ""
		}
	}
	return !r.Bad
}

func (q *request) readSocketAddress(b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		if r.Is(2, protowire.BytesType) {
			q.source = r.Text()
		}
	}
	return !r.Bad
}

func (q *request) readRequest(b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		if r.Is(2, protowire.BytesType) {
			q.http = true
			r.Check(q.readHTTP(r.Bytes))
		}
	}
	return !r.Bad
}

func (q *request) readHTTP(b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		switch {
		case r.Is(2, protowire.BytesType):
			q.method = r.Text()
		case r.Is(3, protowire.BytesType):
			r.Check(q.readJoined(r.Bytes))
		case r.Is(4, protowire.BytesType):
			q.path = r.Text()
		case r.Is(5, protowire.BytesType):
			q.host = r.Text()
		case r.Is(7, protowire.BytesType):
			q.query = r.Text()
		case r.Is(8, protowire.BytesType):
			q.fragment = r.Text()
		case r.Is(13, protowire.BytesType):
			r.Check(q.readRaw(r.Bytes))
		}
	}
	return !r.Bad
}

// readJoined reads an entry of a map.
func (q *request) readJoined(b []byte) bool {
	var name, value string
	r := envoy.NewReader(b)
	for r.Next() {
		switch {
		case r.Is(1, protowire.BytesType):
			name = r.Text()
		case r.Is(2, protowire.BytesType):
			value = r.Text()
		}
	}
	if q.joined == nil {
		q.joined = map[string]string{}
	}
	q.joined[name] = value
	return !r.Bad
}

func (q *request) readRaw(b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		if r.Is(1, protowire.BytesType) {
			var h header
			r.Check(h.read(r.Bytes))
			q.raw = append(q.raw, h)
		}
	}
	return !r.Bad
}

func (h *header) read(b []byte) bool {
	r := envoy.NewReader(b)
	for r.Next() {
		switch {
		case r.Is(1, protowire.BytesType):
			h.name = r.Text()
		case r.Is(2, protowire.BytesType):
			h.text = r.Text()
		case r.Is(3, protowire.BytesType):
			h.raw = r.Bytes
		}
	}
	return !r.Bad
}

// forget drops the request. The next call reuses its buffers, unless they have grown large.
func (c *call) forget() {
	const spacious, headers = 16 << 10, 128
	q := &c.request
	if len(q.joined) > headers || len(q.raw) > headers || cap(c.wire) > spacious {
		*q, c.wire = request{}, nil
		return
	}
	clear(q.joined)
	*q = request{joined: q.joined, raw: q.raw[:0]}
}
