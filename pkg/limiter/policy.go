package limiter

import (
	"strconv"
	"time"
)

// Policy returns the limit as an item of the field RateLimit-Policy
// (draft-ietf-httpapi-ratelimit-headers). It is made once, because every answer has it.
func (l *Limit) Policy() string {
	if s := l.policy.Load(); s != nil {
		return *s
	}
	s := string(l.AppendPolicy(nil, l.Limit))
	l.policy.Store(&s)
	return s
}

// AppendPolicy appends the policy of clients that get this quota of the limit.
func (l *Limit) AppendPolicy(b []byte, quota int64) []byte {
	b = append(append(append(b, '"'), l.Rule...), `";q=`...)
	b = strconv.AppendInt(b, quota, 10)
	if l.Algorithm == Concurrency { // its window is only how long a lost slot lasts
		return append(b, `;qu="concurrent-requests"`...)
	}
	return strconv.AppendInt(append(b, ";w="...), int64((l.Window+time.Second-1)/time.Second), 10)
}
