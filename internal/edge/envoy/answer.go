package envoy

import (
	"unsafe"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/limiter"
)

// Metadata names the rules that refused, for Envoy's access log. Reuse it after Reset.
type Metadata struct {
	limited, shadowed []byte // rules, with commas between

	values                     structpb.Struct
	limitedBy, shadowLimitedBy structpb.Value_StringValue
	retryAfter                 structpb.Value_NumberValue
}

// Reset clears m.
func (m *Metadata) Reset() { m.limited, m.shadowed = m.limited[:0], m.shadowed[:0] }

// Note adds what was decided about a request.
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

// Struct returns what was noted, until Reset; nil if no rule refused.
func (m *Metadata) Struct(retryAfter int64) *structpb.Struct {
	if len(m.limited)+len(m.shadowed) == 0 {
		return nil
	}
	if m.values.Fields == nil {
		m.values.Fields = map[string]*structpb.Value{
			"limited_by":        {Kind: &m.limitedBy},
			"shadow_limited_by": {Kind: &m.shadowLimitedBy},
			"retry_after":       {Kind: &m.retryAfter},
		}
	}
	m.limitedBy.StringValue, m.shadowLimitedBy.StringValue = Text(m.limited), Text(m.shadowed)
	m.retryAfter.NumberValue = float64(retryAfter)
	return &m.values
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

// Text returns a string that shares b: it must not outlive the call.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
