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

// scratch holds buffers for answers whose length is not known yet.
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
