package envoy

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/limiter"
)

// Metadata names the rules that refused, for Envoy's access log. Reuse it after Reset.
type Metadata struct {
	limited, shadowed []byte // rules, with commas between
}

func (m *Metadata) Reset() { m.limited, m.shadowed = m.limited[:0], m.shadowed[:0] }

func (m *Metadata) Note(r *decide.Request) {
	for i := range r.Decision.Results {
		switch res := &r.Decision.Results[i]; {
		case res.Refuses(&r.Match.Checks[i]):
			m.limited = appendRule(m.limited, r.Match.Rules[i].ID)
		case !res.Allowed && res.Source != limiter.SourceNone:
			m.shadowed = appendRule(m.shadowed, r.Match.Rules[i].ID)
		}
	}
}

func appendRule(list []byte, id string) []byte {
	if len(list) > 0 {
		list = append(list, ',')
	}
	return append(list, id...)
}

// Append writes what was recorded as a google.protobuf.Struct, unless no rule refused.
func (m *Metadata) Append(b []byte, field protowire.Number, retryAfter int64) []byte {
	if len(m.limited)+len(m.shadowed) == 0 {
		return b
	}
	start := Begin(&b, field)
	b = appendValue(b, "limited_by", func(b []byte) []byte { return appendString(b, m.limited) })
	b = appendValue(b, "retry_after", func(b []byte) []byte {
		return protowire.AppendFixed64(protowire.AppendTag(b, 2, protowire.Fixed64Type), math.Float64bits(float64(retryAfter)))
	})
	b = appendValue(b, "shadow_limited_by", func(b []byte) []byte { return appendString(b, m.shadowed) })
	return End(b, start)
}

// appendValue writes a field of a Struct. Its Value is one of several types, so it is written even if empty.
func appendValue(b []byte, name string, value func([]byte) []byte) []byte {
	entry := Begin(&b, 1)
	b = AppendText(b, 1, name)
	start := Begin(&b, 2)
	return End(End(value(b), start), entry)
}

func appendString(b, text []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), text)
}

// HeaderName spells the name of a field that describes limits as HTTP/2 does, without a new string.
func HeaderName(name []byte) string {
	switch string(name) {
	case "RateLimit-Policy":
		return "ratelimit-policy"
	case "RateLimit":
		return "ratelimit"
	case "X-RateLimit-Limit":
		return "x-ratelimit-limit"
	case "X-RateLimit-Remaining":
		return "x-ratelimit-remaining"
	case "X-RateLimit-Reset":
		return "x-ratelimit-reset"
	}
	return string(name)
}
