package envoy

import (
	"slices"
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// Call is one call in progress, which its service reuses after Release.
type Call interface {
	In() protobuf.Message  // what the request is read into
	Malformed()            // the request could not be read
	Out() protobuf.Message // the answer
	Release()
}

// Wire is a Call that reads and writes its messages itself, where reflection would take more time than
// the decision.
type Wire interface {
	Read(data mem.BufferSlice) bool // false: malformed
	Append([]byte) ([]byte, error)
}

// codec is gRPC's own, which also reads and writes a Call: the request in it, and the
// answer, after which the call is free for the next.
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

// scratch is what answers are written to before their length is known.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

func marshal(w Wire) (mem.BufferSlice, error) {
	written := scratch.Get().(*[]byte)
	defer scratch.Put(written)
	b, err := w.Append((*written)[:0])
	if err != nil {
		return nil, err
	}
	*written = b
	return mem.BufferSlice{mem.SliceBuffer(slices.Clone(b))}, nil
}

// Unmarshal implements encoding.CodecV2. Of a malformed call, the service says so itself:
// gRPC would call it a fault of the server.
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
