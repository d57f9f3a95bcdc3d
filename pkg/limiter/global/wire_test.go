package global

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

func drawHeader(t *rapid.T) Header {
	number := func(name string) int64 { return rapid.Int64Range(0, 1<<62).Draw(t, name) }
	return Header{
		From: rapid.IntRange(0, 50).Draw(t, "from"), Incarnation: number("incarnation"),
		Base: uint64(number("base")), Position: uint64(number("position")), Ack: uint64(number("ack")), Heard: number("heard"),
		Stamp: time.Duration(number("stamp")), Echo: time.Duration(number("echo")), Partial: rapid.Bool().Draw(t, "partial"),
	}
}

func TestMessagesAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Message{Header: drawHeader(t)}
		for range rapid.IntRange(0, 5).Draw(t, "counts") {
			m.Counts = append(m.Counts, Count{
				Key: rapid.String().Draw(t, "key"), Start: rapid.Int64Range(0, 1<<50).Draw(t, "start") * 1000, Width: rapid.Int64Range(1, 1<<30).Draw(t, "width") * 1000,
				Cell: Cell{rapid.Int64Range(0, 1<<62).Draw(t, "incarnation"), rapid.Int64Range(0, 1<<53).Draw(t, "count")},
			})
		}
		b := m.Append(nil)
		// A later release says more.
		b = protowire.AppendVarint(protowire.AppendTag(b, 1000, protowire.VarintType), 7)
		b = protowire.AppendFixed64(protowire.AppendTag(b, 1001, protowire.Fixed64Type), 7)
		b = protowire.AppendString(protowire.AppendTag(b, 1002, protowire.BytesType), "more")
		var read Message
		require.NoError(t, read.Parse(b))
		require.Equal(t, m, read)
	})
}

// Whatever a peer sends, a region neither panics nor keeps a counter that makes no sense.
func FuzzMessage(f *testing.F) {
	m := Message{Header: Header{From: 1, Incarnation: 3, Position: 9}, Counts: []Count{{"k", 1e9, 1e7, Cell{3, 4}}}}
	f.Add(m.Append(nil))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Message
		if m.Parse(b) != nil {
			return
		}
		c := NewCounts(Config{Self: 0, Regions: 2, Incarnation: 1, MaxKeys: 10})
		c.Receive(&m, 1e9, time.Second)
		for _, e := range c.entries {
			require.GreaterOrEqual(t, e.sum, int64(0))
			require.LessOrEqual(t, e.start, int64(1e9)+MaxSkew.Microseconds())
		}
		c.Send(1, time.Second).Append(nil)
	})
}
