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

func TestRightsMessagesAreReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := func(name string) int64 { return rapid.Int64Range(0, 1<<50).Draw(t, name) }
		grant := func() Grant { return Grant{number("share"), number("from") * 1000, number("now")} }
		m := RightsMessage{Header: drawHeader(t), Free: number("free"), Lost: number("lost")}
		for range rapid.IntRange(0, 5).Draw(t, "fenced") {
			m.Fenced = append(m.Fenced, number("fenced"))
		}
		for range rapid.IntRange(0, 5).Draw(t, "grants") {
			m.Grants = append(m.Grants, Transfer{rapid.String().Draw(t, "key"), number("epoch") * 1000, grant(), grant()})
		}
		for range rapid.IntRange(0, 5).Draw(t, "asks") {
			m.Asks = append(m.Asks, Ask{rapid.String().Draw(t, "key"), number("now"), number("share"), number("demand")})
		}
		var read RightsMessage
		require.NoError(t, read.Parse(m.Append(nil)))
		require.Equal(t, m, read)
	})
}

// Whatever a peer sends of rights, a region does not panic, and sums do not overflow.
func FuzzRightsMessage(f *testing.F) {
	l := limitOf(f, "r fixed_window limit=100 window=10s")
	wall := int64(1e15) / 300e6 * 300e6
	m := RightsMessage{Header: Header{From: 1, Incarnation: 1, Heard: 1, Echo: 1}, Fenced: []int64{0, 0}, Free: 1}
	m.Grants = []Transfer{{"k", wall, Grant{5, wall, 5}, Grant{}}}
	m.Asks = []Ask{{"k", 10, 10, 10}}
	f.Add(m.Append(nil))
	f.Add([]byte("\b\x01j\x15\n\x01k\x10\xe0\x92\x8e\xa5\x8d\x1d000\xe0\x92\x8e\xba\x8d080")) // claims to have got more than there is
	f.Fuzz(func(t *testing.T, b []byte) {
		var m RightsMessage
		if m.Parse(b) != nil {
			return
		}
		r := NewRights(RightsConfig{
			Config: Config{Self: 0, Regions: 2, Incarnation: 1, MaxKeys: 10},
			Limit:  func(key string) *limiter.Limit { return l },
		}, wall-100e6, time.Second)
		r.Take(l, "k", 1, wall, time.Second)
		r.Receive(&m, wall, time.Second)
		r.Take(l, "k", 1, wall+10e6, 11*time.Second)
		for _, e := range r.entries {
			require.LessOrEqual(t, e.avail, max(0, e.share))
		}
		r.Plan(wall, 11*time.Second)
		r.Sweep(wall, 11*time.Second)
		r.Send(1, 11*time.Second).Append(nil)
	})
}

// Whatever a peer sends, a region neither panics nor keeps a counter that makes no sense.
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
