package envoy

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"
)

// Call is one call on its way, which its service uses again after Release.
type Call interface {
	In() protobuf.Message  // what the request is read into
	Malformed()            // the request could not be read
	Out() protobuf.Message // the answer
	Release()
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
	return k.CodecV2.Marshal(c.Out())
}

// Unmarshal implements encoding.CodecV2. Of a malformed call, the service says so itself:
// gRPC would call it a fault of the server.
func (k codec) Unmarshal(data mem.BufferSlice, v any) error {
	c, ok := v.(Call)
	if !ok {
		return k.CodecV2.Unmarshal(data, v)
	}
	if k.CodecV2.Unmarshal(data, c.In()) != nil {
		c.Malformed()
	}
	return nil
}
