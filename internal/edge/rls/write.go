package rls

import (
	"time"

	"github.com/weir-edge/weir/internal/edge/envoy"
)

// The codes of a RateLimitResponse and of its statuses.
const (
	codeOK        = 1
	codeOverLimit = 2
)

func code(refused bool) uint64 {
	if refused {
		return codeOverLimit
	}
	return codeOK
}

// Append implements envoy.Call. It writes a RateLimitResponse as proto.Marshal would.
func (c *call) Append(b []byte) []byte {
	a := &c.answer
	b = envoy.AppendNumber(b, 1, code(a.refused))
	for i := range a.statuses {
		b = a.statuses[i].append(b)
	}
	for i := range a.fields.Len() {
		name, value := a.fields.At(i)
		header := envoy.Begin(&b, 3)
		b = envoy.AppendText(b, 1, name)
		b = envoy.End(envoy.AppendText(b, 2, value), header)
	}
	b = envoy.AppendText(b, 5, a.fields.Body())
	return a.metadata.Append(b, 6, a.retryAfter)
}

func (s *descriptorStatus) append(b []byte) []byte {
	status := envoy.Begin(&b, 2)
	b = envoy.AppendNumber(b, 1, code(s.refused))
	if !s.limited {
		return envoy.End(b, status)
	}
	limit := envoy.Begin(&b, 2)
	b = envoy.AppendNumber(b, 1, uint64(s.limit))
	b = envoy.AppendNumber(b, 2, uint64(s.unit))
	b = envoy.AppendText(b, 3, s.rule)
	if s.times > 1 {
		times := envoy.Begin(&b, 4)
		b = envoy.End(envoy.AppendNumber(b, 1, uint64(s.times)), times)
	}
	b = envoy.End(b, limit)
	b = envoy.AppendNumber(b, 3, uint64(s.remaining))
	reset := envoy.Begin(&b, 4)
	b = envoy.AppendNumber(b, 1, uint64(s.wait/time.Second))
	b = envoy.End(envoy.AppendNumber(b, 2, uint64(s.wait%time.Second)), reset)
	return envoy.End(b, status)
}
