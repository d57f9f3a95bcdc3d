//go:build unix

package shedder

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is what the process has used so far, 0 if that is unknown.
func cpuTime() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
