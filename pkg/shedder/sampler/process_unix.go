//go:build unix

package sampler

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time that the process has used, 0 if unknown.
func cpuTime() time.Duration {
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
