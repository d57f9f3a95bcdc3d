package envoy

import (
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"
)

// Call is one call in progress, which its service reuses after Release.
type Call interface {
	In() protobuf.Message  // what the request is read into
	Malformed()            // the request could not be read
	Out() protobuf.Message // the answer
	Release()
}

// End is deferred by the handler of a call. It releases a call that fails, and drops one whose
// handler panics.
func End(c Call, panicked func(any), answer *any, err *error) {
	if p := recover(); p != nil {
		panicked(p)
		*answer, *err = nil, status.Error(codes.Internal, "internal error")
	} else if *err != nil {
		c.Release()
	}
}

// Wire is a Call that reads and writes its own messages, because reflection would take longer
// than the decision.
type Wire interface {
	Read(data mem.BufferSlice) bool // false: malformed
	Append([]byte) ([]byte, error)
}

// codec extends gRPC's codec to Calls. It reads the request into a Call, writes the Call's
// answer, and then releases it.
type codec struct{ encoding.CodecV2 }

// NewCodec returns the codec of a Server.
func NewCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (k codec) Marshal(v any) (mem.BufferSlice, error) {
	c, ok := v.(Call)
	if !ok {
		return k.CodecV2.Marshal(v)
	}
	defer c.Release()
	if w, ok := c.(Wire); ok {
		return marshal(w)
	}
	return k.CodecV2.Marshal(c.Out())
}

// buffers holds buffers of answers. gRPC returns each once the answer has been sent, and reuses
// only those that are longer than a kilobyte.
type buffers struct{ sync.Pool }

const usualAnswer = 2 << 10

var answers = &buffers{sync.Pool{New: func() any { b := make([]byte, 0, usualAnswer); return &b }}}

// Get implements mem.BufferPool.
func (p *buffers) Get(n int) *[]byte {
	b := p.Pool.Get().(*[]byte)
	*b = slices.Grow((*b)[:0], n)[:n]
	return b
}

// Put implements mem.BufferPool. It drops buffers that have grown large.
func (p *buffers) Put(b *[]byte) {
	if cap(*b) <= 4*usualAnswer {
		p.Pool.Put(b)
	}
}

func marshal(w Wire) (mem.BufferSlice, error) {
	b := answers.Get(0)
	written, err := w.Append(*b)
	if err != nil {
		return nil, err
	}
	*b = written
	return mem.BufferSlice{mem.NewBuffer(b, answers)}, nil
}

// Unmarshal implements encoding.CodecV2. It lets the service report a malformed call, because
// gRPC would report an internal error of the server.
func (k codec) Unmarshal(data mem.BufferSlice, v any) error {
	c, ok := v.(Call)
	if !ok {
		return k.CodecV2.Unmarshal(data, v)
	}
	if w, ok := c.(Wire); ok {
		if !w.Read(data) {
			c.Malformed()
		}
	} else if k.CodecV2.Unmarshal(data, c.In()) != nil {
		c.Malformed()
	}
	return nil
}
