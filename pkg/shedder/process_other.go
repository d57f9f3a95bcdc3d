//go:build !unix

package shedder

import "time"

// cpuTime is unknown here, and SignalCPU is therefore missing.
func cpuTime() time.Duration { return 0 }
