package exchange

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// shape names the fields of a message that are messages.
type shape map[protowire.Number]shape

// shapes of the messages of this release.
var shapes = map[string]shape{
	TopicCounts: {fieldPart: {partMessage: {10: {}}}},
	TopicTotals: {10: {}},
	TopicShort:  {1: {}},
	TopicRights: {1: {}},
}

// later returns what a node of a later release would send: with fields that this one does not
// know in every message, whatever their kind.
func later(topic string, body []byte) []byte { return shapes[topic].extend(body) }

func (s shape) extend(b []byte) (out []byte) {
	out = protowire.AppendVarint(protowire.AppendTag(out, 1000, protowire.VarintType), 7)
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeField(b)
		if n < 0 {
			panic("a message that cannot be read")
		}
		if inner, known := s[field]; known && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(b)
			v, _ := protowire.ConsumeBytes(b[tag:])
			out = protowire.AppendBytes(protowire.AppendTag(out, field, kind), inner.extend(v))
		} else {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	out = protowire.AppendFixed32(protowire.AppendTag(out, 1001, protowire.Fixed32Type), 7)
	out = protowire.AppendFixed64(protowire.AppendTag(out, 1002, protowire.Fixed64Type), 7)
	return protowire.AppendString(protowire.AppendTag(out, 1003, protowire.BytesType), "more")
}

// In a rolling update nodes of two releases exchange counts and rights: what one does not know
// of the other's messages, it skips. Limits hold as among nodes of one release.
func TestMessagesOfALaterRelease(t *testing.T) {
	inWorld(t, lines["fixed_window"], 2, func(w *world) {
		w.demand(30, 5*time.Second, "k")
		w.later.Store(true)
		w.demand(30, 5*time.Second, "k")
		w.wait(2 * time.Second)
		for _, r := range w.regions {
			w.requireLeft(r, 6000-3*300)
		}
	})
	inWorld(t, "r fixed_window limit=600 window=60s escrow", 1, func(w *world) {
		w.later.Store(true)
		passed := 0
		for range 30 * 20 { // one region is asked for all
			if w.ask(w.regions[1], "k") {
				passed++
			}
			w.wait(50 * time.Millisecond)
		}
		require.GreaterOrEqual(t, passed, 600*95/100)
		require.LessOrEqual(t, passed, 600)
	})
}
