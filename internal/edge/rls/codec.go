package rls

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec is gRPC's own, which also reads and writes a *call: the request in it, and the
// answer, after which the call is free for the next.
type codec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (k codec) Marshal(v any) (mem.BufferSlice, error) {
	c, ok := v.(*call)
	if !ok {
		return k.CodecV2.Marshal(v)
	}
	defer c.release()
	return k.CodecV2.Marshal(&c.response)
}

// Unmarshal implements encoding.CodecV2. Of a malformed call, the service says so itself:
// gRPC would call it a fault of the server.
func (k codec) Unmarshal(data mem.BufferSlice, v any) error {
	c, ok := v.(*call)
	if !ok {
		return k.CodecV2.Unmarshal(data, v)
	}
	c.malformed = k.CodecV2.Unmarshal(data, &c.request) != nil
	return nil
}
