package overload

import (
	"time"

	"github.com/weir-edge/weir/pkg/shedder"
)

// Published is Stripe's control law as published, faults included, for comparison:
// https://gist.github.com/ptarjan/e38f45f2dfe601419ca3af937fff574d. Utilization below 0.7 is
// good, above 0.8 bad; a 120th of the error is added each second, and the excess over the
// patience is shed. Its faults: -28/120 is an integer division, which makes the patience
// 120 s; full utilization looks the same at any depth of overload; in the dead band it keeps
// shedding forever; and it takes as long to restore as to shed.
func Published(s shedder.State, dt time.Duration, r *shedder.Reading, settings *shedder.Settings) shedder.State {
	const (
		goodEnd, badStart = 0.7, 0.8
		patience          = 1.0
		toShedAll         = 120.0 // seconds
	)
	off := 0.0
	switch u := r.Utilization; {
	case u < goodEnd:
		off = u/goodEnd - 1
	case u > badStart:
		off = min(1, (u-badStart)/(1-badStart))
	}
	s.Integral = min(1+patience, max(0, s.Integral+off/toShedAll*dt.Seconds()))
	s.Level = max(0, s.Integral-patience) * float64(len(settings.Classes)-1)
	return s
}
