package sampler

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// quotaHolds is how long a quota is reused after it was read.
const quotaHolds = 10 * time.Second

// allowance caches how much CPU time the process may use, in CPUs.
type allowance struct {
	at   time.Time
	cpus float64
}

func (a *allowance) measure(now time.Time) float64 {
	if a.at.IsZero() || now.Sub(a.at) > quotaHolds {
		a.at, a.cpus = now, allowedCPUs()
	}
	return a.cpus
}

// GOMAXPROCS respects the cgroup's quota too, but rounds it up to whole CPUs.
func allowedCPUs() float64 {
	allowed := float64(runtime.GOMAXPROCS(0))
	if quota := cgroupQuota("/proc/self/cgroup", "/sys/fs/cgroup"); quota > 0 {
		allowed = min(allowed, quota)
	}
	return allowed
}

// cgroupQuota returns the lowest quota of this process's cgroup (version 2) and its
// ancestors, in CPUs; 0 if none is set.
func cgroupQuota(self, root string) (least float64) {
	text, err := os.ReadFile(self)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for {
			if quota := readQuota(root + path + "/cpu.max"); quota > 0 && (least == 0 || quota < least) {
				least = quota
			}
			i := strings.LastIndexByte(path, '/')
			if i < 0 {
				break
			}
			path = path[:i]
		}
	}
	return least
}

// readQuota parses "200000 100000": microseconds of CPU time per period in microseconds.
func readQuota(file string) float64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	quota, period, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	q, err := strconv.ParseFloat(quota, 64)
	p, perr := strconv.ParseFloat(period, 64)
	if err != nil || perr != nil || p <= 0 {
		return 0 // "max"
	}
	return q / p
}
