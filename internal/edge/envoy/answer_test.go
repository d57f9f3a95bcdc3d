package envoy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Metadata is written as proto writes a Struct in field 4 of a message.
func TestMetadataIsAStruct(t *testing.T) {
	for _, limited := range []string{"", "a", strings.Repeat("rule,", 100)} {
		m := Metadata{limited: []byte(limited), shadowed: []byte("b")}
		values := map[string]any{"limited_by": limited, "shadow_limited_by": "b", "retry_after": 1 << 20}
		want, err := structpb.NewStruct(values)
		require.NoError(t, err)
		written, err := proto.MarshalOptions{Deterministic: true}.Marshal(want)
		require.NoError(t, err)
		r := NewReader(m.Append(nil, 4, 1<<20))
		require.True(t, r.Next())
		require.True(t, r.Is(4, 2))
		require.Equal(t, written, r.Bytes)
		require.False(t, r.Next())
		require.False(t, r.Bad)
		m.Reset()
		require.Empty(t, m.Append(nil, 4, 1))
	}
}
