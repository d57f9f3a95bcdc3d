package global

import (
	"errors"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Messages use the protobuf encoding. A node skips fields that it does not know and reads a
// missing field as 0, so regions may run different releases.
const (
	fieldFrom protowire.Number = iota + 1
	fieldIncarnation
	fieldBase
	fieldPosition
	fieldAck
	fieldHeard
	fieldStamp
	fieldEcho
	fieldPartial
	fieldCount
)

// The fields of a counter. Times are in milliseconds. The incarnation is relative to the
// sender's: usually 0, which takes no space.
const (
	countKey protowire.Number = iota + 1
	countStart
	countWidth
	countAhead
	countUnits
	countTier
)

// errMessage rejects a malformed message without quoting its content.
var errMessage = errors.New("not a message between regions")

func appendVarint(b []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}

// append writes the header's fields.
func (h *Header) append(b []byte) []byte {
	b = appendVarint(b, fieldFrom, int64(h.From))
	b = appendVarint(b, fieldIncarnation, h.Incarnation)
	b = appendVarint(b, fieldBase, int64(h.Base))
	b = appendVarint(b, fieldPosition, int64(h.Position))
	b = appendVarint(b, fieldAck, int64(h.Ack))
	b = appendVarint(b, fieldHeard, h.Heard)
	b = appendVarint(b, fieldStamp, int64(h.Stamp))
	b = appendVarint(b, fieldEcho, int64(h.Echo))
	if h.Partial {
		b = appendVarint(b, fieldPartial, 1)
	}
	return b
}

func (h *Header) set(field protowire.Number, v uint64) {
	switch field {
	case fieldFrom:
		h.From = int(int32(v))
	case fieldIncarnation:
		h.Incarnation = int64(v)
	case fieldBase:
		h.Base = v
	case fieldPosition:
		h.Position = v
	case fieldAck:
		h.Ack = v
	case fieldHeard:
		h.Heard = int64(v)
	case fieldStamp:
		h.Stamp = time.Duration(v)
	case fieldEcho:
		h.Echo = time.Duration(v)
	case fieldPartial:
		h.Partial = v != 0
	}
}

// Append appends the encoded message to b.
func (m *Message) Append(b []byte) []byte {
	b = m.Header.append(b)
	var part []byte
	for i := range m.Counts {
		n := &m.Counts[i]
		part = protowire.AppendString(protowire.AppendTag(part[:0], countKey, protowire.BytesType), n.Key)
		part = appendVarint(part, countStart, n.Start/1000)
		part = appendVarint(part, countWidth, n.Width/1000)
		part = appendVarint(part, countAhead, n.Incarnation-m.Incarnation)
		part = appendVarint(part, countUnits, n.Count)
		if n.Tier != "" {
			part = protowire.AppendString(protowire.AppendTag(part, countTier, protowire.BytesType), n.Tier)
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldCount, protowire.BytesType), part)
	}
	return b
}

// Parse reads a message. Its content may still be invalid; Receive checks it.
func (m *Message) Parse(b []byte) error {
	*m = Message{Counts: m.Counts[:0]}
	var parts [][]byte
	err := Fields(b, m.set, func(field protowire.Number, v []byte) {
		if field == fieldCount {
			parts = append(parts, v)
		}
	})
	if err != nil {
		return err
	}
	if len(parts) > MaxBatch {
		return errMessage
	}
	for _, part := range parts {
		var n Count
		n.Incarnation = m.Incarnation
		err := Fields(part, func(field protowire.Number, v uint64) {
			switch field {
			case countStart:
				n.Start = int64(v) * 1000
			case countWidth:
				n.Width = int64(v) * 1000
			case countAhead:
				n.Incarnation += int64(v)
			case countUnits:
				n.Count = int64(v)
			}
		}, func(field protowire.Number, v []byte) {
			switch field {
			case countKey:
				n.Key = string(v)
			case countTier:
				n.Tier = string(v)
			}
		})
		if err != nil {
			return err
		}
		m.Counts = append(m.Counts, n)
	}
	return nil
}

// Fields calls number and bytes for the numbers and byte strings of an encoded message.
func Fields(b []byte, number func(protowire.Number, uint64), bytes func(protowire.Number, []byte)) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMessage
		}
		b = b[n:]
		switch kind {
		case protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return errMessage
			}
			number(field, v)
			b = b[n:]
		case protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return errMessage
			}
			bytes(field, v)
			b = b[n:]
		default: // from a later release
			n := protowire.ConsumeFieldValue(field, kind, b)
			if n < 0 {
				return errMessage
			}
			b = b[n:]
		}
	}
	return nil
}
