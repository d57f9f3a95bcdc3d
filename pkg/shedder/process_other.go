//go:build !unix

package shedder

import "time"

// cpuTime is unknown here, so SignalCPU is missing.
func cpuTime() time.Duration { return 0 }
