package global

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/pkg/limiter"
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
				Key: rapid.String().Draw(t, "key"), Tier: rapid.StringN(0, 5, 20).Draw(t, "tier"), Start: rapid.Int64Range(0, 1<<50).Draw(t, "start") * 1000, Width: rapid.Int64Range(1, 1<<30).Draw(t, "width") * 1000,
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

func TestTermsAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) int64 { return rapid.Int64Range(0, maxCount).Draw(t, name) }
		var list []limiter.Term
		for range rapid.IntRange(0, 5).Draw(t, "terms") {
			list = append(list, limiter.Term{
				Division: number("division"), Part: rapid.String().Draw(t, "part"), Holder: rapid.String().Draw(t, "holder"), Until: number("until"), Life: number("life"),
				Promised: rapid.Bool().Draw(t, "promised"), From: number("from"), To: number("to"), Sure: number("sure"), First: rapid.Bool().Draw(t, "first"),
			})
		}
		read, err := ParseTerms(AppendTerms(nil, list))
		require.NoError(t, err)
		require.Equal(t, list, read)
	})
}

// Whatever terms a peer sends, no number exceeds what stores count exactly.
func FuzzTerms(f *testing.F) {
	f.Add(AppendTerms(nil, []limiter.Term{{Division: 1, Part: "a", Holder: "b", Until: 1, Life: 1, Promised: true, From: 1, To: 2, Sure: 3, First: true}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := ParseTerms(b)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(list), maxTerms)
		for _, one := range list {
			for _, n := range []int64{one.Division, one.Until, one.Life, one.From, one.To, one.Sure} {
				require.True(t, n >= 0 && n <= maxCount)
			}
		}
	})
}

// Whatever a peer sends of claims, no number is beyond what stores count exactly, and what a
// region keeps of what it has left stays within that.
func FuzzClaims(f *testing.F) {
	f.Add(AppendClaims(nil, []Claim{{Key: "k", Tier: "gold", Start: 1e9, Units: 7, Need: 3, Left: 2}}))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := ParseClaims(b)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(list), MaxBatch)
		for _, c := range list {
			for _, n := range []int64{c.Start / 1000, c.Units, c.Need, c.Left} {
				require.True(t, n >= 0 && n <= maxCount)
			}
			for _, left := range []int64{0, 10, limiter.MaxCount} {
				kept := Kept(left, c.Need, c.Left, c.Need)
				require.True(t, kept >= 0 && kept <= left)
			}
		}
		again, err := ParseClaims(AppendClaims(nil, list))
		require.NoError(t, err)
		require.Equal(t, list, again)
	})
}

// Whatever a peer sends, a region neither panics nor keeps an implausible counter.
func FuzzMessage(f *testing.F) {
	m := Message{Header: Header{From: 1, Incarnation: 3, Position: 9}, Counts: []Count{{"k", "gold", 1e9, 1e7, Cell{3, 4}}}}
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
