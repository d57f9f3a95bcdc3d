package redisstore

import "time"

// ClockStep is the smallest adjustment that a ClockWatch reports.
const ClockStep = time.Second

// ClockWatch notices when a clock is set, by comparing it with the local monotonic clock.
// The zero value is ready to use; it is not safe for concurrent use.
type ClockWatch struct {
	known       bool
	least, most time.Duration // how far the clock was ahead of the local one
}

// See records a reading of the clock, in Unix microseconds, taken between two local
// monotonic times. It returns how far the clock was adjusted since the last reading.
func (w *ClockWatch) See(clock int64, from, to time.Duration) (by time.Duration) {
	at := time.Duration(clock) * time.Microsecond
	least, most := at-to, at-from
	switch {
	case w.known && least > w.most+ClockStep:
		by = least - w.most
	case w.known && most < w.least-ClockStep:
		by = most - w.least
	}
	w.known, w.least, w.most = true, least, most
	return by
}
