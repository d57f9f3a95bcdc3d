package global

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-edge/weir/pkg/limiter"
)

const (
	fieldTerm protowire.Number = 1

	termDivision protowire.Number = iota
	termPart
	termHolder
	termUntil // microseconds
	termLife
	termPromised
	termFrom
	termTo
	termSure
	termFirst
)

// maxTerms bounds a message: a region asks for its own part and for those that it inherits.
const maxTerms = 1000

// AppendTerms appends the encoded list to b: questions, or their answers in the same order.
func AppendTerms(b []byte, list []limiter.Term) []byte {
	var part []byte
	flag := func(v bool) int64 {
		if v {
			return 1
		}
		return 0
	}
	for i := range list {
		t := &list[i]
		part = appendVarint(part[:0], termDivision, t.Division)
		part = protowire.AppendString(protowire.AppendTag(part, termPart, protowire.BytesType), t.Part)
		part = protowire.AppendString(protowire.AppendTag(part, termHolder, protowire.BytesType), t.Holder)
		part = appendVarint(part, termUntil, t.Until)
		part = appendVarint(part, termLife, t.Life)
		part = appendVarint(part, termPromised, flag(t.Promised))
		part = appendVarint(part, termFrom, t.From)
		part = appendVarint(part, termTo, t.To)
		part = appendVarint(part, termSure, t.Sure)
		part = appendVarint(part, termFirst, flag(t.First))
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldTerm, protowire.BytesType), part)
	}
	return b
}

// ParseTerms reads a list. No number is below 0, or beyond what a store counts exactly.
func ParseTerms(b []byte) (list []limiter.Term, err error) {
	bad := error(nil)
	err = Fields(b, func(protowire.Number, uint64) {}, func(field protowire.Number, v []byte) {
		if field != fieldTerm || bad != nil {
			return
		}
		var t limiter.Term
		bad = Fields(v, func(field protowire.Number, v uint64) {
			n := int64(min(v, maxCount))
			switch field {
			case termDivision:
				t.Division = n
			case termUntil:
				t.Until = n
			case termLife:
				t.Life = n
			case termPromised:
				t.Promised = n > 0
			case termFrom:
				t.From = n
			case termTo:
				t.To = n
			case termSure:
				t.Sure = n
			case termFirst:
				t.First = n > 0
			}
		}, func(field protowire.Number, v []byte) {
			switch field {
			case termPart:
				t.Part = string(v)
			case termHolder:
				t.Holder = string(v)
			}
		})
		if list = append(list, t); len(list) > maxTerms {
			bad = errMessage
		}
	})
	if err == nil {
		err = bad
	}
	return list, err
}
