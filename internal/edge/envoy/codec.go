package envoy

import (
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// Call is one call in progress, which its service reuses after Release. It reads and writes its
// own messages.
type Call interface {
	Read(mem.BufferSlice)   // reads the request, which may be malformed
	Append(b []byte) []byte // writes the answer
	Release()
}

// Finish is deferred by the handler of a call. It releases a call that fails, and drops one whose
// handler panics.
func Finish(c Call, panicked func(any), answer *any, err *error) {
	if p := recover(); p != nil {
		panicked(p)
		*answer, *err = nil, status.Error(codes.Internal, "internal error")
	} else if *err != nil {
		c.Release()
	}
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
	b := answers.Get(0)
	*b = c.Append(*b)
	return mem.BufferSlice{mem.NewBuffer(b, answers)}, nil
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

// Unmarshal implements encoding.CodecV2. It never fails for a Call, because gRPC would report an
// internal error of the server for a malformed message.
func (k codec) Unmarshal(data mem.BufferSlice, v any) error {
	c, ok := v.(Call)
	if !ok {
		return k.CodecV2.Unmarshal(data, v)
	}
	c.Read(data)
	return nil
}
