//go:build !unix

package sampler

import "time"

// cpuTime is unknown here, so SignalCPU is missing.
func cpuTime() time.Duration { return 0 }
