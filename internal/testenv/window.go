package testenv

import (
	"fmt"
	"time"
)

// outlasts is longer than all tests of a package take.
const outlasts = 6 * time.Hour

// LongWindow returns the length of a fixed window, such as "744h", that begins long before the test
// and ends long after it. One of a day would end at midnight, UTC.
func LongWindow() string { return fmt.Sprintf("%dh", longWindow(time.Now())) }

// longWindow returns it in hours: windows of different lengths end at different times.
func longWindow(now time.Time) int64 {
	hours := int64(744)
	for ; ; hours-- {
		since := now.Unix() % (hours * 3600)
		if left := hours*3600 - since; left > int64(outlasts/time.Second) {
			return hours
		}
	}
}
