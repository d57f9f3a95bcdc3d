package global

import "google.golang.org/protobuf/encoding/protowire"

// The fields of a RightsMessage after those of every message.
const (
	fieldFenced protowire.Number = iota + fieldCount + 1
	fieldFree
	fieldGrant
	fieldAsk
	fieldLost
)

// The fields of a Transfer. Times are in milliseconds.
const (
	grantKey protowire.Number = iota + 1
	grantEpoch
	gaveShare
	gaveFrom
	gaveNow
	gotShare
	gotFrom
	gotNow
)

// The fields of an Ask.
const (
	askKey protowire.Number = iota + 1
	askNow
	askShare
	askDemand
)

// Append appends the encoded message to b.
func (m *RightsMessage) Append(b []byte) []byte {
	b = m.Header.append(b)
	var part []byte
	for _, v := range m.Fenced {
		part = protowire.AppendVarint(part, uint64(v))
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, fieldFenced, protowire.BytesType), part)
	b = appendVarint(b, fieldFree, m.Free)
	b = appendVarint(b, fieldLost, m.Lost)
	for i := range m.Grants {
		g := &m.Grants[i]
		part = protowire.AppendString(protowire.AppendTag(part[:0], grantKey, protowire.BytesType), g.Key)
		part = appendVarint(part, grantEpoch, g.Epoch/1000)
		part = appendVarint(part, gaveShare, g.Gave.Share)
		part = appendVarint(part, gaveFrom, g.Gave.From/1000)
		part = appendVarint(part, gaveNow, g.Gave.Now)
		part = appendVarint(part, gotShare, g.Got.Share)
		part = appendVarint(part, gotFrom, g.Got.From/1000)
		part = appendVarint(part, gotNow, g.Got.Now)
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldGrant, protowire.BytesType), part)
	}
	for i := range m.Asks {
		a := &m.Asks[i]
		part = protowire.AppendString(protowire.AppendTag(part[:0], askKey, protowire.BytesType), a.Key)
		part = appendVarint(part, askNow, a.Now)
		part = appendVarint(part, askShare, a.Share)
		part = appendVarint(part, askDemand, a.Demand)
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldAsk, protowire.BytesType), part)
	}
	return b
}

// Parse reads a message. What it holds may still be invalid: Receive checks that.
func (m *RightsMessage) Parse(b []byte) error {
	*m = RightsMessage{}
	broken := false
	err := Fields(b, func(field protowire.Number, v uint64) {
		switch m.set(field, v); field {
		case fieldFree:
			m.Free = int64(v)
		case fieldLost:
			m.Lost = int64(v)
		}
	}, func(field protowire.Number, v []byte) {
		switch field {
		case fieldFenced:
			for len(v) > 0 {
				one, n := protowire.ConsumeVarint(v)
				if n < 0 {
					broken = true
					return
				}
				m.Fenced, v = append(m.Fenced, int64(one)), v[n:]
			}
		case fieldGrant:
			broken = broken || len(m.Grants) == MaxBatch || !m.parseGrant(v)
		case fieldAsk:
			broken = broken || len(m.Asks) == MaxBatch || !m.parseAsk(v)
		}
	})
	if err == nil && broken {
		err = errMessage
	}
	return err
}

func (m *RightsMessage) parseGrant(b []byte) bool {
	var g Transfer
	err := Fields(b, func(field protowire.Number, v uint64) {
		switch field {
		case grantEpoch:
			g.Epoch = int64(v) * 1000
		case gaveFrom:
			g.Gave.From = int64(v) * 1000
		case gotFrom:
			g.Got.From = int64(v) * 1000
		case gaveShare:
			g.Gave.Share = int64(v)
		case gaveNow:
			g.Gave.Now = int64(v)
		case gotShare:
			g.Got.Share = int64(v)
		case gotNow:
			g.Got.Now = int64(v)
		}
	}, func(field protowire.Number, v []byte) {
		if field == grantKey {
			g.Key = string(v)
		}
	})
	m.Grants = append(m.Grants, g)
	return err == nil
}

func (m *RightsMessage) parseAsk(b []byte) bool {
	var a Ask
	err := Fields(b, func(field protowire.Number, v uint64) {
		switch field {
		case askNow:
			a.Now = int64(v)
		case askShare:
			a.Share = int64(v)
		case askDemand:
			a.Demand = int64(v)
		}
	}, func(field protowire.Number, v []byte) {
		if field == askKey {
			a.Key = string(v)
		}
	})
	m.Asks = append(m.Asks, a)
	return err == nil
}
